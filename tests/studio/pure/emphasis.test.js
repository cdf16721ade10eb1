// The marks of a text: what is read is written again, whatever the text, and no model sees an escape.

import assert from "node:assert/strict";
import { test } from "node:test";

import { blockOf, lineOf, placeInText, run, runsOf, textOfRuns, unescaped } from "#studio/files/emphasis.js";
import { textWithin } from "#studio/files/paragraphs.js";
import { eachSeed, SEEDS } from "./trees.js";

const SIGNS = [
  "*",
  "*",
  "**",
  "***",
  "\\",
  "a",
  "b",
  " ",
  "_",
  "#",
  "# ",
  "> ",
  "- ",
  "7. ",
  "🦊",
  "\u00a0",
  "`",
];
const lineFrom = (random, most = 12) =>
  Array.from({ length: random.below(most) }, () => random.pick(SIGNS)).join("");
const told = ({ kind, level, runs }) => [kind, level, ...runs.map((one) => shown(one))];
const shown = ({ text, italic, bold, literal }) =>
  `${italic ? "i" : ""}${bold ? "b" : ""}${literal ? "\\" : ""}:${text}`;

const READ = {
  "a *b* c": ["text", 0, ":a ", "i:b", ": c"],
  "**a *b***": ["text", 0, "b:a ", "ib:b"],
  "***a** b*": ["text", 0, "ib:a", "i: b"],
  "*a***b**": ["text", 0, "i:a", "b:b"],
  "これは*「強調」*です": ["text", 0, ":これは", "i:「強調」", ":です"],
  "5 * 3 *and *word*": ["text", 0, ":5 * 3 *and ", "i:word"],
  "* a * b": ["text", 0, ":* a * b"],
  "snake_case _x_ `y`": ["text", 0, ":snake_case _x_ `y`"],
  "****a****": ["text", 0, ":****a****"],
  "\\*a\\*": ["text", 0, "\\:*", ":a", "\\:*"],
  "C:\\a": ["text", 0, ":C:\\a"],
  "## A *b*": ["heading", 2, ":A ", "i:b"],
  "#tag": ["text", 0, ":#tag"],
  "\\# a": ["text", 0, "\\:#", ": a"],
  "7\\. a": ["text", 0, ":7", "\\:.", ": a"],
  "# 7\\. a": ["heading", 1, ":7\\. a"],
  "> a": ["quote", 0, ":a"],
  "- a": ["bullet", 0, ":a"],
  "12. a": ["number", 12, ":a"],
  12.5: ["text", 0, ":12.5"],
  "***": ["break", 0, ":***"],
  "* * *": ["break", 0, ":* * *"],
  "": ["text", 0],
};

test("the marks of a line are read", () => {
  for (const [line, block] of Object.entries(READ)) assert.deepEqual(told(blockOf(line)), block, line);
});

test("a line that is read and written is the same", () => {
  eachSeed((random) => {
    for (let i = 0; i < 50; i++) {
      const line = lineFrom(random);
      assert.equal(lineOf(blockOf(line)), line, JSON.stringify(line));
    }
  });
});

const KINDS = ["text", "text", "heading", "quote", "bullet", "number"];
const runFrom = (random) => run(lineFrom(random, 5), !random.below(3), !random.below(3));
/** Each character with its emphasis, but on blanks, where nobody sees it. */
const seen = (runs) =>
  runs.flatMap(({ text, italic, bold }) =>
    [...text].map((one) => (/\s/.test(one) ? one : `${one}${italic ? "i" : ""}${bold ? "b" : ""}`)),
  );

