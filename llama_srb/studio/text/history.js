// Typing and undo: what was typed becomes part of the tree, and every change of the text can be undone.

import { freeze, runOf } from "../candidates/stopping.js";
import { isChat, refresh, session, setPoint } from "../story/session.js";
import * as store from "../story/store.js";
import {
  bringBack,
  changeOf,
  composed,
  copied,
  endOf,
  heldBack,
  move,
  moveTo,
  patched,
  patchNear,
  patchOf,
  pathTo,
  rewritten,
  tailOf,
  textOf,
  write,
} from "../story/tree.js";
import { changed } from "../ui/ui.js";

const TYPING_MS = 400; // the writer's pause that ends an undo step
const MOST_TYPED = 20_000; // characters that undo takes back, step by step
const MOST_OTHERS = 500; // other changes that it takes back
const MOST_TEXT = 1e6; // characters of all changes together
const STEP = 40; // characters of a step of typing, at most
const WORDS = /\s{0,5}\S{1,30}\s{0,5}|\s{1,40}/gu; // a step of typing each
const MOVE = 60; // characters that a move of a tail counts as
const KEEP_MS = 300; // until the steps are stored

/** @import { Change, Gone, Move, Patch, TreeNode, Written } from "../story/tree.js" */

// Undo steps. The last one of a list has its text; each other one has the change from the next one's text to
// its own, so that many steps of a long text are small. Going to a step takes its moves of tails, and brings
// back pieces that were removed, so that it finds what stood there; only what has grown within a piece is
// written again. `length`: that of the text's last node, which may be cut since. `piece`: the one that was
// typed behind the step. Typing goes on in it until something else is done. `place`: where the piece has
// changed; of equal characters side by side only this says which. `typed`: the characters that were typed or
// deleted behind the step. `asked`: the candidates amid the text that were shown.
/** @typedef {{current: string, length?: number, at: number, text?: string, patch?: Patch, asked?: Asked,
      moves?: (Move | Gone)[], piece?: string | null, place?: number, typed?: number}} Step */
/** @type {Step[]} */
let past = [];
/** @type {Step[]} */
let future = [];
/** @type {Change[] | null} */
let pending = null; // what was typed since the text of the tree
/** @type {number | undefined} */
let typing;
/** @type {number | undefined} */
let keeping;

/** @type {() => Step & {text: string}} */
function now() {
  const { story, at } = session;
  const { id, text } = story.nodes[story.current];
  return { current: id, length: text.length, text: textOf(story), at, asked: placeAsked() ?? undefined };
}

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

/** Records the present text for undo; returns the step, which gets the moves that take back what is done
    next.
    @type {() => Step} */
export function note() {
  const step = now();
  push(past, step);
  future.length = 0;
  let [length, characters, others] = [0, 0, 0];
  const cut = past.findLastIndex((one) => {
    length += sizeOf(one);
    characters += one.typed ?? 0;
    others += one.typed ? 0 : 1;
    return length > MOST_TEXT || characters > MOST_TYPED || others > MOST_OTHERS;
  });
  past.splice(0, cut + 1);
  keepLater();
  return step;
}

/** @type {(step: Step) => number} */
function sizeOf({ patch: [, , by, before] = [0, 0, "", ""], moves = [] }) {
  const removed = moves.flatMap((one) => ("node" in one ? one.node.text : []));
  return [by, before, ...removed].join("").length + MOVE * moves.length;
}

function keepLater() {
  clearTimeout(keeping);
  keeping = setTimeout(keepSteps, KEEP_MS);
}

/** Stores the steps that are not stored yet, as before another story or another tab comes. */
export async function keepSteps() {
  if (keeping) await store.keepHistory(asStored());
}

/** The steps as changes of the story's present text. */
export function asStored() {
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
  pending = null;
  [past, future] = [stored?.past, stored?.future].map((steps) => (fits ? expanded(steps, text) : []));
  changed("text");
}

/** The last step gets its text; none, if a step leads to a node that is gone.
    @type {(steps: Step[], text: string) => Step[]} */
function expanded(steps, text) {
  const known = new Set(Object.keys(session.story.nodes));
  const moves = steps.flatMap((step) => step.moves ?? []);
  for (const one of moves) if ("node" in one) known.add(one.node.id);
  const needed = moves.flatMap((one) => ("node" in one ? (one.node.parent ?? []) : one.slice(0, 2)));
  for (const { current } of steps) needed.push(current);
  if (!needed.every((id) => known.has(String(id)))) return [];
  return steps.map((step, i) => (i === steps.length - 1 ? asText(step, text) : step));
}

/** Takes the text of an editor, with the caret. `changes`: what makes it of the last one, in order; by
    default one part of it, from the first to the last character that differ.
    @type {(text: string, at: number, changes?: Change[]) => void} */
