// Two versions of a story become one tree that has the nodes of both. Pure data.

import { partsOf, readParts } from "../background/parts.js";
import { newId, raise, spelling } from "./tree.js";

/** What the writer sees of a story besides its tree and its shelf, by the words for it. */
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

const partsIn = (story) => readParts(partsOf(story));

/** Adds to a copy of `mine` what only `theirs` has: nodes, passages of the shelf, entries of the lore.
    Returns the story, the number of added nodes, the end of their text in it, whether the shelf or the lore
    has grown, and the words for what differs, of which the copy has mine. */
export function merge(mine, theirs) {
  const nodes = Object.fromEntries(
    Object.values(mine.nodes).map((node) => [node.id, { ...node, children: [...node.children] }]),
  );
  const story = { ...mine, nodes };
  const [top, other] = [nodes[mine.root], theirs.nodes[theirs.root]];
  const places = new Map(); // their ids → ids in the tree
  let added = 0;
  const add = (node, parent) => {
    const id = nodes[node.id] ? newId() : node.id;
    nodes[id] = { ...node, id, parent, children: [] };
    nodes[parent].children.push(id);
    added++;
    return id;
  };
  // A node that was cut or moved here has its text elsewhere, or in a copy that an earlier merge has made.
  const placeOf = (node, parent) => {
    const here = nodes[node.id];
    if (here?.parent === parent && isSame(here, node)) return node.id;
    return (here && spelling(story, parent, node.text)?.id) ?? add(node, parent);
  };
  const same = [nodes[other.id], top].find((node) => node && isSame(node, other));
  const above = same ?? (top.text ? raise(story) : top);
  places.set(other.id, same || !other.text ? above.id : placeOf(other, above.id));
  const work = [...other.children];
  while (work.length) {
    const node = theirs.nodes[work.shift()];
    places.set(node.id, placeOf(node, places.get(node.parent)));
    work.push(...node.children);
  }
  const differs = (read) => asText(read(mine)) !== asText(read(theirs));
  const fields = Object.keys(FIELDS).filter((word) => differs(FIELDS[word]));
  const lore = partsIn(mine).lore;
  const others = partsIn(theirs).lore.filter((entry) => !lore.some(({ id }) => id === entry.id));
  const isOther = (entry) => lore.some((one) => one.id === entry.id && asText(one) !== asText(entry));
  if (partsIn(theirs).lore.some(isOther)) fields.push("entries of the lore");
  if (others.length) story.parts = { ...partsOf(mine), lore: [...lore, ...others] };
  const passages = theirs.scraps.filter((text) => !mine.scraps.includes(text));
  story.scraps = [...mine.scraps, ...passages];
  const hasGrown = others.length + passages.length > 0;
  return { story, added, current: places.get(theirs.current), hasGrown, fields };
}

const asText = (value) => JSON.stringify(value || null);

/** Whether a node of another version needs no place of its own: typing may have gone on here. */
const isSame = (here, there) =>
  here.text === there.text ||
  (isTyped(here) && isTyped(there) && !there.children.length && here.text.startsWith(there.text));

const isTyped = ({ source }) => source === "user";

/** The story with tokens of nodes that an older version has with the same text: they are not exchanged. */
export function withTokens(story, older) {
  for (const node of Object.values(story.nodes)) {
    const { text, tokens, ref } = older.nodes[node.id] ?? {};
    if (text === node.text && tokens) Object.assign(node, { tokens, ref });
  }
  return story;
}
