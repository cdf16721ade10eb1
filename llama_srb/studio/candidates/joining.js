// Where a text is put in before other text: the space that is missing between the two.

const WORD = "\\p{L}\\p{N}\\p{M}";
const ENDS = new RegExp(`[${WORD}.!?…,;:]["'”’»“)\\]]*$`, "u"); // a word or a sentence, and what closes it
const BEGINS = /^["'“‘«»„‚([¿¡]*[\p{L}\p{N}]/u;
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

/** The space to add behind a text that is put in between two others; "" if none is missing. A part of a word
    that is put into a word stays a part of it.
    @type {(before: string, text: string, behind: string) => string} */
export function gapBehind(before, text, behind) {
  if (!ENDS.test(text) || !BEGINS.test(behind)) return "";
  if (either(UNSPACED, text, behind) || both(IN_NUMBER, text, behind)) return "";
  if (/^['’]/.test(behind) && ENDS_IN_WORD.test(text)) return "";
  const isInWord = both([ENDS_IN_WORD, BEGINS_IN_WORD], before, behind) && !/\s/.test(text);
  return isInWord ? "" : " ";
}
