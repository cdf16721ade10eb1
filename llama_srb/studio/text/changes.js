// What differs between a passage and the one that takes its place, as when a whole text is pasted over itself
// with some of its words corrected. Pure.

import { copied, patchOf } from "../story/tree.js";
import { diff, presentableDiff } from "../vendor/codemirror.js";

/** @import { Change } from "../story/tree.js" */

const LEAST = 24; // characters that stay between two changes; fewer go along with them
const WORDS = { scanLimit: 500 }; // bounds of the work; beyond them a change is larger than it need be
const LINES = { scanLimit: 4000 };
const FIRST_CODE = 1; // of a line; the last one is before the surrogates
const MOST_LINES = 0xd7ff;

/** The changes that make passage b of a.
    @type {(a: string, b: string) => Change[]} */
export function changesOf(a, b) {
  const [at, length, by, was] = patchOf(a, b);
  if (!length || !by) return [[at, at + length, by]];
  if (Math.min(length, by.length) <= LEAST) return [withEnds(a, [at, at + length, by])];
  /** @type {Change[]} */
  const all = inWords(was, by).map(([from, to, text]) => [at + from, at + to, copied(text)]);
  return all.length > 1 ? all : [withEnds(a, all[0])];
}

/** A change with what stays before and behind it in the passage, where that is no whole word: other words may
    begin with the same letter and end with the same full stop.
    @type {(a: string, change: Change) => Change} */
function withEnds(a, [from, to, by]) {
  const before = /\p{L}[^\p{L}]/u.test(a.slice(0, from)) ? "" : a.slice(0, from);
  const behind = /[^\p{L}]\p{L}/u.test(a.slice(to)) ? "" : a.slice(to);
  return [from - before.length, to + behind.length, before + by + behind];
}

/** First of whole lines, then of words within these.
    @type {(a: string, b: string) => Change[]} */
function inWords(a, b) {
  /** @type {Change[]} */
  const all = [];
  const lines = [a, b].map((text) => text.match(/[^\n]*\n+|[^\n]+$/g) ?? []);
  const [ends, endsOfB] = lines.map(endsOf);
  for (const [from, to, fromB, toB] of inLines(lines[0], lines[1])) {
    const [start, startOfB] = [ends[from], endsOfB[fromB]];
    const [was, is] = [a.slice(start, ends[to]), b.slice(startOfB, endsOfB[toB])];
    for (const one of presentableDiff(was, is, WORDS)) {
      const by = is.slice(one.fromB, one.toB);
      const last = all.at(-1);
      if (last && start + one.fromA - last[1] < LEAST) {
        last[2] += a.slice(last[1], start + one.fromA) + by;
        last[1] = start + one.toA;
      } else all.push([start + one.fromA, start + one.toA, by]);
    }
  }
  return all;
}

/** Where lines differ: from, to of a, from, to of b. As many lines in place of others are taken one by one.
    @type {(a: string[], b: string[]) => [number, number, number, number][]} */
function inLines(a, b) {
  /** @type {Map<string, number>} */
  const codes = new Map();
  for (const line of [...a, ...b]) if (!codes.has(line)) codes.set(line, codes.size + FIRST_CODE);
  if (codes.size > MOST_LINES) return [[0, a.length, 0, b.length]];
  const [was, is] = [a, b].map((all) =>
    all.map((line) => String.fromCharCode(codes.get(line) ?? 0)).join(""),
  );
  return diff(was, is, LINES).flatMap(({ fromA, toA, fromB, toB }) =>
    toA - fromA === toB - fromB
      ? Array.from({ length: toA - fromA }, (_, i) => [fromA + i, fromA + i + 1, fromB + i, fromB + i + 1])
      : [[fromA, toA, fromB, toB]],
  );
}

/** Where each line ends, behind 0.
    @type {(lines: string[]) => number[]} */
function endsOf(lines) {
  let end = 0;
  return [0, ...lines.map((line) => (end += line.length))];
}
