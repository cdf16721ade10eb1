// Two versions of a story become one tree that has the nodes of both. Pure data.

import { newId } from "./tree.js";

const FIELDS = ["name", "kind", "tags", "system", "parts"];

/** Adds to a copy of `mine` what only `theirs` has; returns the tree, the number of added nodes, the end of
    their text in it, and the names of fields that differ. */
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
    places.set(node.id, id);
    added++;
  };
  if (isSame(top, other)) places.set(other.id, top.id);
  else {
    const above = { id: newId(), parent: null, children: [top.id], text: "", source: "user" };
    nodes[above.id] = above;
    story.root = top.parent = above.id;
    add(other, above.id);
  }
  const work = [...other.children];
  while (work.length) {
    const node = theirs.nodes[work.shift()];
    const [here, parent] = [nodes[node.id], places.get(node.parent)];
    if (here && here.parent === parent && isSame(here, node)) places.set(node.id, node.id);
    else add(node, parent);
    work.push(...node.children);
  }
  const fields = FIELDS.filter((name) => asText(mine[name]) !== asText(theirs[name]));
  return { story, added, current: places.get(theirs.current), fields };
}

const asText = (value) => JSON.stringify(value ?? null);

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
