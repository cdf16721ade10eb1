// How much of a text is the model's, counted again only where it has changed.

import { copied } from "../story/tree.js";

/** @import { TreeNode } from "../story/tree.js" */

const LEAST = 2000; // characters; a piece ends with the first line that ends behind them

/** @type {WeakMap<TreeNode, {text: string, count: number}>} */
const lettersOf = new WeakMap(); // nodes whose text is whole
/** @type {Map<string, number>} */
let known = new Map(); // pieces of the last texts that are no whole node's

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
    const count = known.get(piece) ?? letters(piece);
    next.set(known.has(piece) ? piece : copied(piece), count); // a part of a text keeps all of it in memory
    return count;
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