export function typed(text, at, changes = [changeOf(session.text, text, at)]) {
  if (!changes.length) return; // as of a word that an input method gives up
  const isLarge = changes.length > 1 || isPasted(changes[0]);
  const one = pending && !isLarge && composed(pending[0], changes[0]);
  const isFull = one && one[1] - one[0] > STEP; // of deleted text; what is typed is parted when it ends
  if (pending && (!one || isFull)) commit(); // at another place it is another piece
  pending = one && !isFull ? [one] : changes;
  Object.assign(session, { text, at });
  clearTimeout(typing);
  if (isLarge) writePending(true);
  else typing = setTimeout(commit, TYPING_MS);
  changed("text");
}

/** Whether a change is more than a key, or a word of an input method: it is a step of its own.
    @type {(change: Change) => boolean} */
const isPasted = ([from, to, by]) => to - from + by.length > STEP || /\S\s+\S/.test(by);

/** Follows the caret, and the selection if it is none.
    @type {(at: number, to?: number) => void} */
export function movedTo(at, to = at) {
  const before = session.selected;
  Object.assign(session, { at, selected: to > at ? [at, to] : null });
  if (!before !== !session.selected) changed("selected");
}

/** Writes the typed text into the tree. */
export const commit = () => writePending(false);

/** The same; undo takes a change that is `whole` back at once, what was typed word by word.
    @type {(isWhole: boolean) => void} */
function writePending(isWhole) {
  clearTimeout(typing);
  typing = undefined;
  const { story, text } = session;
  const changes = pending;
  pending = null;
  if (!story || isChat()) return;
  const old = textOf(story);
  if (text === old) return;
  const piece = past.at(-1)?.piece;
  const step = note();
  const isKnown = changes && rewritten(old, changes) === text;
  const all = isKnown ? changes : [changeOf(old, text, session.at)];
  const asked = placeAsked();
  const { moves, piece: next, place } = put(all, piece);
  Object.assign(step, { moves, piece: next, place });
  if (all.length === 1) step.at = all[0][1];
  if (!isWhole && all.length === 1) asWords(old, all[0], next);
  keepPoint(asked, all);
  changed("story");
}

/** Makes a step of each word that was typed behind the last step. The tree has them as one piece.
    @type {(old: string, change: Change, piece: string | null) => void} */
function asWords(old, [from, to, by], piece) {
  const { story } = session;
  const { id, text } = story.nodes[story.current];
  const words = (piece && by.match(WORDS)) || [by]; // without a piece, it is text that was there already
  let end = 0;
  for (const [i, word] of words.entries()) {
    const last = past[past.length - 1];
    const before = i ? "" : old.slice(from, to);
    last.typed = word.length + before.length;
    if (i === words.length - 1) break;
    last.patch = [from + end, word.length, copied(before), copied(word)];
    last.text = undefined;
    if (i) last.place = from + end;
    end += word.length;
    const length = id === piece ? text.length - by.length + end : text.length;
    past.push({ current: id, length, at: from + end, piece });
  }
  const last = past[past.length - 1];
  last.text = old.slice(0, from) + by.slice(0, end) + old.slice(end ? to : from);
  if (end) last.place = from + end;
}

/** Writes changes into the tree.
    @type {(changes: Change[], piece?: string | null, isBack?: boolean) => Written} */
function put(changes, piece, isBack) {
  const { story } = session;
  const written = write(story, changes, piece, isBack);
  store.keep(story, written.nodes);
  return written;
}

/** The node that ends at the caret, if it has candidates and text follows: typing may come back to it. */
export function placeOfCaret() {
  const { story, text } = session;
  if (isChat()) return null;
  const at = heldBack(story, session.at);
  if (at >= text.length) return null;
  const path = pathTo(story);
  let end = 0;
  const i = path.findIndex((node) => (end += node.text.length) >= at);
  return end === at && othersAt(path, path[i].id).length ? path[i].id : null;
}

/** Where candidates or rewrites amid the text were asked for last: one of them, and where they stand.
    @typedef {{one: string, end: number, replaces: string | null}} Asked */

/** @type {() => Asked | null} */
function placeAsked() {
  const { story, point, replaces } = session;
  const one = point && othersAt(pathTo(story), point)[0];
  return one ? { one, end: textOf(story, point).length, replaces } : null;
}

/** Keeps the candidates that were asked for while the writer changes other places, and rewrites whatever
    stands in place of their passage. Else those `before` are shown again, or the caret says which ones.
    @type {(asked: Asked | null, changes: Change[], before?: Asked) => void} */
