// Two versions of a story become one tree that has the nodes of both. Pure data.
//
// A node that both have is one, which stands where it was moved last. A node that one of them has cut is cut
// in the other one, too; its parts have the same names there.

import { partsOf, readParts } from "../background/parts.js";
import { united } from "./passages.js";
import { cutAt, move, newId, pathTo, raise, spellings, split, textOf } from "./tree.js";

/** @import { Entry, Parts } from "../background/parts.js" */
/** @import { Story, TreeNode } from "./tree.js" */

/** Two versions as one story.
    @typedef {object} Merged
    @property {Story} story has the nodes of both
    @property {number} added how many nodes only theirs had
    @property {{mine: string[], theirs: string[]}} paths the text of each, as nodes of it
    @property {boolean} hasGrown the shelf, the lore or the banned phrases
    @property {boolean} hasMoved nodes of mine stand where theirs has moved them
    @property {string[]} fields the words for what differs, of which the story has mine */

/** What the writer sees of a story besides its tree and its shelf, by the words for it.
    @type {Record<string, (story: Story) => unknown>} */
const FIELDS = {
  name: ({ name }) => name,
  tags: ({ tags }) => tags,
  language: ({ lang }) => lang,
  kind: ({ kind }) => kind,
  "system prompt": ({ system }) => system,
  memory: (story) => partsIn(story).memory,
  summary: (story) => partsIn(story).summary,
  "author’s note": (story) => partsIn(story).note,
  "bounds of the lore": (story) => [partsIn(story).budget, partsIn(story).search],
};

/** @type {(story: Story) => Parts} */
const partsIn = (story) => readParts(partsOf(story));

/** A copy of a story in which nodes may change.
    @type {(story: Story) => Story} */
function copyOf(story) {
  const nodes = Object.values(story.nodes).map((node) => [
    node.id,
    { ...node, children: [...node.children] },
  ]);
  return { ...story, nodes: Object.fromEntries(nodes) };
}

/** Cuts nodes of each version where the other one has cut them; returns the ids of what is cut off.
    @type {(mine: Story, theirs: Story) => Set<string>} */
function cutAlike(mine, theirs) {
  const work = Object.keys(theirs.nodes);
  const all = work.length;
  for (const id of work) {
    const [a, b] = [mine.nodes[id], theirs.nodes[id]];
    if (!a || !b || isSame(a, b)) continue;
    const length = Math.min(a.text.length, b.text.length);
    const [story, long, short] = length < a.text.length ? [mine, a, b] : [theirs, b, a];
    const rest = long.text.startsWith(short.text) ? split(story, id, length) : null;
    if (rest) work.push(rest.id);
  }
  return new Set(work.slice(all));
}

/** Adds to a copy of `mine` what only `theirs` has: nodes, passages of the shelf, entries of the lore.
    @type {(mine: Story, theirs: Story) => Merged} */
