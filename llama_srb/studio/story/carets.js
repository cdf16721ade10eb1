// Where each story's caret was, kept in this browser: that is no change of the story.

import { read, save } from "./store.js";
import { placeAfter } from "./tree.js";

const CARETS = "studio.carets";
const MOST = 500; // stories

/** Where the caret was in a story; null: at its end.
    @type {(id: string) => number | null} */
export const caretOf = (id) => read(CARETS, {})[id] ?? null;

/** @type {(id: string, at: number | null) => void} */
export function keepCaret(id, at) {
  const { [id]: before = null, ...others } = read(CARETS, {});
  if (before === at) return;
  const all = [...Object.entries(others), ...(at === null ? [] : [[id, at]])];
  save(CARETS, Object.fromEntries(all.slice(-MOST)));
}

/** Keeps the caret of a story that is not open at its place when another device has changed the text.
    @type {(id: string, old: string, text: string) => void} */
export function moveCaret(id, old, text) {
  const at = caretOf(id);
  if (at !== null) keepCaret(id, placeAfter(at, old, text));
}
