// Two versions of a story become one tree that has the nodes of both. Pure data.

import { partsOf, readParts } from "../background/parts.js";
import { newId, raise, spelling } from "./tree.js";

/** @import { Entry, Parts } from "../background/parts.js" */
/** @import { Story, TreeNode } from "./tree.js" */

/** Two versions as one story.
    @typedef {object} Merged
    @property {Story} story has the nodes of both
    @property {number} added how many nodes only theirs had
    @property {string | undefined} current the end of their text in it
    @property {boolean} hasGrown the shelf or the lore
    @property {string[]} fields the words for what differs, of which the story has mine */

/** What the writer sees of a story besides its tree and its shelf, by the words for it.
    @type {Record<string, (story: Story) => unknown>} */
const FIELDS = {
  name: ({ name }) => name,
  tags: ({ tags }) => tags,
  kind: ({ kind }) => kind,
  "system prompt": ({ system }) => system,
  memory: (story) => partsIn(story).memory,
  summary: (story) => partsIn(story).summary,
  "author’s note": (story) => partsIn(story).note,
  "bounds of the lore": (story) => [partsIn(story).budget, partsIn(story).search],
};

/** @type {(story: Story) => Parts} */
const partsIn = (story) => readParts(partsOf(story));

/** Adds to a copy of `mine` what only `theirs` has: nodes, passages of the shelf, entries of the lore.
    @type {(mine: Story, theirs: Story) => Merged} */
export function merge(mine, theirs) {
  const nodes = Object.fromEntries(
    Object.values(mine.nodes).map((node) => [node.id, { ...node, children: [...node.children] }]),
  );
  const story = { ...mine, nodes };
  const [top, other] = [nodes[mine.root], theirs.nodes[theirs.root]];
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
  // A node that was cut or moved here has its text elsewhere, or in a copy that an earlier merge has made.
  /** @type {(node: TreeNode, parent: string) => string} */
  const placeOf = (node, parent) => {
    const here = nodes[node.id];
    if (here?.parent === parent && isSame(here, node)) return node.id;
    return (here && spelling(story, parent, node.text)?.id) ?? add(node, parent);
  };
  const same = [nodes[other.id], top].find((node) => node && isSame(node, other));
  const above = same ?? (top.text ? raise(story) : top);
  places.set(other.id, same || !other.text ? above.id : placeOf(other, above.id));
  const work = [...other.children];
  for (const id of work) {
    const node = theirs.nodes[id];
    places.set(node.id, placeOf(node, /** @type {string} */ (places.get(node.parent ?? ""))));
    work.push(...node.children);
  }
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
  const hasGrown = others.length + passages.length > 0;
  return { story, added, current: places.get(theirs.current), hasGrown, fields };
}

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
