// A story as a tree of pieces of text. Pure data: no page, no server, no storage.
//
// The text is the path from the root to `current`. A change within it becomes a node beside the old piece,
// and what stands behind, the tail, moves there as it is: ids, sources, tokens, candidates. The old piece
// stays as a branch that notes its tail, and takes it back when the writer goes there. A node with children
// keeps its text; only the piece that the writer is typing grows before its tail.

import { unescaped } from "../files/emphasis.js";
import { plainOf } from "../files/paragraphs.js";

/** @import { Parts } from "../background/parts.js" */

/** A story; times are milliseconds since 1970, and what names a node is its id.
    @typedef {object} Story
    @property {string} id
    @property {string} name
    @property {string} kind "story" or "chat"
    @property {number} created
    @property {number} changed by the writer, each time at another time
    @property {string} root
    @property {string} current the end of the text
    @property {string} system prompt of a chat
    @property {string[]} scraps the shelf
    @property {[source: string, text: string][][]} [origins] its passages in pieces, if not all the writer's
    @property {string | null} model the name of the chosen one; null: the server's default
    @property {Record<string, TreeNode>} nodes by their ids
    @property {string} [tags]
    @property {string} [banned] phrases that no candidate has, one a line
    @property {string} [lang] the language of its text, as HTML names it
    @property {Partial<Parts>} [parts] what the model reads besides the text
    @property {number | null} [trashed] when it was moved to the trash
    @property {number} [format] of a story that a newer page has stored; none: 1
    @property {Base} [base] */

/** The version of the server that a story was equal to when its `changed` was `at`. `sent`: what was sent
    since, while no answer has come.
    @typedef {{version: string, at: number, sent?: string}} Base */

/** A story without its nodes, as lists and the storage have it.
    @typedef {Omit<Story, "nodes">} Head */

/** A node of a story's tree: a piece of text. Those that a model writes are candidates.
    @typedef {object} TreeNode
    @property {string} id
    @property {string | null} parent null: the root
    @property {string[]} children ids, in their order
    @property {string} text
    @property {string} source "user", "model", or "edit": a candidate that the writer has changed
    @property {number} [born] when it was made
    @property {string} [state] of a candidate: "running", "interrupted", or why it has ended
    @property {Sampling} [sampling] the values with which a candidate was asked for
    @property {Token[] | null} [tokens]
    @property {number} [mean] logprob of tokens that are not here any more
    @property {number} [length] tokens
    @property {number} [seed]
    @property {string} [thoughts] of a model that reasons
    @property {Ref | null} [ref]
    @property {string} [tail] the node that stood behind this one before it moved away
    @property {number} [moved] when it got another parent, last
    @property {string} [replaces] the text that a candidate rewrites
    @property {{model?: number, string?: number}} [ends] candidates that ended at once here, by the cause
    @property {boolean} [pinned]
    @property {boolean} [aside] set aside, or discarded
    @property {boolean} [bookmark]
    @property {boolean} [folded]
    @property {boolean} [seen]
    @property {boolean} [gone] removed from the story; the storage removes it, too */

/** @typedef {Record<string, number | string | boolean | null>} Sampling values of fields, by their names */

/** A token, with the likeliest ones at its place.
    @typedef {{text: string, logprob?: number | null, top?: Token[]}} Token */

/** The server's name for a candidate's text.
    @typedef {object} Ref
    @property {string} id of the request
    @property {number} index of the sequence
    @property {number} from how many tokens behind the sequence's first one the node begins
    @property {boolean} whole the node ends where the sequence ends
    @property {string} [before] hash of the text before the node: the name is of that text only
    @property {string} [model] the one that has it */

/** A change of a text: where, how many characters are replaced, by which, which they were.
    @typedef {[start: number, length: number, by: string, before: string]} Patch */

/** A part of a text and what it becomes, as places of the old text.
    @typedef {[from: number, to: number, by: string]} Change */

/** A node, the parent that it gets or had, and how long that is, should it be cut later.
    @typedef {[id: string, parent: string, length: number]} Move */

/** A piece that was removed, how long its parent was, and its place among the parent's children.
    @typedef {{node: TreeNode, length: number, at: number}} Gone */

/** What writing a text did. `moves`, and pieces that come back, take it back, in this order; `piece`: the
    node in which typing may go on; `place`: where a piece has changed its own text, which they leave.
    @typedef {{nodes: TreeNode[], moves: (Move | Gone)[], piece: string | null, place?: number}} Written */

/** A place in a drawing: nodes without alternatives, which follow each other, are one. `node` is the last.
    @typedef {{node: TreeNode, chain: TreeNode[], x: number, y: number, children: Place[]}} Place */
/** @typedef {{places: Place[], rows: number, columns: number}} Drawing */

/** The fields of a request that say where to go on; `text`: what the model would read, all in all.
    @typedef {{prompt?: string, continue?: Continue, text: string}} PromptFields */
/** @typedef {{id: string, index: number, at?: number}} Continue a candidate, up to its token `at` */

/** @typedef {{text?: string, tokens?: Texts[] | null, top?: Texts[]}} Texts a node, an event or a token */

