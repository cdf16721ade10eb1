// Who wrote the passages of the shelf: pieces of a text, each with its source. Pure data, as the tree.

import { cutsAt, pathTo } from "./tree.js";

/** @import { Story, TreeNode } from "./tree.js" */

/** @typedef {[source: string, text: string][]} Pieces */

/** @type {(pieces: Pieces) => string} */
const textOf = (pieces) => pieces.map(([, text]) => text).join("");

/** Puts a passage on the shelf. What only the writer has written needs no pieces.
    @type {(story: Story, pieces: Pieces) => void} */
export function put(story, pieces) {
  story.scraps.push(textOf(pieces));
  const isOthers = pieces.some(([source]) => source !== "user");
  if (isOthers && !piecesOf(story, textOf(pieces))) (story.origins ??= []).push(pieces);
}

/** @type {(story: Story, index: number) => void} */
export function take(story, index) {
  const [text] = story.scraps.splice(index, 1);
  if (!story.scraps.includes(text)) story.origins = story.origins?.filter((one) => textOf(one) !== text);
}

/** The pieces of a passage of the shelf; undefined: all of it is the writer's.
    @type {(story: Story, text: string) => Pieces | undefined} */
export const piecesOf = (story, text) => story.origins?.find((one) => textOf(one) === text);

/** The pieces of both shelves.
    @type {(mine: Story, theirs: Story) => Pieces[] | undefined} */
export function united(mine, theirs) {
  const others = theirs.origins?.filter((one) => !piecesOf(mine, textOf(one))) ?? [];
  return others.length ? [...(mine.origins ?? []), ...others] : mine.origins;
}

/** Gives the writer's part of the text that ends at `end` to those who wrote it; returns what has changed.
    @type {(story: Story, end: number, pieces: Pieces) => TreeNode[]} */
export function give(story, end, pieces) {
  /** @type {Set<TreeNode>} */
  const all = new Set();
  for (const [source, { length }] of pieces.toReversed()) {
    const begin = end - length;
    if (length && source !== "user") {
      const { changed } = cutsAt(story, [end, begin]);
      for (const node of [...changed, ...within(story, begin, end)]) all.add(node);
      for (const node of within(story, begin, end)) if (node.source === "user") node.source = source;
    }
    end = begin;
  }
  return [...all];
}

/** The nodes on the path with the text between two places, at which it is cut.
    @type {(story: Story, begin: number, end: number) => TreeNode[]} */
function within(story, begin, end) {
  let at = 0;
  return pathTo(story).filter(({ text: { length } }) => {
    at += length;
    return length && at > begin && at <= end;
  });
}

/** A passage without its first characters.
    @type {(pieces: Pieces, count: number) => Pieces} */
export function without(pieces, count) {
  return pieces.map(([source, text]) => {
    const rest = text.slice(Math.min(count, text.length));
    count -= text.length - rest.length;
    return [source, rest];
  });
}

/** What lies between two places of a text in pieces.
    @type {(spans: [node: TreeNode | null, text: string][], from: number, to: number) => Pieces} */
export function between(spans, from, to) {
  let begin = 0;
  return spans.flatMap(([node, text]) => {
    const part = text.slice(Math.max(0, from - begin), Math.max(0, to - begin));
    begin += text.length;
    return part ? [[node?.source ?? "user", part]] : [];
  });
}
