// Typing and undo: what was typed becomes part of the tree, and every change of the text can be undone.

import { freeze, runOf } from "../candidates/stopping.js";
import { isChat, refresh, session, setPoint } from "../story/session.js";
import * as store from "../story/store.js";
import { heldBack, patched, patchOf, pathTo, textOf, write } from "../story/tree.js";
import { changed } from "../ui/ui.js";

const TYPING_MS = 400; // the writer's pause that ends an undo step
const HISTORY = 500; // steps
const MOST_TEXT = 1e6; // characters of all changes together
const KEEP_MS = 300; // until the steps are stored

/** @import { Patch } from "../story/tree.js" */

// Undo steps. The last one of a list has its text; each other one has the change from the next one's text to
// its own, so that many steps of a long text are small.
/** @typedef {{current: string, at: number, text?: string, patch?: Patch}} Step */
/** @type {Step[]} */
let past = [];
/** @type {Step[]} */
let future = [];
/** @type {number | undefined} */
let typing;
/** @type {number | undefined} */
let keeping;

/** @type {() => Step & {text: string}} */
const now = () => ({ current: session.story.current, text: textOf(session.story), at: session.at });

/** @type {(steps: Step[], step: Step & {text: string}) => void} */
function push(steps, step) {
  const last = steps.at(-1);
  if (last) steps[steps.length - 1] = asChange(last, step.text);
  steps.push(step);
}

/** @type {(steps: Step[]) => Step | undefined} */
function pop(steps) {
  const step = steps.pop();
  const last = steps.at(-1);
  if (last) steps[steps.length - 1] = asText(last, step?.text ?? "");
  return step;
}

/** @type {(step: Step, next: string) => Step} */
const asChange = ({ text = "", ...step }, next) => ({ ...step, patch: patchOf(next, text) });
/** @type {(step: Step, next: string) => Step} */
const asText = ({ patch, ...step }, next) => ({ ...step, text: (patch && patched(next, patch)) ?? next });

/** Records the present text for undo. */
export function note() {
  push(past, now());
  future.length = 0;
  let length = 0;
  const cut = past.findLastIndex(({ patch }) => (length += patch ? sizeOf(patch) : 0) > MOST_TEXT);
  past.splice(0, Math.max(cut + 1, past.length - HISTORY));
  keepLater();
}

const sizeOf = ([, , by, before]) => by.length + before.length;

function keepLater() {
  clearTimeout(keeping);
  keeping = setTimeout(() => store.keepHistory(asStored()), KEEP_MS);
}

/** The steps as changes of the story's present text. */
function asStored() {
  clearTimeout(keeping);
  keeping = undefined;
  const text = textOf(session.story);
  const [before, after] = [past, future].map((steps) =>
    steps.map((step, i) => (i === steps.length - 1 ? asChange(step, text) : step)),
  );
  return { story: session.story.id, length: text.length, past: before, future: after };
}

store.leaving.push(() => {
  commit();
  if (keeping) store.rescueHistory(asStored());
});

/** Takes the undo steps of the story that is opened, if they are of its present text. */
export function recall(stored) {
  const text = textOf(session.story);
  const fits = stored?.length === text.length;
  [past, future] = [stored?.past, stored?.future].map((steps) => (fits ? expanded(steps, text) : []));
  changed("text");
}

/** The last step gets its text; none, if a step leads to a node that is gone.
    @type {(steps: Step[], text: string) => Step[]} */
function expanded(steps, text) {
  if (steps.some(({ current }) => !session.story.nodes[current])) return [];
  return steps.map((step, i) => (i === steps.length - 1 ? asText(step, text) : step));
}

/** `changes`: what was replaced by what, in the old text's places.
    @type {(text: string, at: number, changes?: [from: number, to: number, by: string][]) => void} */
export function typed(text, at) {
  Object.assign(session, { text, at });
  clearTimeout(typing);
  typing = setTimeout(commit, TYPING_MS);
  changed("text");
}

/** Follows the caret, and the selection if it is none.
    @type {(at: number, to?: number) => void} */
export function movedTo(at, to = at) {
  const before = session.selected;
  Object.assign(session, { at, selected: to > at ? [at, to] : null });
  if (!before !== !session.selected) changed("selected");
}

/** Writes the typed text into the tree. */
export function commit() {
  clearTimeout(typing);
  typing = undefined;
  const { story, text } = session;
  if (!story || isChat() || text === textOf(story)) return;
  note();
  put(text);
  setPoint(placeOfCaret());
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
  const others = end === at ? path[i].children.filter((id) => id !== path[i + 1]?.id) : [];
  return others.length ? path[i].id : null;
}
export const canUndo = () => past.length > 0;
export const canRedo = () => future.length > 0;
export const undo = () => step(past, future);
export const redo = () => step(future, past);

function step(from, to) {
  commit();
  const wanted = pop(from);
  if (!wanted) return;
  push(to, now());
  const { story } = session;
  story.current = wanted.current;
  if (!isChat()) put(wanted.text);
  keepLater();
  refresh(wanted.at);
  setPoint(isChat() ? null : placeOfCaret());
}

/** Makes a node the end of the text; a candidate that has no text yet is none. */
export function goTo(id) {
  commit();
  const node = session.story.nodes[id];
  if (id === session.story.current || (runOf(node) && !node.text)) return;
  freeze(node);
  note();
  session.story.current = id;
  node.seen = true;
  setPoint(null);
  store.keep(session.story, [node]);
  refresh();
}

/** Node `gone` was joined into another one: undo returns there instead. */
export function redirect(gone, id) {
  for (const was of [...past, ...future]) if (was.current === gone) was.current = id;
}
