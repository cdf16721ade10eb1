// A story as a tree of pieces of text. Pure data: no page, no server, no storage.
//
// A node with children is never removed and its text never changes: an edit by the writer becomes another
// branch. The text is the path from the root to `current`.

import { unescaped } from "../files/emphasis.js";

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
    @property {string | null} model the name of the chosen one; null: the server's default
    @property {Record<string, TreeNode>} nodes by their ids
    @property {string} [tags]
    @property {Partial<Parts>} [parts] what the model reads besides the text
    @property {number | null} [trashed] when it was moved to the trash
    @property {Base} [base] */

/** The version of the server that a story was equal to when its `changed` was `at`.
    @typedef {{version: string, at: number}} Base */

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
    @property {string} [model] the one that has it */

/** A change of a text: where, how many characters are replaced, by which, which they were.
    @typedef {[start: number, length: number, by: string, before: string]} Patch */

/** A node's place in a drawing.
    @typedef {{node: TreeNode, x: number, y: number, children: Place[]}} Place */
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
  for (let node = story.nodes[id]; node; node = story.nodes[node.parent ?? ""]) path.unshift(node);
  return path;
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
  const { tokens, replaces: _, ...fields } = node; // the passage is the first part's
  /** @type {TreeNode} */
  const rest = { ...fields, id: newId(), parent: id, text: node.text.slice(offset) };
  for (const child of rest.children) story.nodes[child].parent = rest.id;
  const at = tokens ? tokensWithin(tokens, offset) : null;
  if (tokens) {
    rest.tokens = at === null ? null : tokens.slice(at);
    node.tokens = at === null ? null : tokens.slice(0, at);
  }
  if (node.ref) {
    rest.ref = { ...node.ref, from: node.ref.from + (at ?? 0), whole: node.ref.whole && at !== null };
    node.ref = at === null ? null : { ...node.ref, whole: false };
  }
  Object.assign(node, { text: node.text.slice(0, offset), children: [rest.id], pinned: false });
  node.length = rest.length = node.ends = undefined;
  story.nodes[rest.id] = rest;
  if (story.current === id) story.current = rest.id;
  return rest;
}

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
    @type {(story: Story) => TreeNode} */
