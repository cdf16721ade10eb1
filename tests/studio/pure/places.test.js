// Where words stand in a text.

import assert from "node:assert/strict";
import { test } from "node:test";

import { placesOf } from "#studio/text/places.js";

const TEXT = "He didn’t. “Yes,” she didn't. «Well-known», Mr\u00a0Fox, well‑known.";
const SOUGHT = [
  ["didn't", {}, ["didn’t", "didn't"]],
  ["didn’t", {}, ["didn’t"]],
  ["didn't", { exact: true }, ["didn't"]],
  ['"Yes', {}, ["“Yes"]],
  ["mr fox", {}, ["Mr\u00a0Fox"]],
  ["well-known", { whole: true }, ["Well-known", "well‑known"]],
  ["'", {}, ["'"]], // to replace straight ones
  ["“", {}, ["“"]],
  ["x.", {}, []],
];

test("words are found with the quotation marks, the apostrophes and the blanks that a book has", () => {
  for (const [sought, how, found] of SOUGHT)
    assert.deepEqual(
      placesOf(TEXT, sought, how).map((at) => TEXT.slice(at, at + sought.length)),
      found,
      sought,
    );
});
