// Where words stand in a text, and the line around a place. It knows no page.

const LETTER = "[\\p{L}\\p{M}\\p{N}_]";
const IS_LETTER = new RegExp(LETTER, "u");
const PART = 2 ** 18; // characters that are searched at once; what is sought has no line break
const AROUND = 60; // characters of a line that are shown on each side of a place

/** What a keyboard has, and what it stands for as well in words: signs of the same length. */
const SIGNS = { "'": "['‘’ʼ]", '"': '["“”„«»]', " ": "[ \u00a0\u202f]", "-": "[-\u2010\u2011]" };

/** How words are sought. `exact`: in this case, with these signs; `whole`: no part of a longer word.
    @typedef {{exact?: boolean, whole?: boolean}} How */

/** @type {(sign: string) => string} */
const escaped = (sign) => (/['" -]/.test(sign) ? sign : `\\${sign}`);

/** @type {(sought: string, how?: How) => RegExp} */
export function patternOf(sought, { exact = false, whole = false } = {}) {
  const signs = exact || !IS_LETTER.test(sought) ? {} : SIGNS; // a sign alone is only itself
  const words = sought.replace(/[.*+?^${}()|[\]\\'" -]/g, (sign) => signs[sign] ?? escaped(sign));
  const [first = "", last = ""] = [[...sought][0], [...sought].at(-1)];
  const before = whole && IS_LETTER.test(first) ? `(?<!${LETTER})` : "";
  const behind = whole && IS_LETTER.test(last) ? `(?!${LETTER})` : "";
  return new RegExp(before + words + behind, exact ? "gu" : "giu");
}

/** Where a text has these words.
    @type {(text: string, sought: string, how?: How) => number[]} */
export function placesOf(text, sought, how) {
  if (!sought) return [];
  return [...text.matchAll(patternOf(sought, how))].map(({ index }) => index);
}

/** A text in parts that end with a line, so that a long one can be searched in several goes: where each
    begins, and the part.
    @type {(text: string) => Generator<[begin: number, part: string]>} */
export function* partsOf(text) {
  for (let at = 0; at < text.length; ) {
    const line = text.indexOf("\n", at + PART);
    const end = line < 0 ? text.length : line + 1;
    yield [at, text.slice(at, end)];
    at = end;
  }
}

/** What stands in the line before and behind a place, cut between words.
    @type {(text: string, at: number, length: number) => [before: string, behind: string]} */
export function lineAround(text, at, length) {
  const [head] = /[^\n]*$/.exec(text.slice(Math.max(0, at - 2 * AROUND), at)) ?? [""];
  const [rest] = /^[^\n]*/.exec(text.slice(at + length, at + length + 2 * AROUND)) ?? [""];
  return [
    head.length > AROUND ? `…${head.slice(-AROUND).replace(/^\S*\s/, "")}` : head.trimStart(),
    rest.length > AROUND ? `${rest.slice(0, AROUND).replace(/\s\S*$/, "")}…` : rest.trimEnd(),
  ];
}
