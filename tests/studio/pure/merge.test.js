// Two versions of a story become one tree: of two devices, which begin as one and go different ways.

import assert from "node:assert/strict";
import { test } from "node:test";
import { newEntry } from "#studio/background/parts.js";
import { merge, withTokens } from "#studio/story/merge.js";
import { addNode, cutAt, newStory, textOf, write } from "#studio/story/tree.js";
import { assertTree, eachSeed, lived, lost, places, randomStory } from "./trees.js";

/** Two versions of one story, which may be equal. */
function versions(random) {
  const begun = randomStory(random);
  return [begun, structuredClone(begun)].map((story) => lived(story, random));
}

test("a merged tree is one, with all that a writer can go to in either version", () =>
  eachSeed((random) => {
    const [mine, theirs] = versions(random);
    const { story, current } = merge(mine, theirs);
    assertTree(story);
    assert.deepEqual(lost(places(mine), story), []);
    assert.deepEqual(lost(goals(theirs), story), []);
    assert.equal(textOf(story), textOf(mine), "the text stays mine");
    assert.ok(textOf(story, current).startsWith(textOf(theirs)), "and theirs is there");
  }));

/** Where a version can be gone to, without leaves that may have been typed on. */
const goals = (story) =>
  Object.values(story.nodes)
    .filter(({ source, children }) => source !== "user" || children.length)
    .map(({ id }) => textOf(story, id));

test("nodes of mine stay as they are and where they are", () =>
  eachSeed((random) => {
    const [mine, theirs] = versions(random);
    const { story } = merge(mine, theirs);
    for (const { id, children, parent, ...fields } of Object.values(mine.nodes)) {
      const { children: all, parent: above, ...same } = story.nodes[id];
      assert.deepEqual({ id, ...fields }, same);
      assert.deepEqual(all.slice(0, children.length), children);
      if (parent) assert.equal(above, parent);
    }
  }));

test("a merge changes neither version", () =>
  eachSeed((random) => {
    const both = versions(random);
    const before = structuredClone(both);
    merge(...both);
    assert.deepEqual(both, before);
  }));

test("what was merged once adds nothing the second time", () =>
  eachSeed((random) => {
    const [mine, theirs] = versions(random);
    const { story } = merge(mine, theirs);
    const again = merge(story, theirs);
    assert.deepEqual([again.added, again.hasGrown], [0, false]);
    assert.deepEqual(again.story.nodes, story.nodes);
    assert.equal(merge(mine, mine).added, 0);
    assert.equal(merge(story, mine).added, 0);
  }));

const FIELDS = [
  ["name", { name: "The owl" }],
  ["tags", { tags: "night" }],
  ["kind", { kind: "chat" }],
  ["system prompt", { system: "Be slow." }],
  ["memory", { parts: { memory: "It is spring." } }],
  ["summary", { parts: { summary: "Once." } }],
  ["author’s note", { parts: { note: { text: "Be slow.", depth: 3 } } }],
  ["bounds of the lore", { parts: { budget: 100 } }],
  ["bounds of the lore", { parts: { search: 100 } }],
  ["entries of the lore", { parts: { lore: [newEntry({ id: "a", text: "An owl." })] } }],
];

for (const [word, fields] of FIELDS)
  test(`a story that differs in its ${word} says so and keeps mine: ${JSON.stringify(fields)}`, () => {
    const mine = newStory("The fox");
    mine.parts = { lore: [newEntry({ id: "a", text: "A fox." })] };
    const theirs = { ...structuredClone(mine), ...fields };
    const { story, fields: found, added } = merge(mine, theirs);
    assert.deepEqual([found, added], [[word], 0]);
    for (const name of Object.keys(fields)) assert.deepEqual(story[name], mine[name]);
  });

test("passages and entries that only one of them has are in both", () => {
  const parts = (id) => ({ memory: "It rains.", lore: [newEntry({ id })] });
  const mine = { ...newStory(), scraps: ["a", "b"], parts: parts("a") };
  const theirs = { ...structuredClone(mine), scraps: ["b", "c"], parts: parts("b") };
  const { story, hasGrown, fields } = merge(mine, theirs);
  assert.deepEqual(
    [story.scraps, story.parts.lore.map(({ id }) => id)],
    [
      ["a", "b", "c"],
      ["a", "b"],
    ],
  );
  assert.deepEqual([story.parts.memory, hasGrown, fields], ["It rains.", true, []]);
});

test("a story that another text may begin stays one when candidates are asked for elsewhere", () => {
  const begun = newStory();
  write(begun, "Once upon a time");
  const splits = structuredClone(begun);
  cutAt(splits, 0); // an empty root, so that another text can begin it
  const asks = structuredClone(begun);
  for (const text of [" there", " he"]) addNode(asks, asks.current, { text });
  for (const [mine, theirs] of [
    [splits, asks],
    [asks, splits],
  ]) {
    const { story, fields } = merge(mine, theirs);
    assert.deepEqual(fields, []);
    assert.equal(Object.values(story.nodes).filter(({ text }) => text === "Once upon a time").length, 1);
    assert.deepEqual(lost([...places(splits), ...places(asks)], story), []);
  }
});

test("tokens are taken from an older version where the text is the same", () => {
  const older = newStory();
  const [same, other] = [" ran", " slept"].map((text) =>
    addNode(older, older.root, { text, tokens: [{ text }], ref: { id: "r", index: 0 } }),
  );
  const story = structuredClone(older);
  for (const node of Object.values(story.nodes)) for (const name of ["tokens", "ref"]) delete node[name];
  story.nodes[other.id].text = " sat";
  withTokens(story, older);
  const [{ tokens, ref }, { tokens: none }] = [same, other].map(({ id }) => story.nodes[id]);
  assert.deepEqual([tokens, ref, none], [[{ text: " ran" }], { id: "r", index: 0 }, undefined]);
});
