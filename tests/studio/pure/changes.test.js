import assert from "node:assert/strict";
import { test } from "node:test";
import { rewritten } from "#studio/story/tree.js";
import { changesOf } from "#studio/text/changes.js";
import { eachSeed } from "./trees.js";

const LINE = "The river was quiet that night, and Mara counted the lamps along its bank.\n\n";

test("a passage that is pasted over itself changes where it differs", () => {
  const book = Array.from({ length: 4000 }, (_, i) => `${i}. ${LINE}`);
  const rows = [
    ["fox", "foxes", [[3, 3, "es"]]],
    [
      `${LINE}Then.`,
      `One. ${LINE}Now!`,
      [
        [0, 0, "One. "],
        [LINE.length, LINE.length + 5, "Now!"],
      ],
    ],
    [LINE, LINE.replace("quiet", "loud"), [[14, 19, "loud"]]],
    [LINE, "Nothing of it is left but dots, said nobody at all.", null],
    [
      `😀${LINE}😀`,
      `😁${LINE}😁`,
      [
        [0, 2, "😁"],
        [LINE.length + 2, LINE.length + 4, "😁"],
      ],
    ],
    [LINE.repeat(3), LINE, null],
    ["The fox ran home.", "Nobody found a king.", [[0, 17, "Nobody found a king."]]],
    [`${LINE}”`, "Words of mine”", [[0, LINE.length + 1, "Words of mine”"]]],
    ["He ran home, then.", "He walked home, then.", [[3, 6, "walked"]]],
  ]; // prettier-ignore
  for (const [a, b, expected] of rows) {
    const found = changesOf(a, b);
    assert.equal(rewritten(a, found), b);
    if (expected) assert.deepEqual(found, expected);
  }
  for (const [every, each] of [
    [40, 100],
    [1, 4000],
  ]) {
    const pasted = book.map((line, i) => (i % every ? line : line.replace("quiet", "loud")));
    const found = changesOf(book.join(""), pasted.join(""));
    assert.equal(rewritten(book.join(""), found), pasted.join(""));
    assert.deepEqual([found.length, new Set(found.map(([from, to]) => to - from))], [each, new Set([5])]);
  }
});

const WORDS = ["a", "fox ", "😀", "\n", "river ", LINE, "é", "  ", "\n\n", "The lamp."];

test("whatever is pasted over a passage comes out, by changes in order", () =>
  eachSeed((random) => {
    const make = (most) => Array.from({ length: random.below(most) }, () => random.pick(WORDS));
    const parts = make(30);
    const a = parts.join("");
    for (let n = random.below(4); n > 0; n--)
      parts.splice(random.below(parts.length + 1), random.below(3), ...make(3));
    const found = changesOf(a, parts.join(""));
    assert.equal(rewritten(a, found), parts.join(""));
    assert.ok(found.every(([from, to], i) => from <= to && from >= (found[i - 1]?.[1] ?? 0)));
  }));
