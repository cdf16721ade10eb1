// Emphasis in a line: what is emphasized, and the signs of that.

import assert from "node:assert/strict";
import { test } from "node:test";

import { blockOf, shownIn } from "#studio/files/emphasis.js";
import { eachSeed } from "./trees.js";

/** A line with its emphasis as tags, and its signs in square brackets. */
function shown(line) {
  const names = { em: ["<i>", "</i>"], strong: ["<b>", "</b>"], heading: ["<h>", "</h>"], sign: ["[", "]"] };
  const tags = shownIn(line).flatMap(([kind, from, to]) => [
    [from, 1, -to, names[kind][0]],
    [to, 0, -from, names[kind][1]],
  ]);
  tags.sort((a, b) => a[0] - b[0] || a[1] - b[1] || a[2] - b[2]);
  let end = 0;
  const parts = tags.map(([at, , , tag]) => line.slice(end, (end = Math.max(at, end))) + tag);
  return parts.join("") + line.slice(end);
}

const LINES = {
  "": "",
  "a *b* c": "a [*]<i>b</i>[*] c",
  "**b** c": "[**]<b>b</b>[**] c",
  "***b***": "[*]<i>[**]<b>b</b>[**]</i>[*]",
  "*a **b** c*": "[*]<i>a [**]<b>b</b>[**] c</i>[*]",
  "sun*set*s": "sun[*]<i>set</i>[*]s",
  "2 * 3 * 4": "2 * 3 * 4",
  "a *b": "a *b",
  "*b* and *c": "[*]<i>b</i>[*] and *c",
  "a * b*": "a * b*",
  "\\*b*": "[\\]*b*",
  "*a\\* b*": "[*]<i>a[\\]* b</i>[*]",
  "_a_ __b__": "_a_ __b__",
  "***": "[***]",
  "* * *": "[* * *]",
  "## One": "<h>[## ]One</h>",
  "#One": "#One",
  "# ": "# ",
};

test("a line shows its emphasis, and a sign that closes nothing is a letter", () => {
  const found = Object.keys(LINES).map((line) => [line, shown(line)]);
  assert.deepEqual(found, Object.entries(LINES));
});

test("a line shows what its runs say, without the signs", () =>
  eachSeed((random) => {
    const line = Array.from({ length: random.below(24) }, () => random.pick([..."ab **\\_ "])).join("");
    const shown = shownIn(line);
    const isIn = (kind, at) => shown.some(([name, from, to]) => name === kind && from <= at && at < to);
    const letters = [...line].map((text, at) => [text, isIn("em", at), isIn("strong", at), isIn("sign", at)]);
    const runs = blockOf(line).runs.flatMap(({ text, italic, bold }) =>
      [...text].map((letter) => [letter, italic, bold]),
    );
    if (blockOf(line).kind !== "text") return;
    const seen = letters
      .filter(([, , , isSign]) => !isSign)
      .map(([letter, em, strong]) => [letter, em, strong]);
    assert.deepEqual(seen, runs, line);
  }));