/** 128 random bits; crypto.randomUUID does not exist on plain http from another machine.
    @type {() => string} */
export const newId = () =>
  Array.from(crypto.getRandomValues(new Uint32Array(4)), (x) => x.toString(36)).join("");

export const TITLE = 1000; // characters, at most; the server stores no longer one

/** A title that is short enough, with its end.
    @type {(name: string, end?: string) => string} */
export const titled = (name, end = "") => [...name].slice(0, TITLE - end.length).join("") + end;

export const FORMAT = 1; // of a story, as files, the server and the browser have it

/** Refuses a story of a newer page, which this one would damage.
    @type {(story: {format?: any, name?: any}) => void} */
export function checkFormat({ format, name }) {
  if (format === undefined || Number(format) <= FORMAT) return;
  throw new Error(
    `“${name}” has the format ${format}, and this page knows formats up to ${FORMAT}: reload the page, or ` +
      "use a newer llama-srb; nothing was changed",
  );
}

const UNNAMED = new Set(["Untitled", "Chat"]);

/** Whether a story still has the name with which it began.
    @type {(head: {name: string}) => boolean} */
export const isUnnamed = ({ name }) => UNNAMED.has(name);

/** The first words of a text, plain, for a story that has no name; a line of marks alone has none.
    @type {(text: string) => string} */
