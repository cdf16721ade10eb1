// Long texts in pieces: none of the text is lost, and equal pieces are the same object as before.

import assert from "node:assert/strict";
import { test } from "node:test";

import { counting, piecesOf, remembering } from "#studio/text/pieces.js";
import { eachSeed, randomOf } from "./trees.js";

const isText = (kind) => kind !== "mark";
const LONG = 40; // words of a line, so that some pieces have one line

/** Parts of a long text: of two writers, with marks between. */
function partsOf(random) {
  const word = () => random.words(4).replaceAll("\n", "");
  const line = () => Array.from({ length: random.below(LONG) }, word).join("");
  const text = () => [random.pick(["user", "model"]), line() + random.pick(["\n", "", "\n\n"])];
  return Array.from({ length: 1 + random.below(60) }, () => (random.below(8) ? text() : ["mark", 1]));
}

const withoutEmpty = (parts) => parts.filter(([kind, value]) => !isText(kind) || value);

/** Neighbours of one kind as one part. */
function joined(parts) {
  const all = [];
  for (const [kind, value] of parts)
    if (isText(kind) && all.at(-1)?.[0] === kind) all.at(-1)[1] += value;
    else all.push([kind, value]);
  return all;
}

test("pieces have the whole text, in order, and each ends with a line", () =>
  eachSeed((random) => {
    const parts = partsOf(random);
    const pieces = piecesOf(parts, isText);
    assert.deepEqual(joined(pieces.flat()), joined(withoutEmpty(parts)));
    const texts = pieces.map((piece) => piece.flatMap(([kind, text]) => (isText(kind) ? text : [])).join(""));
    for (const text of texts.slice(0, -1)) assert.ok(text.endsWith("\n") && text.length >= 2000);
  }));

test("a change of one line makes few other pieces than before", () => {
  const random = randomOf(1);
  const parts = Array.from({ length: 300 }, () => partsOf(random)).flat();
  const remember = remembering(isText);
  const [before] = remember(piecesOf(parts, isText));
  const i = parts.findIndex(([kind], at) => at > parts.length / 2 && isText(kind));
  parts[i] = [parts[i][0], `x${parts[i][1]}`];
  const [after] = remember(piecesOf(parts, isText));
  const keys = new Set(before.map(({ key }) => key));
  assert.ok(before.length > 100);
  assert.ok(after.filter(({ key }) => !keys.has(key)).length <= 2);
});

test("pieces that are remembered have the text of now, at the latest after some calls", () =>
  eachSeed((random) => {
    const remember = remembering(isText);
    for (let change = 0; change < 4; change++) {
      const pieces = piecesOf(partsOf(random), isText);
      const of = (piece) => piece.flatMap(([kind, text]) => (isText(kind) ? text : [])).join("");
      let [made, isBehind] = remember(pieces);
      assert.deepEqual(
        made.map(({ piece }) => of(piece)),
        pieces.map(of),
        "the text is never behind",
      );
      while (isBehind) [made, isBehind] = remember(pieces);
      assert.deepEqual(
        made.map(({ piece }) => piece),
        pieces,
      );
      assert.equal(new Set(made.map(({ key }) => key)).size, made.length);
    }
  }));

const COUNTS = { "": 0, Once: 1, "Once upon": 2, " Once\n\nupon \t a time. ": 4, "走った。寝た。": 1 };

test("words are counted, also of a text that has changed", () => {
  const count = counting();
  for (const [text, words] of Object.entries(COUNTS)) assert.deepEqual(count([text]), [words]);
  eachSeed((random) => {
    const texts = [1, 2].map(() =>
      partsOf(random)
        .map(([, value]) => value)
        .join(""),
    );
    assert.deepEqual(
      count(texts),
      texts.map((text) => (text.match(/\S+/g) ?? []).length),
    );
  });
});