export function merge(mine, theirs) {
  const [story, other] = [mine, theirs].map(copyOf);
  const cuts = cutAlike(story, other);
  const { nodes } = story;
  const before = Object.fromEntries(Object.values(nodes).map(({ id, parent }) => [id, parent]));
  /** @type {Map<string, string>} */
  const places = new Map(); // their ids → ids in the tree
  let added = 0;
  /** @type {(node: TreeNode, parent: string) => string} */
  const add = (node, parent) => {
    const id = nodes[node.id] ? newId() : node.id;
    nodes[id] = { ...node, id, parent, children: [] };
    nodes[parent].children.push(id);
    added++;
    return id;
  };
  // A node that both have is no other node as well: it may be moved elsewhere.
  /** @type {(node: TreeNode) => boolean} */
  const isOfBoth = ({ id }) => !!other.nodes[id] && isSame(nodes[id], other.nodes[id]);
  /** @type {(parent: string, text: string) => TreeNode | undefined} */
  const spelt = (parent, text) =>
    text ? [...spellings(story, parent, text)].find((node) => !isOfBoth(node)) : nodes[parent];
  // A node with another text here has its own elsewhere, or in a copy that an earlier merge has made.
  /** @type {(node: TreeNode, parent: string) => string} */
  const placeOf = (node, parent) => {
    const here = nodes[node.id];
    if (here && isSame(here, node)) return node.id;
    const known = here || cuts.has(node.id) ? spelt(parent, node.text) : undefined;
    return known?.id ?? add(node, parent);
  };
  const [top, root] = [nodes[story.root], other.nodes[other.root]];
  const isRaised = root.id !== top.id && !!other.nodes[top.id]; // there, so that a text may stand before mine
  const same = [nodes[root.id], isRaised ? null : top].find((node) => node && isSame(node, root));
  const above = same ?? (top.text || isRaised ? raise(story, nodes[root.id] ? newId() : root.id) : top);
  places.set(root.id, same || !root.text ? above.id : placeOf(root, above.id));
  const work = [...root.children];
  for (const id of work) {
    const node = other.nodes[id];
    places.set(node.id, placeOf(node, /** @type {string} */ (places.get(node.parent ?? ""))));
    work.push(...node.children);
  }
  const paths = { mine: pathTo(story).map(({ id }) => id), theirs: pathIn(story, other, places) };
  /** @type {(node: TreeNode) => boolean} */
  const isDone = ({ id, parent, moved }) => {
    const to = /** @type {string} */ (places.get(parent ?? ""));
    const isThere = nodes[id].parent === to || move(story, id, to).length > 0;
    if (isThere) nodes[id].moved = moved;
    return isThere;
  };
  let left = laterMoves(story, other).filter((node) => isSame(nodes[node.id], node));
  for (let count = -1; left.length !== count; ) {
    count = left.length;
    left = left.filter((node) => !isDone(node)); // a circle, which a later move may open
  }
  const hasMoved = Object.entries(before).some(([id, parent]) => parent && nodes[id].parent !== parent);
  /** @type {(read: (story: Story) => unknown) => boolean} */
  const differs = (read) => asText(read(mine)) !== asText(read(theirs));
  const fields = Object.keys(FIELDS).filter((word) => differs(FIELDS[word]));
  const lore = partsIn(mine).lore;
  const others = partsIn(theirs).lore.filter((entry) => !lore.some(({ id }) => id === entry.id));
  /** @type {(entry: Entry) => boolean} */
  const isOther = (entry) => lore.some((one) => one.id === entry.id && asText(one) !== asText(entry));
  if (partsIn(theirs).lore.some(isOther)) fields.push("entries of the lore");
  if (others.length) story.parts = { ...partsOf(mine), lore: [...lore, ...others] };
  const passages = theirs.scraps.filter((text) => !mine.scraps.includes(text));
  story.scraps = [...mine.scraps, ...passages];
  story.origins = united(mine, theirs);
  const phrases = linesOf(theirs).filter((line) => !linesOf(mine).includes(line));
  if (phrases.length) story.banned = [...linesOf(mine), ...phrases].join("\n");
  const hasGrown = others.length + passages.length + phrases.length > 0;
  return { story, added, paths, hasGrown, hasMoved, fields };
}

/** The path of another version in a tree that has its nodes at these places; a node may be some pieces there.
    @type {(story: Story, other: Story, places: Map<string, string>) => string[]} */
function pathIn(story, other, places) {
  /** @type {string[]} */
  const path = [];
  for (const node of pathTo(other)) {
    const place = /** @type {string} */ (places.get(node.id));
    const isWhole = place === node.id && isSame(story.nodes[place], node);
    const all = isWhole ? [] : pathTo(story, place).map(({ id }) => id);
    const from = all.indexOf(path[path.length - 1]);
    path.push(...(from < 0 ? [place] : all.slice(from + 1)));
  }
  return path;
}

/** Nodes of both that the other version has moved later, the earliest first.
    @type {(story: Story, other: Story) => TreeNode[]} */
const laterMoves = (story, other) =>
  Object.values(other.nodes)
    .filter(({ id, moved = 0, parent }) => parent && story.nodes[id] && moved > (story.nodes[id].moved ?? 0))
    .sort((a, b) => (a.moved ?? 0) - (b.moved ?? 0));

/** Makes the text of a merged story that of one version, whose path it is, wherever the other one has moved
    it. What was typed on behind it is a branch.
    @type {(story: Story, path: string[], text: string) => void} */
export function lay(story, path, text) {
  if (path[0] !== story.root && story.nodes[story.root].text) raise(story);
  let above = story.root;
  for (const id of path) {
    move(story, id, above); // what is before stands there already, so that this makes no circle
    above = id;
  }
  story.current = above;
  if (textOf(story) !== text) story.current = cutAt(story, text.length).id;
}

/** The banned phrases of a story.
    @type {(story: Story) => string[]} */
const linesOf = ({ banned = "" }) => banned.split("\n").filter(Boolean);

/** @type {(value: unknown) => string} */
const asText = (value) => JSON.stringify(value || null);

/** Whether a node of another version needs no place of its own: typing may have gone on here.
    @type {(here: TreeNode, there: TreeNode) => boolean} */
const isSame = (here, there) =>
  here.text === there.text ||
  (isTyped(here) && isTyped(there) && !there.children.length && here.text.startsWith(there.text));

/** @type {(node: TreeNode) => boolean} */
const isTyped = ({ source }) => source === "user";

/** The story with tokens of nodes that an older version has with the same text: they are not exchanged.
    @type {(story: Story, older: Story) => Story} */
export function withTokens(story, older) {
  for (const node of Object.values(story.nodes)) {
    const { text, tokens, ref } = older.nodes[node.id] ?? {};
    if (text === node.text && tokens) Object.assign(node, { tokens, ref });
  }
  return story;
}
