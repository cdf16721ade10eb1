// Typing and undo: what was typed becomes part of the tree, and every change of the text can be undone.

import { isChat, refresh, session } from "./session.js";
import * as store from "./store.js";
import { heldBack, pathTo, textOf, write } from "./tree.js";
import { changed } from "./ui.js";

const TYPING_MS = 400; // the writer's pause that ends an undo step
const HISTORY = 500;

const past = [];
const future = [];
let typing = null;

const now = () => ({ current: session.story.current, text: textOf(session.story), at: session.at });

/** Records the present text for undo. */
export function note() {
  past.push(now());
  if (past.length > HISTORY) past.shift();
  future.length = 0;
}

export function typed(text, at) {
  Object.assign(session, { text, at });
  clearTimeout(typing);
  typing = setTimeout(commit, TYPING_MS);
  changed("text");
}

export function movedTo(at) {
  session.at = at;
}

/** Writes the typed text into the tree. */
export function commit() {
  clearTimeout(typing);
  typing = null;
  const { story, text } = session;
  if (!story || isChat() || text === textOf(story)) return;
  note();
  put(text);
  session.point = placeOfCaret();
  changed("story");
}

/** Writes the text into the tree; undo goes where a removed leaf was. */
function put(text) {
  const { story } = session;
  const leaf = story.nodes[story.current];
  store.keep(story, write(story, text));
  if (!story.nodes[leaf.id]) redirect(leaf.id, leaf.parent);
}

/** The node that ends at the caret, if it has candidates and text follows: typing may come back to it. */
function placeOfCaret() {
  const { story, text } = session;
  const at = heldBack(story, session.at);
  if (at >= text.length) return null;
  const path = pathTo(story);
  let end = 0;
  const i = path.findIndex((node) => (end += node.text.length) >= at);
  const others = end === at && path[i].children.filter((id) => id !== path[i + 1]?.id);
  return others.length ? path[i].id : null;
}
store.leaving.push(commit);

export const canUndo = () => past.length > 0;
export const canRedo = () => future.length > 0;
export const undo = () => step(past, future);
export const redo = () => step(future, past);

function step(from, to) {
  commit();
  const wanted = from.pop();
  if (!wanted) return;
  to.push(now());
  const { story } = session;
  story.current = wanted.current;
  if (!isChat()) put(wanted.text);
  refresh(wanted.at);
  session.point = isChat() ? null : placeOfCaret();
}

/** Makes a node the end of the text. */
export function goTo(id) {
  commit();
  if (id === session.story.current) return;
  note();
  session.story.current = id;
  session.story.nodes[id].seen = true;
  session.point = null;
  store.keep(session.story, [session.story.nodes[id]]);
  refresh();
}

/** Empties the history when another story is opened. */
export function forget() {
  past.length = future.length = 0;
}

/** Node `gone` was joined into another one: undo returns there instead. */
export function redirect(gone, id) {
  for (const was of [...past, ...future]) if (was.current === gone) was.current = id;
}