export function raise(story) {
  const above = { id: newId(), parent: null, children: [story.root], text: "", source: "user" };
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

/** The text behind a node on the path, without spaces that were held back before the caret `at`.
    @type {(story: Story, id: string, at: number) => string} */
export function textBehind(story, id, at) {
  const path = pathTo(story);
  const i = path.findIndex((node) => node.id === id);
  const [next, ...others] = path.slice(i + 1);
  if (!next) return "";
  const rest = others.map((node) => node.text).join("");
  const isHeld = isBlank(next) && (!rest || at >= textOf(story, next.id).length);
  return isHeld ? rest : next.text + rest;
}

/** Writes the typed text: in place where no other node depends on it, else as a branch. Text that is there
    already is found again, with its candidates; a leaf that is not needed any more is removed.
    @type {(story: Story, text: string) => TreeNode[]} */
export function write(story, text) {
  const old = textOf(story);
  if (text === old) return [];
  const same = commonPrefix(old, text);
  const leaf = story.nodes[story.current];
  const before = old.length - leaf.text.length;
  if (leaf.source === "user" && !leaf.children.length && same >= before)
    return writeLeaf(story, leaf, copied(text.slice(before)));
  const parent = same === old.length ? leaf : cutAt(story, same);
  const rest = copied(text.slice(same));
  const added = spelling(story, parent.id, rest) ?? addNode(story, parent.id, { text: rest, source: "user" });
  story.current = added.id;
  return [added, ...around(story, parent.id)];
}

/** @type {(story: Story, leaf: TreeNode, text: string) => TreeNode[]} */
function writeLeaf(story, leaf, text) {
  const known = leaf.parent && spelling(story, leaf.parent, text, leaf);
  if (!known) {
    Object.assign(leaf, { text, ends: undefined });
    return [leaf];
  }
  drop(story, leaf);
  story.current = known.id;
  return [...(leaf.parent ? [story.nodes[leaf.parent]] : []), known, leaf];
}

/** The node under `id`, or `id` itself, where exactly this text ends; null if there is none but `without`.
    @type {(story: Story, id: string, text: string, without?: TreeNode | null) => TreeNode | null} */
export function spelling(story, id, text, without = null) {
  if (!text) return story.nodes[id];
  for (const node of childrenOf(story, id)) {
    const found =
      node !== without && node.text && text.startsWith(node.text)
        ? spelling(story, node.id, text.slice(node.text.length))
        : null;
    if (found) return found;
  }
  return null;
}

/** The node that a node can be joined to: its parent, unless that is the root or has another child.
    @type {(story: Story, id: string) => TreeNode | null} */
export function joinable(story, id) {
  const parent = story.nodes[story.nodes[id].parent ?? ""];
  const alone = parent?.parent && parent.children.length === 1 && parent.id !== story.current;
  return alone ? parent : null;
}

/** Joins a node with its parent under the node's id, where it can be; returns what has changed.
    @type {(story: Story, id: string) => TreeNode[]} */
export function join(story, id) {
  const [node, gone] = [story.nodes[id], joinable(story, id)];
  if (!gone?.parent) return [];
  const above = story.nodes[gone.parent];
  above.children[above.children.indexOf(gone.id)] = id;
  const tokens = gone.tokens && node.tokens ? [...gone.tokens, ...node.tokens] : undefined;
  const { replaces } = gone;
  Object.assign(node, { parent: above.id, text: gone.text + node.text, tokens, replaces, ref: undefined });
  forget(story, gone);
  return [above, node, gone];
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

/** What makes text b of a: [where, how many characters are replaced, by which, which they were].
    @type {(a: string, b: string) => Patch} */
export function patchOf(a, b) {
  const start = commonPrefix(a, b);
  const most = Math.min(a.length, b.length) - start;
  const end = agreement(most, (from, to) => tail(a, from, to) === tail(b, from, to));
  const [before, by] = [a, b].map((text) => copied(text.slice(start, text.length - end)));
  return [start, before.length, by, before];
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
  const half = a.charCodeAt(i - 1); // not between the halves of a surrogate pair
  return i > 0 && half >= 0xd800 && half < 0xdc00 ? i - 1 : i;
}

/** The prompt fields of a request at a node: the candidate to continue exactly, or the whole text. `usable`
    says whether the server can continue what a `ref` names.
    @type {(story: Story, id: string, usable: (ref: Ref) => boolean) => PromptFields} */
export function promptFor(story, id, usable) {
  let rest = "";
  for (const node of pathTo(story, id).reverse()) {
    const named = node.ref && usable(node.ref) ? nameOf(node) : null;
    if (named)
      return { prompt: unescaped(rest) || undefined, continue: named, text: unescaped(textOf(story, id)) };
    rest = node.text + rest;
  }
  const text = unescaped(rest);
  return { prompt: text, text };
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

/** Places of nodes for a drawing: columns by depth, leaves in rows of their own.
    @type {(story: Story, shown: (node: TreeNode) => unknown, top?: string) => Drawing} */
export function layout(story, shown, top = story.root) {
  /** @type {Place[]} */
  const places = [];
  let row = 0;
  /** @type {(id: string, depth: number) => Place} */
  const visit = (id, depth) => {
    const children = story.nodes[id].folded
      ? []
      : story.nodes[id].children.filter((c) => shown(story.nodes[c]));
    /** @type {Place} */
    const place = { node: story.nodes[id], x: depth, y: 0, children: [] };
    places.push(place);
    place.children = children.map((child) => visit(child, depth + 1));
    place.y = children.length ? (place.children[0].y + place.children[children.length - 1].y) / 2 : row++;
    return place;
  };
  visit(top, 0);
  return { places, rows: row, columns: 1 + Math.max(...places.map((place) => place.x)) };
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
