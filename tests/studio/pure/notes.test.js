// Footnotes of a text: which calls and lines are some, in whatever order a writer has left them.

import assert from "node:assert/strict";
import { test } from "node:test";
import { runsOf } from "#studio/files/emphasis.js";
import { endBeforeNotes, notesOf, withNotes } from "#studio/files/paragraphs.js";
import { randomOf, SEEDS } from "./trees.js";

/** The text of a document that was written with a text's notes, and read again. */
function again(text) {
  const { body, notes } = notesOf(text);
  return withNotes(
    body,
    notes.map((one) => runsOf(one, false)),
  );
}

const SOUND = "A[^1], b[^2].\n\n[^1]: One.\n[^2]: Two.";
const TEXTS = {
  "as an import writes them": [SOUND, SOUND, 0],
  "a line feed behind them": [`${SOUND}\n`, "A[^1], b[^2].\n\n\n[^1]: One.\n[^2]: Two.", 0],
  "text behind them": [`${SOUND}\nNext.`, "A[^1], b[^2].\n\nNext.\n\n[^1]: One.\n[^2]: Two.", 0],
  "amid the text": ["A[^1].\n\n[^1]: One.\n\nB.", "A[^1].\n\nB.\n\n[^1]: One.", 0],
  "before the text": ["[^1]: One.\n\nA[^1].", "A[^1].\n\n[^1]: One.", 0],
  "no blank line before them": ["A[^1].\n[^1]: One.", "A[^1].\n\n[^1]: One.", 0],
  "a blank line between them": [SOUND.replace("One.\n", "One.\n\n"), SOUND, 0],
  "calls in another order": [
    "B[^2], a[^1].\n\n[^1]: One.\n[^2]: Two.",
    "B[^1], a[^2].\n\n[^1]: Two.\n[^2]: One.",
    0,
  ],
  "a number that is gone": [
    "A[^1], c[^3].\n\n[^1]: One.\n[^3]: C.",
    "A[^1], c[^2].\n\n[^1]: One.\n[^2]: C.",
    0,
  ],
  "one that is called twice": ["A[^1], b[^1].\n\n[^1]: One.", "A[^1], b[^2].\n\n[^1]: One.\n[^2]: One.", 0],
  "labels that are words": ["A[^fox-a].\n\n[^fox-a]: One.", "A[^1].\n\n[^1]: One.", 0],
  "an empty one": ["A[^1].\n\n[^1]: ", "A[^1].\n\n[^1]: ", 0],
  "one without a call": ["A[^2].\n\n[^1]: One.\n[^2]: Two.", "A[^2].\n\n[^1]: One.\n\n[^2]: Two.", 1],
  "a call without one": ["A[^1], b[^2].\n\n[^2]: Two.", "A[^1], b[^2].\n\n[^2]: Two.", 1],
  "two with one label": ["A[^1].\n\n[^1]: One.\n[^1]: Two.", "A[^2].\n\n[^1]: Two.\n\n[^2]: One.", 1],
  "a call within one": ["A[^1].\n\n[^1]: One[^2].\n[^2]: Two.", "A[^1].\n\n[^2]: Two.\n\n[^1]: One[^2].", 1],
  none: ["[^ 1] [1] [^*a*] a[^]: b\n[^1]:x\n", "[^ 1] [1] [^*a*] a[^]: b\n[^1]:x\n", 1],
};

test("each call that has a note is a footnote, and the rest stays as it is, with a warning", () => {
  const found = Object.entries(TEXTS).map(([name, [text]]) => [
    name,
    [text, again(text), notesOf(text).warnings.length],
  ]);
  assert.deepEqual(Object.fromEntries(found), TEXTS);
});

test("warnings name the note", () => {
  assert.deepEqual(notesOf("A[^1], b[^2].\n\n[^2]: Two.\n[^2]: Two.\n[^3]: Three.").warnings, [
    "[^1] has no line “[^1]: …”",
    "another line “[^2]: …” is before it",
    "[^3] is not in the text, only its line “[^3]: …”",
  ]);
});

const PIECES = ["a", " ", "*", "\n", "\n\n", "[^1]", "[^2]", "[^x]", "\n[^1]: ", "\n[^2]: a", "\n\n[^x]: b*"];

test("notes that were written once are written the same again, whatever the text", () => {
  for (let seed = 1; seed <= SEEDS; seed++) {
    const random = randomOf(seed);
    const text = Array.from({ length: random.below(20) }, () => random.pick(PIECES)).join("");
    const once = again(text);
    assert.equal(again(once), once, JSON.stringify(text));
    assert.equal(notesOf(once).notes.length, notesOf(text).notes.length, JSON.stringify(text));
  }
});

const ENDS = [
  ["A.", null],
  ["A.\n\n[^1]: One.\n\n[^2]: Two.\n\n", 2],
  ["A.\n[^1]: One.", 2],
  ["A.\n\n[^1]: One.\nB.", null],
  ["[^1]: One.", 0],
];

test("a text ends before the notes at its end", () => {
  assert.deepEqual(
    ENDS.map(([text]) => [text, endBeforeNotes(text)]),
    ENDS,
  );
});