test("paragraphs of another program have the same words with the same emphasis as text", () => {
  eachSeed((random) => {
    for (let i = 0; i < 50; i++) {
      const runs = Array.from({ length: 1 + random.below(4) }, () => runFrom(random));
      const block = { kind: random.pick(KINDS), level: 1 + random.below(6), runs };
      const line = lineOf(block);
      const found = blockOf(line);
      const name = `${JSON.stringify(line)} of ${JSON.stringify(block)}`;
      if (found.kind === "break" || seen(runs).length === 0) continue; // three stars are a scene break
      assert.deepEqual([found.kind, seen(found.runs)], [block.kind, seen(runs)], name);
      if (/^(heading|number)$/.test(found.kind)) assert.equal(found.level, block.level, name);
    }
  });
});

test("an escape stands only where a text would be read otherwise", () => {
  for (const text of [
    "5 * 3",
    "*",
    "a*",
    "**",
    "#tag",
    ">",
    "_a_",
    "-a",
    "12.5",
    "12345. a",
    "\\",
    "a \\ b",
    "[a](b)",
  ])
    assert.equal(lineOf({ kind: "text", level: 0, runs: [run(text)] }), text);
  const literal = {
    "*a*": "\\*a\\*",
    "# a": "\\# a",
    "> a": "\\> a",
    "\\*a*": "\\\\\\*a\\*",
    "a*b*c is 2 * 3 ** 4": "a\\*b\\*c is 2 * 3 ** 4",
    "\\# a": "\\\\# a",
    "- Bonjour, dit-il.": "\\- Bonjour, dit-il.",
    "1984. Nobody *knew* it.": "1984\\. Nobody \\*knew\\* it.",
    "7\\. Juni": "7\\\\. Juni",
  };
  for (const [text, escaped] of Object.entries(literal)) {
    assert.equal(lineOf({ kind: "text", level: 0, runs: [run(text)] }), escaped);
    assert.equal(unescaped(escaped), text);
  }
});

const ONE = (kind, text, level = 0) => ({ kind, level, runs: [run(text)] });
const PUT = [
  [[ONE("heading", "A", 2)], "He said", "", "He said\n## A"],
  [[ONE("heading", "A", 2)], "", "Then", "## A\nThen"],
  [[ONE("bullet", "one"), ONE("bullet", "two")], "He said", " then", "He said\n- one\n- two\n then"],
  [[ONE("quote", "one")], "He ", " said", "He one said"],
  [[ONE("number", "one", 3), ONE("text", "two")], "", "!", "3. one\ntwo!"],
  [[ONE("text", "one"), { ...ONE("heading", "A", 1), spaced: true }], "He ", "!", "He one\n\n# A\n!"],
  [[ONE("break", "***")], "He", "said", "He\n***\nsaid"],
  [[ONE("text", "# a")], "He ", "", "He # a"],
  [[ONE("text", "# a")], "", "", "\\# a"],
];

test("what is put into a line leaves no mark of a line in its midst", () => {
  for (const [paragraphs, before, behind, text] of PUT)
    assert.equal(before + textWithin(paragraphs, before, behind) + behind, text);
  assert.equal(textWithin([ONE("text", "a")], "He", "is", [" ", "  "]), " a  ");
});

test("the plain text is what is seen, with the marks, and places in it are found in the text", () => {
  eachSeed(
    (random) => {
      const lines = Array.from({ length: 3 }, () => lineFrom(random));
      const text = lines.join("\n");
      const bare = unescaped(text);
      if (!/\\/.test(text)) assert.equal(bare, text);
      const signs = (one) => one.replaceAll(/[*\\#>]/g, "");
      assert.equal(signs(bare), signs(text));
      for (let at = 0; at <= bare.length; at++) {
        const place = placeInText(text, at);
        assert.equal(unescaped(text).length - unescaped(text.slice(place)).length <= at + 1, true);
        if (bare[at] !== "\\")
          assert.equal(text[place] === bare[at] || text[place] === "\\", true, `${text} ${at}`);
      }
    },
    Math.min(SEEDS, 300),
  );
});

test("runs that are written and read are the same, with their escapes", () => {
  eachSeed((random) => {
    const runs = runsOf(lineFrom(random, 20));
    assert.deepEqual(runsOf(textOfRuns(runs)), runs);
  });
});
