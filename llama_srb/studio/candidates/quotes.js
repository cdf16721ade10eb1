// Quotation marks: a text that comes into a story gets straight or curly ones, as the story has them.
//
// Which curly ones, the story's text says; where it has none, its language.

const STRAIGHT = { double: /"/g, single: /'/g };
const CURLY = { double: /[“”„«»]/g, single: /[‘’‚]/g };
const FORMS = /** @type {Record<string, string>} */ ({
  ...Object.fromEntries(["de", "cs", "sk", "sl", "bg", "is"].map((lang) => [lang, "„“"])),
  ...Object.fromEntries(["pl", "hu", "ro", "hr"].map((lang) => [lang, "„”"])),
  ...Object.fromEntries(["fr", "es", "it", "ru", "uk", "el", "no", "nb"].map((lang) => [lang, "«»"])),
  ...Object.fromEntries(["sv", "fi"].map((lang) => [lang, "””"])),
  da: "»«",
});
const ENGLISH = "“”";
const SINGLE = /** @type {Record<string, string>} */ ({ "„“": "‚‘", "„”": "‚’", "””": "’’" });
const SPACED = /«([ \u00a0\u202f])/; // as in French

/** @type {(text: string, pattern: RegExp) => number} */
const count = (text, pattern) => text.match(pattern)?.length ?? 0;

/** Whether a story's marks of a kind are curly; null: it has none.
    @type {(text: string, kind: "double" | "single") => boolean | null} */
function isCurly(text, kind) {
  const more = count(text, CURLY[kind]) - count(text, STRAIGHT[kind]);
  return more ? more > 0 : null;
}

/** The double marks of a text, the opening and the closing one.
    @type {(text: string, lang: string) => string} */
function formOf(text, lang) {
  const has = (/** @type {string} */ mark) => text.includes(mark);
  if (has("„")) return count(text, /”/g) > count(text, /“/g) ? "„”" : "„“";
  const [first] = /[«»]/.exec(text) ?? [];
  if (first) return first === "«" ? "«»" : "»«";
  if (has("“")) return ENGLISH;
  return has("”") ? "””" : (FORMS[lang.split("-")[0].toLowerCase()] ?? ENGLISH);
}

/** What opens and closes a quotation, and one within it.
    @typedef {[open: string, close: string][]} Marks */

/** The quotation marks of a story; curly ones if it has none.
    @type {(all: string, lang?: string) => Marks} */
export function marksOf(all, lang = "") {
  if ((isCurly(all, "double") ?? isCurly(all, "single")) === false)
    return [
      ['"', '"'],
      ["'", "'"],
    ];
  const form = formOf(all, lang);
  const [open, close] = form;
  const [openSingle, closeSingle] = SINGLE[form] ?? "‘’";
  const inner = innerOf(all, form);
  return [
    [open + inner, inner + close],
    [openSingle, closeSingle],
  ];
}

/** The space within a text's double marks.
    @type {(text: string, form: string) => string} */
const innerOf = (text, form) => (form === "«»" ? (SPACED.exec(text)?.[1] ?? "") : "");

/** A text with the quotation marks of a story. `all`: the story's text; `before`: that before this text.
    @type {(text: string, all: string, before: string, lang?: string) => string} */
export function quotedLike(text, all, before, lang = "") {
  if (!/["'“”„«»‘’‚]/.test(text)) return text;
  const [double, single] = [isCurly(all, "double"), isCurly(all, "single")];
  const curly = { double: double ?? single, single: single ?? double };
  let made = text;
  if (curly.double === false) made = straightDouble(made);
  if (curly.single === false) made = made.replace(CURLY.single, "'");
  if (!curly.double && !curly.single) return made;
  const form = formOf(all, lang);
  return curled(made, before, form, innerOf(all, form), curly);
}

const SPACED_MARKS = /(?<!\S)«[ \u00a0\u202f]|[ \u00a0\u202f]»(?![\p{L}\p{N}])/gu;

/** @type {(text: string) => string} */
const straightDouble = (text) => text.replace(SPACED_MARKS, '"').replace(CURLY.double, '"');

const OPENS = /^$|[\s([{‘‚]/; // a mark behind one of these opens
const DASH = /[-–—]/; // behind one of these it opens, if none is open

/** A text with curly marks in place of straight ones of these kinds.
    @type {(text: string, before: string, form: string, inner: string,
      curly: {double: boolean | null, single: boolean | null}) => string} */
function curled(text, before, form, inner, curly) {
  const [open, close] = form;
  const [openSingle, closeSingle] = SINGLE[form] ?? "‘’";
  let isOpen = isOpenBehind(before, form);
  let isSingleOpen = false;
  let last = before.slice(-1);
  let made = "";
  const all = [...text];
  for (const [i, one] of all.entries()) {
    const rest = one === '"' || one === "'" ? all.slice(i + 1, i + 1 + LOOK).join("") : "";
    let mark = one;
    if (one === '"' && curly.double) {
      const opens = OPENS.test(last) ? !(isOpen && /^(\s|$)/.test(rest)) : DASH.test(last) && !isOpen;
      mark = opens ? open + inner : inner + close;
      isOpen = opens;
    } else if (one === "'" && curly.single && !/\d/.test(last)) {
      const opens = (OPENS.test(last) || last === open || last === '"') && QUOTED.test(rest);
      /** @type {boolean} */
      const closes = isSingleOpen && !/^[\p{L}\p{N}]/u.test(rest);
      mark = opens ? openSingle : closes ? closeSingle : "’";
      isSingleOpen = opens || (isSingleOpen && !closes);
    } else if (one === open || one === close) isOpen = one === open && !(open === close && isOpen);
    made += mark;
    last = one === '"' && mark !== one ? mark.slice(-1) : one;
  }
  return made;
}

const LOOK = 400; // characters, in which a quotation within one ends
const QUOTED = /^\p{L}[^\n']*(?:'\p{L}[^\n']*)*[\p{L}.,!?…]'(?![\p{L}\p{N}])/u;

/** Whether a quotation is open at the end of a text; it ends with its paragraph.
    @type {(text: string, form: string) => boolean} */
function isOpenBehind(text, [open, close]) {
  let isOpen = false;
  for (const one of text.slice(text.lastIndexOf("\n") + 1)) {
    if (one === '"' || (one === open && open === close)) isOpen = !isOpen;
    else if (one === open || one === close) isOpen = one === open;
  }
  return isOpen;
}
