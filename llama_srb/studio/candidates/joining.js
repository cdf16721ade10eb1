// Where a text is put in before other text: the space that is missing between the two.

const WORD = "\\p{L}\\p{N}\\p{M}";
const QUOTES = "\"'“”‘’«»*"; // and stars: they open or close, by what is beside them
// Nothing is missing behind what opens, nor before what closes or goes on.
const OPENED = new RegExp(`(?:[\\p{Ps}/]|\\S[-‐–—]|(?:^|[\\s\\p{Ps}])[${QUOTES}]+)$`, "u");
const GOES_ON = new RegExp(`^(?:[.,;:!?…)\\]}%‰°/]|[-‐–—]\\S|[${QUOTES}]+(?:$|[\\s.,;:!?…)\\]}\\-–—]))`, "u");
const SUFFIX = /^['’](?:s|t|re|ve|ll|d|m|n)(?!\p{L})/iu;
const ENDS_IN_WORD = new RegExp(`[${WORD}]$`, "u");
const BEGINS_IN_WORD = new RegExp(`^(?:[${WORD}]|['’]\\p{L})`, "u"); // a word, or what an apostrophe adds
const LETTERS =
  "\\p{Script=Han}\\p{Script=Hiragana}\\p{Script=Katakana}\\p{Script=Thai}\\p{Script=Lao}\\p{Script=Khmer}" +
  "\\p{Script=Myanmar}\\p{Script=Tibetan}"; // of scripts without spaces
const UNSPACED = [new RegExp(`[${LETTERS}]\\P{L}*$`, "u"), new RegExp(`^\\P{L}*[${LETTERS}]`, "u")];
const IN_NUMBER = [/\d[.,:]$/, /^\d/];

/** @type {(patterns: RegExp[], text: string, behind: string) => boolean} */
const either = ([end, begin], text, behind) => end.test(text) || begin.test(behind);
/** @type {(patterns: RegExp[], text: string, behind: string) => boolean} */
const both = ([end, begin], text, behind) => end.test(text) && begin.test(behind);

const JOINED = /^[\s.,;:!?…)\]}%]/; // what needs no space before it

/** A candidate that stands in the place of the writer's space: a word brings a space along, a sign does not.
    @type {(text: string) => string} */
export const spaced = (text) => (!text || JOINED.test(text) ? text : ` ${text}`);

/** The space to add behind a text that is put in between two others; "" if none is missing. A part of a word
    that is put into a word stays a part of it.
    @type {(before: string, text: string, behind: string) => string} */
export function gapBehind(before, text, behind) {
  if (/(?:^|\s)$/.test(text) || /^(?:\s|$)/.test(behind)) return "";
  if (OPENED.test(text) || GOES_ON.test(behind) || both(IN_NUMBER, text, behind)) return "";
  if (either(UNSPACED, text, behind)) return "";
  if (ENDS_IN_WORD.test(text) && SUFFIX.test(behind)) return "";
  const isInWord = both([ENDS_IN_WORD, BEGINS_IN_WORD], before, behind) && !/\s/.test(text);
  return isInWord ? "" : " ";
}