export function firstWords(text) {
  for (const [line] of text.matchAll(/^.*[^\s#>*-].*$/gm)) {
    const words = plainOf(line);
    if (words) return /^(.{0,40}\S)(?!\S)/.exec(words)?.[1] ?? "";
  }
  return "";
}

/** How many words a text has; signs alone, as those of a heading, an item or a scene break, are none.
    @type {(text: string) => number} */
export const countOfWords = (text) => (text.match(/[\p{L}\p{N}]\S*/gu) ?? []).length;

/** The name that a story shows everywhere: its own, or its first words.
    @type {(story: Story) => string} */
export const shownName = (story) => (isUnnamed(story) && firstWords(textOf(story))) || story.name;

/** @type {(name?: string, kind?: string) => Story} */
export function newStory(name = "Untitled", kind = "story") {
  /** @type {TreeNode} */
  const root = { id: newId(), parent: null, children: [], text: "", source: "user" };
  const now = Date.now();
  return {
    id: newId(),
    name: titled(name),
    kind,
    created: now,
    changed: now,
    root: root.id,
    current: root.id,
    system: "",
    scraps: [],
    model: null, // the name of the chosen one; null: the server's default
    nodes: { [root.id]: root },
  };
}

/** Adds a node under `parent`, behind its sibling `after` if given.
    @type {(story: Story, parent: string, fields: Partial<TreeNode>, after?: string | null) => TreeNode} */
export function addNode(story, parent, fields, after = null) {
  const node = { id: newId(), parent, children: [], text: "", source: "model", born: Date.now(), ...fields };
  const siblings = story.nodes[parent].children;
  siblings.splice(after === null ? siblings.length : siblings.indexOf(after) + 1, 0, node.id);
  story.nodes[node.id] = node;
  return node;
}

/** Puts children of a node in this order, at the places that they have among the others.
    @type {(story: Story, parent: string, nodes: TreeNode[]) => void} */
export function inOrder(story, parent, nodes) {
  const { children } = story.nodes[parent];
  const ordered = nodes.map(({ id }) => id).filter((id) => children.includes(id));
  const moved = new Set(ordered);
  story.nodes[parent].children = children.map((id) =>
    moved.has(id) ? /** @type {string} */ (ordered.shift()) : id,
  );
}

/** Removes a node without text, and marks it for the storage, which removes it there.
    @type {(story: Story, node: TreeNode) => void} */
export function drop(story, node) {
  const parent = /** @type {string} */ (node.parent);
  const siblings = story.nodes[parent].children;
  const at = siblings.indexOf(node.id);
  if (at >= 0) siblings.splice(at, 1);
  if (story.current === node.id) story.current = parent;
  forget(story, node);
}

/** @type {(story: Story, node: TreeNode) => void} */
function forget(story, node) {
  delete story.nodes[node.id];
  node.gone = true;
}

/** The nodes that are reached from a story's root: its tree, without what was removed from it.
    @type {<T extends TreeNode>(root: string, nodes: Record<string, T>) => Record<string, T>} */
export function reached(root, nodes) {
  /** @type {Record<string, any>} */
  const found = {};
  for (const work = [root]; work.length; ) {
    const node = nodes[/** @type {string} */ (work.pop())];
    if (!node || found[node.id]) continue;
    found[node.id] = node;
    work.push(...node.children);
  }
  return found;
}

/** From the root to a node.
    @type {(story: Story, id?: string) => TreeNode[]} */
export function pathTo(story, id = story.current) {
  /** @type {TreeNode[]} */
  const path = [];
  for (let node = story.nodes[id]; node; node = story.nodes[node.parent ?? ""]) path.push(node);
  return path.reverse();
}

/** @type {(story: Story, id?: string) => string} */
export const textOf = (story, id = story.current) =>
  pathTo(story, id)
    .map((node) => node.text)
    .join("");

/** @type {(story: Story, id: string) => TreeNode[]} */
export const childrenOf = (story, id) => story.nodes[id].children.map((child) => story.nodes[child]);

/** A node and those that a cut in it changes: its children, and theirs.
    @type {(story: Story, id: string) => TreeNode[]} */
export const around = (story, id) => [
  story.nodes[id],
  ...childrenOf(story, id).flatMap((child) => [child, ...childrenOf(story, child.id)]),
];

/** Cuts a node in two: it keeps the first `offset` characters, a new child has the rest and the children.
    @type {(story: Story, id: string, offset: number) => TreeNode | null} */
export function split(story, id, offset) {
  const node = story.nodes[id];
  if (offset <= 0 || offset >= node.text.length) return null;
  const { tokens, replaces: _, moved: __, ...fields } = node; // the passage is the first part's, as the move
  /** @type {TreeNode} */
  const rest = { ...fields, id: idOfRest(story, id, offset), parent: id, text: node.text.slice(offset) };
  for (const child of rest.children) story.nodes[child].parent = rest.id;
  const at = tokens ? tokensWithin(tokens, offset) : null;
  if (tokens) {
    rest.tokens = at === null ? null : tokens.slice(at);
    node.tokens = at === null ? null : tokens.slice(0, at);
  }
  if (node.ref) {
    const before = node.ref.before && hashed(node.text.slice(0, offset), node.ref.before);
    rest.ref = { ...node.ref, from: node.ref.from + (at ?? 0), whole: node.ref.whole && at !== null, before };
    node.ref = at === null ? null : { ...node.ref, whole: false };
  }
  Object.assign(node, { text: node.text.slice(0, offset), children: [rest.id], pinned: false });
  node.length = rest.length = node.ends = node.tail = undefined;
  story.nodes[rest.id] = rest;
  if (story.current === id) story.current = rest.id;
  return rest;
}

/** Two devices that cut a node at one place call the rest alike, so that it is one node when they meet.
    @type {(id: string, offset: number) => string} */
function nameOfRest(id, offset) {
  const { whole, from } = partOf(id);
  return `${whole}__${from + offset}`;
}

/** Which node a part was cut off, and where.
    @type {(id: string) => {whole: string, from: number}} */
function partOf(id) {
  const [, whole, from] = /^(.*)__(\d+)$/.exec(id) ?? [id, id, "0"];
  return { whole, from: Number(from) };
}

/** Whether a node is another one or was cut off it, by their ids.
    @type {(id: string, other: string) => boolean} */
export const isPartOf = (id, other) => partOf(id.replace(/_+$/, "")).whole === partOf(other).whole;

/** @type {(story: Story, id: string, offset: number) => string} */
function idOfRest(story, id, offset) {
  let rest = nameOfRest(id, offset);
  while (story.nodes[rest]) rest += "_"; // pieces that were joined had cuts of their own
  return rest.length > MOST_ID ? newId() : rest;
}

/** Where a node that was so long ends, should it have been cut since.
    @type {(story: Story, id: string, length: number) => string} */
export function endOf(story, id, length) {
  for (let [node, left] = [story.nodes[id], length]; ; ) {
    const rest = restOf(story, node);
    if (left <= node.text.length || !rest) return node.id;
    left -= node.text.length;
    node = rest;
  }
}

/** The child that was cut off a node, which may have become longer or shorter since.
    @type {(story: Story, node: TreeNode) => TreeNode | undefined} */
function restOf(story, { id, children }) {
  const same = [partOf(id), partOf(id.replace(/_+$/, ""))]; // its name was lengthened, or is that of a whole
  const parts = children.map((child) => ({ child, ...partOf(child.replace(/_+$/, "")) }));
  const later = parts.filter((part) => same.some((one) => part.whole === one.whole && part.from > one.from));
  const first = later.sort((a, b) => a.from - b.from)[0];
  return first && story.nodes[first.child];
}

const MOST_ID = 100; // characters; the server and files take no longer ones

/** How many tokens make up exactly the first `offset` characters; null when a token crosses that place.
    @type {(tokens: Token[], offset: number) => number | null} */
function tokensWithin(tokens, offset) {
  let length = 0;
  for (let i = 0; i < tokens.length; i++) {
    if (length >= offset) return length === offset ? i : null;
    length += tokens[i].text.length;
  }
  return length === offset ? tokens.length : null;
}

/** The node on the path that contains a character of the text, and the character's offset in it.
    @type {(story: Story, offset: number) => {node: TreeNode, at: number}} */
function locate(story, offset) {
  const path = pathTo(story);
  for (const node of path) {
    if (offset <= node.text.length) return { node, at: offset };
    offset -= node.text.length;
  }
  const last = story.nodes[story.current];
  return { node: last, at: last.text.length };
}

/** Puts an empty root above the root, so that another text can begin the story; returns it.
    @type {(story: Story, id?: string) => TreeNode} */
export function raise(story, id = newId()) {
  const above = { id, parent: null, children: [story.root], text: "", source: "user" };
  story.nodes[above.id] = above;
  story.root = story.nodes[story.root].parent = above.id;
  return above;
}

/** Cuts the path at an offset of the text, splitting a node if needed; returns the node that ends there.
    @type {(story: Story, offset: number) => TreeNode} */
export function cutAt(story, offset) {
  const { node, at } = locate(story, offset);
  if (at === 0 && node.text) return raise(story);
  split(story, node.id, at);
  return node;
}

/** The same at several offsets, the last first. `changed`: all nodes that the cuts have changed, of which the
    next one may lead away.
    @type {(story: Story, offsets: number[]) => {ends: string[], changed: TreeNode[]}} */
export function cutsAt(story, offsets) {
  const changed = new Set();
  const ends = offsets.map((offset) => {
    const { id } = cutAt(story, offset);
    for (const one of around(story, id)) changed.add(one);
    return id;
  });
  return { ends, changed: [...changed] };
}

/** Where the text before an offset ends without the writer's last spaces and tabs. They are held back, since
    a word and the space before it are one token.
    @type {(story: Story, offset: number) => number} */
export function heldBack(story, offset) {
  let end = textOf(story).length;
  for (const node of pathTo(story).reverse()) {
    const begin = end - node.text.length;
    if (begin < offset) {
      const text = node.text.slice(0, offset - begin);
      const held = node.source === "model" ? 0 : (/[ \t]*$/.exec(text)?.[0].length ?? 0);
      if (held < text.length) return Math.min(end, offset) - held;
    }
    end = begin;
  }
  return offset;
}

/** Whether a node is nothing but spaces of the writer, held back or typed by chance.
    @type {(node: TreeNode) => boolean} */
export const isBlank = ({ source, text }) => source === "user" && /^[ \t]*$/.test(text);

/** Whether text follows a node, other than the space of a choice that was undone.
    @type {(story: Story, node: TreeNode) => boolean} */
export const goesOn = (story, { id }) =>
  childrenOf(story, id).some((child) => child.children.length || !isBlank(child));

/** The nodes behind a node on the path: spaces that were held back before the caret `at`, and the first other
    one.
    @type {(story: Story, id: string, at: number) => {held?: TreeNode, next?: TreeNode}} */
function nextTo(story, id, at) {
  const path = pathTo(story);
  const i = path.findIndex((node) => node.id === id);
  const [next, other] = i < 0 ? [] : path.slice(i + 1);
  const isHeld = next && isBlank(next) && (!other || at === textOf(story, next.id).length);
  return isHeld ? { held: next, next: other } : { next };
}

/** The first node behind a node on the path, without spaces that were held back before the caret `at`.
    @type {(story: Story, id: string, at: number) => TreeNode | undefined} */
export const behind = (story, id, at) => nextTo(story, id, at).next;

/** The space that the writer has typed behind the word with which a node ends, before the caret `at`.
    @type {(story: Story, id: string, at: number) => TreeNode | null} */
export function spaceBehind(story, id, at) {
  const { held } = nextTo(story, id, at);
  return held?.text && /\S$/.test(textOf(story, id)) ? held : null;
}

/** @type {(story: Story, id: string, at: number) => boolean} */
export const isSpaced = (story, id, at) => spaceBehind(story, id, at) !== null;

/** The text from a node on the path to its end.
    @type {(story: Story, node: TreeNode | null | undefined) => string} */
export function textFrom(story, node) {
  const path = node ? pathTo(story) : [];
  const at = node ? path.indexOf(node) : 0;
  return (at < 0 ? [] : path.slice(at)).map(({ text }) => text).join("");
}

// ---- moving a tail -----------------------------------------------------------------------------------

/** Whether a node is another one or behind it.
    @type {(story: Story, id: string | null, other: string) => boolean} */
function isWithin(story, id, other) {
  for (let at = id; at; at = story.nodes[at]?.parent) if (at === other) return true;
  return false;
}

/** Gives a node another parent, with all that is behind it; returns what has changed, nothing if that cannot
    be. The piece that it leaves notes its tail, unless it stands before it as well.
    @type {(story: Story, id: string, to: string) => TreeNode[]} */
export function move(story, id, to) {
  const [node, target] = [story.nodes[id], story.nodes[to]];
  const from = story.nodes[node?.parent ?? ""];
  if (!from || !target || from === target || isWithin(story, to, id)) return [];
  from.children = from.children.filter((child) => child !== id);
  if (!isWithin(story, to, from.id)) from.tail = id;
  if (target.tail === id) target.tail = undefined;
  const before = target.children.findIndex((child) => isWithin(story, from.id, child)); // where it was once
  target.children.splice(before < 0 ? target.children.length : before, 0, id);
  Object.assign(node, { parent: to, moved: Math.max(Date.now(), (node.moved ?? 0) + 1) });
  return [node, from, target];
}

/** Brings back a piece that was removed; returns what has changed.
    @type {(story: Story, gone: Gone) => TreeNode[]} */
export function bringBack(story, { node, length, at }) {
  if (story.nodes[node.id] || !story.nodes[node.parent ?? ""]) return [];
  const parent = story.nodes[endOf(story, /** @type {string} */ (node.parent), length)];
  const back = { ...node, parent: parent.id, children: [] };
  parent.children.splice(at, 0, back.id);
  story.nodes[back.id] = back;
  return [parent, back];
}

/** A move that takes a node to where it is now.
    @type {(story: Story, node: TreeNode) => Move} */
export function moveTo(story, { id, parent }) {
  const to = story.nodes[parent ?? ""];
  return [id, to.id, to.text.length];
}

/** What goes along to a node that is not on the path: the tail that it had, as far as it is in the text now.
    A first node that was changed itself is the piece in its place.
    @type {(story: Story, id: string) => TreeNode | null} */
export function tailOf(story, id) {
  const path = pathTo(story);
  const there = new Map(path.map((node, i) => [node.id, i]));
  if (there.has(id)) return null;
  let tail = story.nodes[story.nodes[id]?.tail ?? ""];
  /** @type {TreeNode | undefined} */
  let first;
  for (const known = new Set(); tail && !known.has(tail); tail = story.nodes[tail.tail ?? ""]) {
    known.add(tail);
    if (there.has(tail.id)) {
      first ??= tail;
      return isWithin(story, id, first.id) ? null : first;
    }
    const above = there.get(tail.parent ?? "");
    if (above === undefined) return null;
    first ??= path[above + 1];
  }
  return null;
}

// ---- writing -----------------------------------------------------------------------------------------

/** Writes changes of the text, which are in order and don't overlap. Each becomes a piece beside the old one,
    to which the text behind it moves. Where no text is behind, it is a branch; text that no other node
    depends on is changed in place, and so is `piece`, in which the writer is typing. Text that is there
    already is found again, with its candidates, but not if `isBack`: then it is the writer's, as it was. A
    piece that is not needed any more is removed.
    @type {(story: Story, changes: Change[], piece?: string | null, isBack?: boolean) => Written} */
export function write(story, changes, piece = null, isBack = false) {
  /** @type {Set<TreeNode>} */
  const nodes = new Set();
  /** @type {(Move | Gone)[]} */
  const moves = [];
  /** @type {Draft} */
  const draft = { story, nodes, moves, isBack, piece: null };
  const isTyping = changes.length === 1;
  const rest = changes.filter(([from, to, by]) => from < to || by);
  while (rest.length) writeLast(draft, rest, isTyping ? piece : null);
  const { piece: typed, place } = draft;
  const last = isTyping ? { piece: typed, place } : { piece: null };
  return { nodes: [...nodes], moves: moves.reverse(), ...last };
}

/** @typedef {{story: Story, nodes: Set<TreeNode>, moves: (Move | Gone)[], isBack: boolean,
      piece: string | null, place?: number}} Draft */

/** Takes the last change from a list and writes it, and those before it in the same piece, if that grows.
    @type {(draft: Draft, changes: Change[], piece: string | null) => void} */
function writeLast(draft, changes, piece) {
  const { story } = draft;
  const path = pathTo(story);
  const [from, to, by] = /** @type {Change} */ (changes.pop());
  let end = 0;
  for (const [i, node] of path.entries()) {
    const begin = end;
    end += node.text.length;
    if (from < begin || to > end || !canGrow(path, i, piece)) continue;
    const parts = [by, node.text.slice(to - begin)]; // backwards: a long text is made once
    let start = from;
    for (let next = changes.at(-1); next && next[0] >= begin; next = changes.at(-1)) {
      parts.unshift(next[2], node.text.slice(next[1] - begin, start - begin));
      [start] = next;
      changes.pop();
    }
    draft.place = start;
    return grow(draft, node, path[i + 1], copied(node.text.slice(0, start - begin) + parts.join("")));
  }
  if (to < end) return replace(draft, from, to, copied(by));
  const parent = from === end ? story.nodes[story.current] : cut(draft, from);
  story.current = putUnder(draft, parent, copied(by)).id;
}

/** A leaf of the writer's, or the piece before the tail that is being typed, on which nothing else depends.
    @type {(path: TreeNode[], i: number, piece: string | null) => boolean} */
function canGrow(path, i, piece) {
  const { id, source, children } = path[i];
  if (source !== "user") return false;
  return i === path.length - 1 ? !children.length : id === piece && children.length === 1;
}

/** Gives a typed piece another text; goes to the one that is there already, or has no text, in its place.
    @type {(draft: Draft, node: TreeNode, tail: TreeNode | undefined, text: string) => void} */
function grow(draft, node, tail, text) {
  const { story, nodes, moves, isBack } = draft;
  const known = node.parent && !isBack && spelling(story, node.parent, text, (one) => one !== node);
  if (!node.parent || !known) {
    draft.piece = node.id;
    Object.assign(node, { text, ends: undefined });
    nodes.add(node);
    return;
  }
  const parent = story.nodes[node.parent];
  for (const one of [parent, known, node]) nodes.add(one);
  if (tail) moveTail(draft, tail, known.id);
  else story.current = known.id;
  moves.push({ node: { ...node }, length: parent.text.length, at: parent.children.indexOf(node.id) });
  drop(story, node);
}

/** @type {(draft: Draft, tail: TreeNode, to: string) => void} */
function moveTail({ story, nodes, moves }, tail, to) {
  moves.push(moveTo(story, tail));
  for (const one of move(story, tail.id, to)) nodes.add(one);
}

/** Puts a piece in place of some text, and the text behind it there. Without a text of its own it is the node
    before, so that a deletion takes an insertion back.
    @type {(draft: Draft, from: number, to: number, by: string) => void} */
function replace(draft, from, to, by) {
  const last = cut(draft, to);
  const path = pathTo(draft.story);
  const tail = path[path.indexOf(last) + 1];
  const parent = from === to ? last : cut(draft, from);
  moveTail(draft, tail, putUnder(draft, parent, by, tail).id);
}

/** @type {(draft: Draft, at: number) => TreeNode} */
function cut({ story, nodes }, at) {
  const node = cutAt(story, at);
  for (const one of around(story, node.id)) nodes.add(one);
  return node;
}

/** The node with this text behind another one; not within `without`.
    @type {(draft: Draft, parent: TreeNode, text: string, without?: TreeNode | null) => TreeNode} */
function putUnder(draft, parent, text, without = null) {
  const { story, isBack } = draft;
  /** @type {(node: TreeNode) => boolean} */
  const fits = (node) => node !== without && (!isBack || node.source === "user");
  const known = spelling(story, parent.id, text, fits);
  const node = known ?? addNode(story, parent.id, { text, source: "user" });
  draft.piece = known ? null : node.id;
  for (const one of [parent, node]) draft.nodes.add(one);
  return node;
}

/** The node under `id`, or `id` itself, where exactly this text ends, by nodes that fit; null: there is none.
    @type {(story: Story, id: string, text: string, fits?: (node: TreeNode) => boolean) => TreeNode | null} */
export const spelling = (story, id, text, fits) => spellings(story, id, text, fits).next().value ?? null;

/** All these nodes.
    @type {(story: Story, id: string, text: string, fits?: (node: TreeNode) => boolean)
      => Generator<TreeNode, undefined>} */
export function* spellings(story, id, text, fits = () => true) {
  /** @type {[id: string, at: number][]} */
  const work = [[id, 0]];
  for (let next = work.pop(); next; next = work.pop()) {
    const [at, length] = next;
    if (length === text.length) {
      yield story.nodes[at];
      continue;
    }
    const nexts = childrenOf(story, at).filter(
      (node) => node.text && text.startsWith(node.text, length) && fits(node),
    );
    for (const node of nexts.reverse()) work.push([node.id, length + node.text.length]);
  }
}

/** The text in pieces: the nodes on the path, and in their midst what is typed but not in the tree yet.
    @type {(story: Story, text: string) => [node: TreeNode | null, text: string][]} */
export function spans(story, text) {
  const path = pathTo(story);
  let [i, begin] = [0, 0];
  for (; i < path.length && text.startsWith(path[i].text, begin); i++) begin += path[i].text.length;
  let [j, end] = [path.length, text.length];
  for (; j > i; j--) {
    const from = end - path[j - 1].text.length;
    if (from < begin || !text.startsWith(path[j - 1].text, from)) break; // endsWith() is slow
    end = from;
  }
  const changed = spansOf(path.slice(i, j), text.slice(begin, end));
  return [...path.slice(0, i).map(whole), ...changed, ...path.slice(j).map(whole)];
}

/** @type {(node: TreeNode) => [TreeNode, string]} */
const whole = (node) => [node, node.text];

/** The same for some nodes, all of which the change touches.
    @type {(nodes: TreeNode[], text: string) => [node: TreeNode | null, text: string][]} */
function spansOf(nodes, text) {
  const [at, length, by] = patchOf(nodes.map((node) => node.text).join(""), text);
  /** @type {[TreeNode | null, string][]} */
  const heads = [];
  /** @type {[TreeNode | null, string][]} */
  const rests = [];
  let begin = 0;
  for (const node of nodes) {
    heads.push([node, node.text.slice(0, Math.max(0, at - begin))]);
    rests.push([node, node.text.slice(Math.max(0, at + length - begin))]);
    begin += node.text.length;
  }
  heads.push([null, by]);
  return [...heads, ...rests].filter(([, part]) => part);
}

/** The node that a node can be joined to: its parent, unless that is the root, has another child, or is of
    another source, since a piece has one.
    @type {(story: Story, id: string) => TreeNode | null} */
export function joinable(story, id) {
  const parent = story.nodes[story.nodes[id].parent ?? ""];
  const alone = parent?.parent && parent.children.length === 1 && parent.id !== story.current;
  return alone && parent.source === story.nodes[id].source ? parent : null;
}

/** Joins a node with its parent under the node's id, where it can be; returns what has changed.
    @type {(story: Story, id: string) => TreeNode[]} */
export function join(story, id) {
  const [node, gone] = [story.nodes[id], joinable(story, id)];
  if (!gone?.parent) return [];
  const above = story.nodes[gone.parent];
  above.children[above.children.indexOf(gone.id)] = id;
  const tokens = gone.tokens && node.tokens ? [...gone.tokens, ...node.tokens] : undefined;
  const { replaces, moved } = gone;
  const fields = { parent: above.id, text: gone.text + node.text, tokens, replaces, moved, ref: undefined };
  Object.assign(node, fields);
  const before = Object.values(story.nodes).filter(({ tail }) => tail === gone.id);
  for (const one of before) one.tail = id;
  forget(story, gone);
  return [above, node, gone, ...before];
}

/** @type {(one: Texts) => boolean | undefined} */
const hasReturns = ({ text, tokens, top }) =>
  text?.includes("\r") || tokens?.some(hasReturns) || top?.some(hasReturns);

/** A node, an event or a token without carriage returns, which the text field does not have.
    @type {<T extends Texts>(one: T) => T} */
export function withoutReturns(one) {
  if (!hasReturns(one)) return one;
  const { text, tokens, top } = one;
  return {
    ...one,
    text: text?.replaceAll("\r", ""),
    ...(tokens && { tokens: tokens.map((token) => withoutReturns(token)) }),
    ...(top && { top: top.map((token) => withoutReturns(token)) }),
  };
}

/** A copy of a part of a text: the part itself keeps the whole text in the browser's memory.
    @type {<T>(part: T) => T} */
export const copied = (part) => JSON.parse(JSON.stringify(part));

/** What makes text b of a: [where, how many characters are replaced, by which, which they were]. It begins at
    `most` or before.
    @type {(a: string, b: string, most?: number) => Patch} */
export function patchOf(a, b, most = Infinity) {
  const start = Math.min(commonPrefix(a, b), most);
  const left = Math.min(a.length, b.length) - start;
  const end = agreement(left, (from, to) => tail(a, from, to) === tail(b, from, to));
  const [before, by] = [a, b].map((text) => copied(text.slice(start, text.length - end)));
  return [start, before.length, by, before];
}

/** The same, but what changed is at `place` or before where more than one place can be meant.
    @type {(a: string, b: string, place?: number) => Patch} */
export function patchNear(a, b, place = Infinity) {
  const least = patchOf(a, b);
  const here = place < least[0] ? patchOf(a, b, place) : least;
  return here[1] > least[1] ? least : here;
}

/** Characters of a text's end, counted from there.
    @type {(text: string, from: number, to: number) => string} */
const tail = (text, from, to) => text.slice(text.length - to, text.length - from);

/** How far two texts agree, up to `most` characters; long stretches are compared at once.
    @type {(most: number, isSame: (from: number, to: number) => boolean) => number} */
function agreement(most, isSame) {
  let end = 0;
  for (let stride = STRIDE; stride >= 1; stride /= 16)
    while (end + stride <= most && isSame(end, end + stride)) end += stride;
  return end;
}

const STRIDE = 4096; // a power of 16

/** A place of text a in text b: what is behind a change goes along with the text there.
    @type {(at: number, a: string, b: string) => number} */
export function placeAfter(at, a, b) {
  const [start, length, by] = patchOf(a, b);
  if (at <= start) return at;
  return at < start + length ? apart(b, Math.min(at, start + by.length)) : at - length + by.length;
}

/** What the writer has just done to make text b of a; the caret is at `at`. Of equal characters side by side
    it is the one before the caret that was typed.
    @type {(a: string, b: string, at: number) => Change} */
export function changeOf(a, b, at) {
  const [start, length, by] = patchNear(a, b, Math.max(0, at - Math.max(0, b.length - a.length)));
  return [start, start + length, by];
}

/** The text after such changes.
    @type {(text: string, changes: Change[]) => string} */
export function rewritten(text, changes) {
  let end = 0;
  const parts = changes.flatMap(([from, to, by]) => {
    const kept = text.slice(end, from);
    end = to;
    return [kept, by];
  });
  return [...parts, text.slice(end)].join("");
}

/** One change in place of two, of which the second is of the text behind the first; null if they don't meet.
    @type {(first: Change, second: Change) => Change | null} */
export function composed([from, to, by], [start, end, text]) {
  if (start > from + by.length || end < from) return null;
  const [head, rest] = [by.slice(0, Math.max(0, start - from)), by.slice(Math.max(0, end - from))];
  const behind = Math.max(0, end - from - by.length);
  return [Math.min(from, start), to + behind, head + text + rest];
}

/** The text after such a change; null if it is another text.
    @type {(text: string, patch: Patch) => string | null} */
export function patched(text, [start, length, by, before]) {
  const end = start + length;
  return text.slice(start, end) === before ? text.slice(0, start) + by + text.slice(end) : null;
}

/** @type {(a: string, b: string) => number} */
function commonPrefix(a, b) {
  /** @type {(from: number, to: number) => boolean} */
  const same = (from, to) => a.slice(from, to) === b.slice(from, to);
  const i = agreement(Math.min(a.length, b.length), same);
  return apart(a, i);
}

/** A place that is not between the halves of a surrogate pair.
    @type {(text: string, at: number) => number} */
function apart(text, at) {
  const half = text.charCodeAt(at - 1);
  return half >= 0xd800 && half < 0xdc00 ? at - 1 : at;
}

/** The prompt fields of a request at a node: the candidate to continue exactly, or the whole text. A name is
    that of a text with all that stood before it, so it counts only where the same text stands there. `usable`
    says whether the server can continue what a `ref` names.
    @type {(story: Story, id: string, usable: (ref: Ref) => boolean) => PromptFields} */
export function promptFor(story, id, usable) {
  const path = pathTo(story, id);
  const text = unescaped(path.map((node) => node.text).join(""));
  let before = hashed("");
  const fits = path.map(({ ref, text }) => {
    const isSame = ref?.before === before;
    before = hashed(text, before);
    return isSame;
  });
  let rest = "";
  for (let i = path.length - 1; i >= 0; i--) {
    const { ref } = path[i];
    const named = ref && fits[i] && usable(ref) ? nameOf(path[i]) : null;
    if (named) return { prompt: unescaped(rest) || undefined, continue: named, text };
    rest = path[i].text + rest;
  }
  return { prompt: text, text };
}

/** A hash of 64 bits of a text; with `before`, the hash of another text, that of both.
    @type {(text: string, before?: string) => string} */
export function hashed(text, before = "0.0") {
  let [a, b] = before.split(".").map((part) => Number.parseInt(part, 36));
  for (let i = 0; i < text.length; i++) {
    const unit = text.charCodeAt(i) + 1;
    a = Math.imul(a ^ unit, 0x9e3779b1);
    b = Math.imul(b ^ unit, 0x5f356495);
    a = (a << 13) | (a >>> 19);
    b = (b << 17) | (b >>> 15);
  }
  return `${(a >>> 0).toString(36)}.${(b >>> 0).toString(36)}`;
}

/** @type {(node: TreeNode) => Continue | null} */
function nameOf({ ref, tokens, text }) {
  if (!ref?.id) return null;
  if (ref.whole) return { id: ref.id, index: ref.index };
  if (!tokens?.length || tokens.map((token) => token.text).join("") !== text) return null;
  return { id: ref.id, index: ref.index, at: ref.from + tokens.length };
}

/** Mean of the logprobs of a node's tokens.
    @type {(node: Pick<TreeNode, 'tokens' | 'mean'>) => number | null} */
export function meanLogprob({ tokens, mean }) {
  if (!tokens?.length) return mean ?? null;
  return tokens.reduce((sum, token) => sum + (token.logprob ?? 0), 0) / tokens.length;
}

/** Places of nodes for a drawing: columns by depth, leaves in rows of their own. Nodes that follow each other
    without alternatives are one place, which ends where the text ends, or at a bookmark or a fold.
    @type {(story: Story, shown: (node: TreeNode) => unknown, top?: string) => Drawing} */
export function layout(story, shown, top = story.root) {
  /** @type {Place[]} */
  const places = [];
  let [rows, columns] = [0, 0];
  /** @type {(node: TreeNode) => TreeNode[]} */
  const below = (node) => (node.folded ? [] : childrenOf(story, node.id).filter(shown));
  /** @type {(chain: TreeNode[]) => TreeNode[]} */
  const lengthened = (chain) => {
    for (let node = chain[0]; ; chain.push(node)) {
      const [next, ...others] = below(node);
      const ends = node.bookmark || node.id === story.current || node.id === story.root;
      if (ends || !next || others.length || !next.aside !== !node.aside) return chain;
      node = next;
    }
  };
  /** @type {{first: TreeNode, above: Place | null}[]} */
  const work = [{ first: story.nodes[top], above: null }];
  for (let next = work.pop(); next; next = work.pop()) {
    const { first, above } = next;
    const chain = lengthened([first]);
    const node = chain[chain.length - 1];
    /** @type {Place} */
    const place = { node, chain, x: above ? above.x + 1 : 0, y: 0, children: [] };
    places.push(place);
    above?.children.push(place);
    columns = Math.max(columns, place.x + 1);
    const children = below(node);
    if (!children.length) place.y = rows++;
    for (const child of children.reverse()) work.push({ first: child, above: place });
  }
  for (const place of places.toReversed()) {
    const { children } = place;
    if (children.length) place.y = (children[0].y + children[children.length - 1].y) / 2;
  }
  return { places, rows, columns };
}

/** Words of two texts in order: [kind, word], kind "same", "gone" or "new".
    @type {(a: string, b: string) => [kind: string, word: string][]} */
export function wordDiff(a, b) {
  const [x, y] = [a, b].map((text) => text.match(/\s*\S+/g) ?? []);
  const longest = Array.from({ length: x.length + 1 }, () => new Uint16Array(y.length + 1));
  for (let i = x.length - 1; i >= 0; i--)
    for (let j = y.length - 1; j >= 0; j--)
      longest[i][j] =
        x[i] === y[j] ? longest[i + 1][j + 1] + 1 : Math.max(longest[i + 1][j], longest[i][j + 1]);
  /** @type {[kind: string, word: string][]} */
  const words = [];
  for (let i = 0, j = 0; i < x.length || j < y.length; ) {
    if (i < x.length && j < y.length && x[i] === y[j] && ++i) words.push(["same", y[j++]]);
    else if (j >= y.length || (i < x.length && longest[i + 1][j] >= longest[i][j + 1]))
      words.push(["gone", x[i++]]);
    else words.push(["new", y[j++]]);
  }
  return words;
}
