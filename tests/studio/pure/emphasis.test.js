// Emphasis in a line: what is emphasized, and the signs of that.

import assert from "node:assert/strict";
import { test } from "node:test";

import { emphasisOf } from "#studio/text/emphasis.js";
import { eachSeed } from "./trees.js";

/** A line with its emphasis as tags, and its signs in square brackets. */
function shown(line) {
  const names = { em: ["<i>", "</i>"], strong: ["<b>", "</b>"], heading: ["<h>", "</h>"], sign: ["[", "]"] };
  const tags = emphasisOf(line).flatMap(([kind, from, to]) => [
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
  "\\*b*": "\\*b*",
  "*a\\* b*": "[*]<i>a\\* b</i>[*]",
  "_a_ __b__": "_a_ __b__",
  "***": "***",
  "* * *": "* * *",
  "## One": "<h>[## ]One</h>",
  "#One": "#One",
  "# ": "# ",
};

test("a line shows its emphasis, and a sign that closes nothing is a letter", () => {
  const found = Object.keys(LINES).map((line) => [line, shown(line)]);
  assert.deepEqual(found, Object.entries(LINES));
});

test("emphasis nests, and stands between signs of *", () =>
  eachSeed((random) => {
    const line = Array.from({ length: random.below(24) }, () => random.pick([..."ab **\\_ "])).join("");
    const found = emphasisOf(line);
    const signs = found.filter(([kind]) => kind === "sign");
    for (const [, from, to] of signs) assert.match(line.slice(from, to), /^\*{1,2}$/);
    const taken = signs.flatMap(([, from, to]) => Array.from({ length: to - from }, (_, i) => from + i));
    assert.equal(new Set(taken).size, taken.length, "a * is one sign");
    const parts = found.filter(([kind]) => kind !== "sign");
    assert.equal(signs.length, 2 * parts.length);
    for (const [kind, from, to] of parts) {
      const length = kind === "strong" ? 2 : 1;
      assert.ok(from < to);
      assert.ok(signs.some(([, a, b]) => b === from && b - a === length));
      assert.ok(signs.some(([, a, b]) => a === to && b - a === length));
      for (const [, a, b] of parts)
        assert.ok(b <= from || to <= a || (a <= from && to <= b) || (from <= a && b <= to));
    }
  }));
