// Keys of other tools' lore in our syntax: words, or /expressions/ of RE2 with the flags i, m and s, which the
// server refuses if they are wrong, with the whole request. So what it does not have is left out here, and said.

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
  [/\\c[A-Za-z]/, "has a control character"],
  [/\[\]/, "has an empty set"],
];

/** How JavaScript's signs are written in RE2.
    @type {[RegExp, (...found: string[]) => string][]} */
const SIGNS = [
  [/\\u\{([0-9a-f]+)\}|\\u([0-9a-f]{4})/gi, (_, long, short) => `\\x{${long ?? short}}`],
  [/\\p\{(?:Script|sc|General_Category|gc)=(\w+)\}/g, (_, name) => `\\p{${name}}`],
  [/\[\^\]/g, () => "[\\s\\S]"],
  [/\\\//g, () => "/"],
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
    if (why) warn(`its key ${shown(key)} ${why}`);
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
  const counts = [...pattern.matchAll(/\{(\d*),?(\d*)\}/g)].flatMap(([, from, to]) => [
    Number(from),
    Number(to),
  ]);
  if (Math.max(0, ...counts) > COUNT) return { why: `repeats more than ${COUNT} times` };
  let made = pattern;
  for (const [sign, by] of SIGNS) made = made.replaceAll(sign, by);
  return { made: `/${made}/${[...new Set(flags)].filter((flag) => "ims".includes(flag)).join("")}` };
}
