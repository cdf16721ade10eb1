// Typing and undo: what was typed becomes part of the tree, and every change of the text can be undone.

import { isChat, refresh, session } from "./session.js";
import * as store from "./store.js";
import { patchOf, patched, textOf, write } from "./tree.js";
import { changed } from "./ui.js";

const TYPING_MS = 400; // the writer's pause that ends an undo step
const HISTORY = 500; // steps
const MOST_TEXT = 1e6; // characters of all steps together

// A step is where the text ended and how its last node is changed back, so that a step of a long text is short.
let past = [];
let future = [];
let typing = null;

const now = () => {
  const { current, nodes } = session.story;
  return { current, length: nodes[current].text.length, at: session.at, patch: null };
};

/** Records the present text for undo; `patch` undoes a change that was made within its last node. */
export function note(step = now()) {
  past.push(step);
  future.length = 0;
  let length = 0;
  const first = past.findLastIndex(({ patch }) => (length += sizeOf(patch)) > MOST_TEXT);
  past.splice(0, Math.max(first + 1, past.length - HISTORY));
  keepSteps();
}

const sizeOf = (patch) => 1 + (patch ? patch[2].length + patch[3].length : 0);

const keepSteps = () => store.keepHistory(session.story.id, { past, future });

export function typed(text, at) {
  Object.assign(session, { text, at, point: null });
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
  const step = now();
  const altered = put(text, step);
  note(step);
  store.keep(story, altered);
  changed("story");
}
store.leaving.push(commit);

/** Writes a text into the tree; a change within the last node is in the step, to be undone there. */
function put(text, step) {
  const { story } = session;
  const before = story.nodes[step.current].text;
  const altered = write(story, text);
  const { text: after, children } = story.nodes[story.current];
  if (story.current === step.current && !children.length)
    Object.assign(step, { length: after.length, patch: patchOf(after, before) });
  return altered;
}

export const canUndo = () => past.length > 0;
export const canRedo = () => future.length > 0;
export const undo = () => step(past, future);
export const redo = () => step(future, past);

function step(from, to) {
  commit();
  const wanted = from.pop();
  if (!wanted) return;
  const { story } = session;
  const back = now();
  const { id, text } = placeOf(wanted);
  story.current = id;
  session.point = null;
  const altered = isChat() ? [] : put(text, id === back.current ? back : now());
  to.push(back);
  store.keep(story, altered);
  keepSteps();
  refresh(wanted.at);
}

/** The node where the text of a step ended, which may have been cut since, and the text before its change. */
function placeOf({ current, length, patch }) {
  const { story } = session;
  const first = story.nodes[current];
  const above = first.parent ? textOf(story, first.parent) : "";
  let [node, piece] = [first, first.text];
  while (piece.length < length && node.children.length) {
    node = story.nodes[node.children[0]];
    piece += node.text;
  }
  const fits = patch && piece.length === length;
  const text = fits ? (patched(piece, patch) ?? piece) : piece.slice(0, patch ? piece.length : length);
  return { id: node.id, text: above + text };
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

/** Takes the undo steps of the story that is opened; those that lead to nodes it does not have are left out. */
export function recall(steps) {
  const { nodes } = session.story;
  [past, future] = [steps?.past, steps?.future].map((list = []) => list.filter((one) => nodes[one.current]));
  changed("text");
}

/** Node `gone`, of this length, was joined into another one: undo returns there instead. */
export function redirect(gone, id, length) {
  for (const was of [...past, ...future]) {
    if (was.current === id) was.length += length;
    if (was.current === id && was.patch) was.patch[0] += length;
    if (was.current === gone) was.current = id;
  }
}