function keepPoint(asked, changes, before) {
  const { end = 0, replaces } = asked ?? {};
  const goesOn = !replaces && changes.some(([from, to]) => from <= end && to >= end);
  if ((goesOn || !showAsked(asked)) && !showAsked(before)) setPoint(placeOfCaret());
}

/** Shows candidates that were asked for, if they stand beside the text.
    @type {(asked: Asked | null | undefined) => boolean} */
function showAsked(asked) {
  const { story } = session;
  const at = asked && story.nodes[asked.one]?.parent; // which a change before it may have cut
  const isThere = !!at && othersAt(pathTo(story), at).includes(asked.one);
  if (isThere) setPoint(at, asked.replaces);
  return isThere;
}

/** The children of a node on a path, without the one there.
    @type {(path: TreeNode[], id: string) => string[]} */
function othersAt(path, id) {
  const i = path.findIndex((node) => node.id === id);
  return i < 0 ? [] : path[i].children.filter((child) => child !== path[i + 1]?.id);
}

export const canUndo = () => past.length > 0;
export const canRedo = () => future.length > 0;
export const undo = () => step(past, future);
export const redo = () => step(future, past);

/** @type {(from: Step[], to: Step[]) => void} */
function step(from, to) {
  commit();
  const wanted = pop(from);
  if (!wanted) return;
  const { text = "" } = wanted;
  const back = now();
  push(to, back);
  const { story, text: was } = session;
  const asked = placeAsked();
  const { moves, nodes } = moved(wanted.moves ?? []);
  const isWithin = wanted.place !== undefined && !wanted.moves?.length; // a piece: the same one is the last
  if (!isWithin) story.current = endOf(story, wanted.current, wanted.length ?? 0);
  store.keep(story, nodes);
  const old = textOf(story);
  const [start, length, by] = patchNear(old, text, wanted.place);
  const written = put(isChat() ? [] : [[start, start + length, by]], wanted.piece, true);
  const place = moves.length ? undefined : written.place; // moves change where that is
  Object.assign(back, { moves: [...written.moves, ...moves], piece: wanted.piece, place });
  keepLater();
  const isAgain = from === future;
  refresh(isAgain ? start + by.length : wanted.at); // what is done again is shown
  if (!isAgain || !showAsked(wanted.asked))
    keepPoint(asked, [changeOf(was, session.text, session.at)], wanted.asked);
}

/** Moves tails and brings pieces back, in order; returns the nodes that have changed, and the moves that take
    back the moves.
    @type {(moves: (Move | Gone)[]) => {nodes: TreeNode[], moves: Move[]}} */
function moved(moves) {
  const { story } = session;
  const nodes = [];
  const back = [];
  for (const one of moves) {
    if ("node" in one) {
      nodes.push(...bringBack(story, one));
      continue;
    }
    const [id, to, length] = one;
    const node = story.nodes[id];
    if (!node?.parent || !story.nodes[to]) continue;
    const was = moveTo(story, node);
    const changed = move(story, id, endOf(story, to, length));
    nodes.push(...changed);
    if (changed.length) back.unshift(was);
  }
  return { nodes, moves: back };
}

/** Moves a tail to a node, as the last thing that a step takes back.
    @type {(step: Step, tail: TreeNode, to: string) => boolean} */
export function takeTail(step, tail, to) {
  const { nodes, moves } = moved([[tail.id, to, 0]]);
  store.keep(session.story, nodes);
  step.moves = [...moves, ...(step.moves ?? [])];
  return moves.length > 0;
}

/** Makes a node the end of the text; a candidate that has no text yet is none. A piece that once had the tail
    of the text takes it along: the text goes on behind it as it does now. */
export function goTo(id) {
  commit();
  const node = session.story.nodes[id];
  if (id === session.story.current || (runOf(node) && !node.text)) return;
  freeze(node);
  const step = note();
  const { story } = session;
  const tail = tailOf(story, id);
  const hasTail = tail && takeTail(step, tail, id);
  if (!hasTail) story.current = id;
  node.seen = true;
  setPoint(null);
  store.keep(story, [node]);
  refresh(textOf(story, id).length);
  if (hasTail) setPoint(placeOfCaret());
}

/** Node `gone` was joined into another one: undo goes there instead.
    @type {(gone: string, id: string) => void} */
export function redirect(gone, id) {
  /** @type {<T extends string | null | undefined>(other: T) => T | string} */
  const now = (other) => (other === gone ? id : other);
  for (const step of [...past, ...future]) {
    step.current = now(step.current);
    if (step.piece === gone) step.piece = null;
    if (step.asked) step.asked.one = now(step.asked.one);
    step.moves = step.moves?.map((one) =>
      "node" in one
        ? { ...one, node: { ...one.node, parent: now(one.node.parent) } }
        : [now(one[0]), now(one[1]), one[2]],
    );
  }
}
