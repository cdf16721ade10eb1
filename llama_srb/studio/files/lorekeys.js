// Keys of other tools' lore in our syntax: words, or /expressions/ of RE2 with the flags i, m and s, which
// the server refuses if they are wrong, with the whole request. So what it does not have is left out here,
// and said.

const MOST = 100; // keys of an entry, as the server bounds them
const LONGEST = 500; // characters of a key
const COUNT = 1000; // how often RE2 repeats something, at most

const EXPRESSION = /^\/(.+?)\/([gimsuy]*)$/s; // as SillyTavern reads them
const OURS = /^\/.+\/[ims]*$/s;
const SLASH = /(^|[^\\])\//; // which must be escaped in an expression, else the key is words
const SPLIT = /\s*(\/(?:\\.|[^/\\])+\/[a-z]*(?=\s*(?:,|$))|[^,]+)/g;

/** What JavaScript has and RE2 has not.
    @type {[RegExp, string][]} */
const UNKNOWN = [
  [/\(\?<?[=!]/, "looks ahead or behind, as (?=…)"],
  [/\\[1-9]|\\k</, "names a group again, as \\1"],
  [/\\c[A-Za-z]|\\0\d/, "has a control character"],
  [/\[\]/, "has an empty set"],
];

/** @type {(value: unknown) => string[]} */
const listOf = (value) =>
  Array.isArray(value) ? value.map(String) : [...String(value ?? "").matchAll(SPLIT)].map(([, key]) => key);

/** The keys, one a line. `warn` is told of those that are left out.
    @type {(value: unknown, warn: (about: string) => void) => string} */
export function keysOf(value, warn) {
  const keys = listOf(value).flatMap((one) => {
    const key = one.replaceAll(/\s*\n\s*/g, " ").trim();
    if (!key) return [];
    const { made, why } = keyOf(key);
    if (why) warn(`its key ${shown(key)} is left out: it ${why}`);
    return made ?? [];
  });
  if (keys.length > MOST) warn(`it has ${keys.length} keys; the first ${MOST} are used`);
  return keys.slice(0, MOST).join("\n");
}

/** @type {(key: string) => string} */
const shown = (key) => (key.length > 60 ? `${key.slice(0, 60)}…` : key);

/** @typedef {{made?: string, why?: string}} Key `why`: it is left out */

/** @type {(key: string) => Key} */
function keyOf(key) {
  const [, pattern, flags] = EXPRESSION.exec(key) ?? [];
  const made = pattern === undefined || SLASH.test(pattern) ? wordsOf(key) : expressionOf(pattern, flags);
  if (made.made && made.made.length > LONGEST) return { why: `has more than ${LONGEST} characters` };
  return made;
}

/** Words, which would be an expression for us if they stand between slashes.
    @type {(key: string) => Key} */
const wordsOf = (key) => ({ made: OURS.test(key) ? `/${key.replaceAll(/[^\w\s]/g, "\\$&")}/i` : key });

/** @type {(pattern: string, flags: string) => Key} */
function expressionOf(pattern, flags) {
  try {
    new RegExp(pattern, flags);
  } catch (error) {
    return { why: `is no expression (${error.message})` };
  }
  const why = UNKNOWN.find(([sign]) => sign.test(pattern.replaceAll("\\\\", "")))?.[1];
  if (why) return { why: `${why}, which the server's expressions do not have` };
  if (repeats(pattern) > COUNT) return { why: `repeats more than ${COUNT} times` };
  const kept = [...new Set(flags)].filter((flag) => "ims".includes(flag)).join("");
  return { made: `/${translated(pattern, flags.includes("u"))}/${kept}` };
}

/** How often a part is repeated, at most: where groups are repeated, the numbers may multiply.
    @type {(pattern: string) => number} */
function repeats(pattern) {
  const counts = [...pattern.matchAll(/\{(\d+),?(\d*)\}/g)].map(([, from, to]) =>
    Math.max(Number(from), Number(to)),
  );
  const isNested = /\)\{/.test(pattern);
  return counts.reduce((all, one) => (isNested ? all * Math.max(1, one) : Math.max(all, one)), 1);
}

const PART =
  /\\(?:u\{([\da-f]+)\}|u([\da-f]{4})|x([\da-f]{2})|([pP])\{([^}]*)\}|(.))|\(\?<\w+>|\[\^?|\]|-|\./gis;

/** A pattern of JavaScript as one of RE2, where they differ in signs only. `isStrict`: with the flag u,
    without which unknown escapes are letters.
    @type {(pattern: string, isStrict: boolean) => string} */
function translated(pattern, isStrict) {
  let isSet = false;
  return pattern.replaceAll(PART, (all, long, short, hex, property, name, sign, at) => {
    if (long && !isStrict) return `u{${long}}`;
    if (long || short || hex) return `\\x{${long ?? short ?? hex}}`;
    if (property && !isStrict) return `${property}\\{${name}\\}`;
    if (property) return `\\${property}{${name.replace(/^(Script|sc|General_Category|gc)=/, "")}}`;
    if (sign) return escaped(sign, isSet);
    if (all.startsWith("(?<")) return isSet ? all : "("; // RE2 wants each name once; nothing uses it
    if (all === "]") isSet = false;
    if (all.startsWith("[") && isSet) return all.replace("[", "\\[");
    if (all.startsWith("[")) {
      isSet = true;
      if (pattern.slice(at, at + 3) === "[^]") return "[\\s\\S";
    }
    // beside a class of characters a dash is no range
    if (
      all === "-" &&
      isSet &&
      /\\[dwsDWS]$|^..?\\[dwsDWS]/.test(pattern.slice(at - 2, at) + pattern.slice(at, at + 3))
    )
      return "\\-";
    return all;
  });
}

/** @type {(sign: string, isSet: boolean) => string} */
function escaped(sign, isSet) {
  if (sign === "0") return "\\x{0}";
  if (sign === "b" && isSet) return "\\x{8}";
  return /[dDwWsSbBnrtfv]|[!-/:-@[-`{-~]/.test(sign) && !/[_]/.test(sign) ? `\\${sign}` : sign;
}
