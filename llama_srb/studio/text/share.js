// How much of a text is the model's, counted again only where it has changed.

import { copied } from "../story/tree.js";

/** @import { TreeNode } from "../story/tree.js" */

const LEAST = 2000; // characters; a piece ends with the first line that ends behind them

/** @type {WeakMap<TreeNode, {text: string, count: number}>} */
const lettersOf = new WeakMap(); // nodes whose text is whole
/** Pieces of the last texts that are no whole node's, as copies: a part of a text keeps all of it in memory.
    @type {Map<string, {own: string, count: number}>} */
let known = new Map();

/** @type {(text: string) => Generator<string>} */
function* piecesOf(text) {
  for (let at = 0; at < text.length; ) {
    const line = text.indexOf("\n", at + LEAST);
    const end = line < 0 ? text.length : line + 1;
    yield text.slice(at, end);
    at = end;
  }
}

/** @type {(text: string) => number} */
const letters = (text) => (text.match(/\S/gu) ?? []).length;

/** The share in percent of the characters without spaces; null: there are none. A candidate that the writer
    has edited is the writer's. Only a text without any of the other's is 0 or 100.
    @type {(parts: [node: TreeNode | null, text: string][]) => number | null} */
export function shareOfModel(parts) {
  const next = new Map();
  /** @type {(piece: string) => number} */
  const inPiece = (piece) => {
    const one = known.get(piece) ?? { own: copied(piece), count: letters(piece) };
    next.set(one.own, one);
    return one.count;
  };
  let [models, all] = [0, 0];
  for (const [node, text] of parts) {
    const counted = node && lettersOf.get(node);
    const count =
      counted?.text === text
        ? counted.count
        : [...piecesOf(text)].reduce((sum, piece) => sum + inPiece(piece), 0);
    if (node?.text === text) lettersOf.set(node, { text, count });
    all += count;
    if (node?.source === "model") models += count;
  }
  known = next;
  const share = (100 * models) / all;
  if (!all) return null;
  return models === 0 || models === all ? share : Math.min(99, Math.max(1, Math.round(share)));
}
