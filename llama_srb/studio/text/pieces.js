// A long text in pieces that end with a line, so that a change costs the time of one piece.

import { copied } from "../story/tree.js";

/** @import { TreeNode } from "../story/tree.js" */

const LEAST = 2000; // characters; a piece ends with the first line that ends behind them
const AT_ONCE = 16; // pieces that are made anew though their text is there already
let serial = 0;

/** Cuts a list of [kind, text] into pieces, each a list of the same form. Other kinds of parts, whose second
    value is no text, stay between their neighbours.
    @type {(parts: [string, any][], isText?: (kind: string) => boolean) => [string, any][][]} */
export function piecesOf(parts, isText = () => true) {
  /** @type {any[]} */
  const pieces = [[]];
  let length = 0;
  for (const [kind, value] of parts) {
    if (!isText(kind)) pieces.at(-1).push([kind, value]);
    for (let rest = isText(kind) ? value : ""; rest; ) {
      const line = rest.indexOf("\n", Math.max(0, LEAST - length));
      const end = line < 0 ? rest.length : line + 1;
      pieces.at(-1).push([kind, rest.slice(0, end)]);
      length += end;
      if (line >= 0) {
        pieces.push([]);
        length = 0;
      }
      rest = rest.slice(end);
    }
  }
  return pieces;
}

/** Makes a function that gives each piece a key, its own for as long as its text does not change: of equal
    pieces it returns the same {key, piece} as the last time. Of pieces whose text is there already, and
    only of other kinds, AT_ONCE are new in one go. The function returns them, and whether some are still as
    they were before: it is to be called again for them soon.
    @type {(isText?: (kind: string) => boolean) => (pieces: [string, any][][]) => [any[], boolean]} */
export function remembering(isText = () => true) {
  let known = new Map(); // the text of a piece → those that have it, in order
  return (pieces) => {
    const next = new Map();
    let left = AT_ONCE;
    let isBehind = false;
    const made = pieces.map((piece) => {
      const texts = piece.flatMap(([kind, value]) => (isText(kind) ? value : []));
      const text = texts.join("");
      const form = piece.map(([kind, value]) => kind + (isText(kind) ? value.length : value)).join(" ");
      const isPlain = texts.length === piece.length;
      let one = known.get(text)?.shift() ?? { key: ++serial };
      if (one.form && one.form !== form && one.isPlain && isPlain && left-- <= 0) isBehind = true;
      else if (one.form !== form) one = { key: one.key, form, isPlain, piece: copied(piece) };
      if (next.has(text)) next.get(text).push(one);
      else next.set(text, [one]);
      return one;
    });
    known = next;
    return [made, isBehind];
  };
}

/** Makes a function that counts the words of each of some texts, or what else a pattern finds, and again only
    where they have changed. It remembers pieces of the last texts only, since a piece keeps the whole text
    that it is of.
    @type {(pattern?: RegExp) => (texts: string[]) => number[]} */
export function counting(pattern = /\S+/g) {
  let known = new Map(); // piece → words
  return (texts) => {
    const next = new Map();
    /** @type {(piece: string) => number} */
    const wordsOf = (piece) => {
      const count = known.get(piece) ?? (piece.match(pattern) ?? []).length;
      next.set(piece, count);
      return count;
    };
    const counts = texts.map((text) =>
      piecesOf([["", text]]).reduce((sum, piece) => sum + wordsOf(piece[0]?.[1] ?? ""), 0),
    );
    known = next;
    return counts;
  };
}

const lettersIn = counting(/\S/gu);
/** @type {WeakMap<TreeNode, {text: string, count: number}>} */
const lettersOf = new WeakMap(); // nodes whose text is whole

/** How much of a text is the model's, in percent of its characters without spaces; null: it has none. A
    candidate that the writer has edited is the writer's. Only a text without any of the other's is 0 or 100.
    @type {(parts: [node: TreeNode | null, text: string][]) => number | null} */
export function shareOfModel(parts) {
  const known = parts.map(([node, text]) => {
    const counted = node && lettersOf.get(node);
    return counted?.text === text ? counted.count : null;
  });
  const counts = lettersIn(parts.flatMap(([, text], i) => (known[i] === null ? text : [])));
  let [models, all, next] = [0, 0, 0];
  for (const [i, [node, text]] of parts.entries()) {
    const count = known[i] ?? counts[next++];
    if (node?.text === text) lettersOf.set(node, { text, count });
    all += count;
    if (node?.source === "model") models += count;
  }
  const share = (100 * models) / all;
  if (!all) return null;
  return models === 0 || models === all ? share : Math.min(99, Math.max(1, Math.round(share)));
}
