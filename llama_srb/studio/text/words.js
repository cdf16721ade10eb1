// The words of a text, counted again only in the parts of it that have changed.

import { countOfWords } from "../story/tree.js";
import { parts } from "./field.js";

const known = new WeakMap(); // a part of a text, which the next text has, too, if it stays → its words

/** @type {(text: any) => number} */
function count(text) {
  const words =
    known.get(text) ??
    text.children?.reduce((sum, part) => sum + count(part), 0) ??
    countOfWords(text.toString());
  known.set(text, words);
  return words;
}

/** The words of the text, or of these characters of it.
    @type {(from?: number, to?: number) => number} */
export const wordsIn = (from, to) => count(from === undefined ? parts() : parts().slice(from, to));
