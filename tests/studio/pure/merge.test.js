// Two versions of a story become one tree: of two devices, which begin as one and go different ways.

import assert from "node:assert/strict";
import { test } from "node:test";
import { newEntry } from "#studio/background/parts.js";
import { lay, merge, withTokens } from "#studio/story/merge.js";
import { addNode, cutAt, drop, move, newStory, pathTo, split, textOf } from "#studio/story/tree.js";
import {
  ACTIONS,
  assertTree,
  eachSeed,
  hasText,
  lived,
  lost,
  lostPieces,
  places,
  randomStory,
  retype,
} from "./trees.js";

/** Two versions of one story, which may be equal. */
function versions(random, actions = Object.keys(ACTIONS)) {
  const begun = randomStory(random);
  return [begun, structuredClone(begun)].map((story) => lived(story, random, random.below(12), actions));
}

const BUT_JOIN = Object.keys(ACTIONS).filter((name) => name !== "join"); // which gives a name to another text

test("a merged tree is one, with all pieces of both versions and the text that the writer chooses", () =>
  eachSeed((random) => {
    const [mine, theirs] = versions(random);
    const { story, paths } = merge(mine, theirs);
    assertTree(story);
    assert.deepEqual(lostPieces(mine, story), []);
    for (const { text, source, children } of Object.values(theirs.nodes)) {
      const isOpen = source === "user" && !children.length; // typing may have gone on there
      const isThere = Object.keys(story.nodes).some((id) => hasText(story, id, text, isOpen));
      assert.ok(isThere, `theirs has ${JSON.stringify(text)}`);
    }
    for (const [path, version] of [
      [paths.mine, mine],
      [paths.theirs, theirs],
    ]) {
      const chosen = structuredClone(story);
      lay(chosen, path, textOf(version));
      assertTree(chosen);
      assert.equal(textOf(chosen), textOf(version));
    }
  }));

test("a node of both stands where it was moved last, unless it would stand behind itself", () =>
  eachSeed((random) => {
    const mine = randomStory(random);
    const theirs = structuredClone(mine);
    let time = Date.now() + 1e6; // later than all that has moved so far
    for (let i = 0; i < 8; i++) shuffled(random.pick([mine, theirs]), random, time++);
    const { story, added } = merge(mine, theirs);
    assertTree(story);
    assert.deepEqual([added, Object.keys(story.nodes).sort()], [0, Object.keys(mine.nodes).sort()]);
    for (const { id, parent } of Object.values(story.nodes)) {
      const [here, there] = [mine.nodes[id], theirs.nodes[id]];
      const isLater = (there.moved ?? 0) > (here.moved ?? 0);
      const isCircle = isLater && pathTo(story, there.parent).some((one) => one.id === id);
      assert.equal(parent, isLater && !isCircle ? there.parent : here.parent);
    }
  }));

/** Moves a random node to another one that is not behind it, at a time. */
function shuffled(story, random, time) {
  const [id, to] = [random.pick(Object.keys(story.nodes)), random.pick(Object.keys(story.nodes))];
  if (move(story, id, to).length) story.nodes[id].moved = time;
}

test("two moves that cross make no circle and lose nothing", () => {
  const begun = newStory();
  const [a, b] = ["a", "b"].map((text) => addNode(begun, begun.root, { text }).id);
  const [mine, theirs] = [structuredClone(begun), structuredClone(begun)];
  move(mine, a, b);
  move(theirs, b, a);
  theirs.nodes[b].moved = mine.nodes[a].moved + 1;
  const { story } = merge(mine, theirs);
  assertTree(story);
  assert.deepEqual([story.nodes[a].parent, story.nodes[b].parent], [b, begun.root]);
});

test("an early change on one device and a move back on the other make one text, without a copy", () => {
  const begun = newStory();
  begun.current = addNode(begun, begun.root, { text: "The fox ran." }).id;
  begun.current = addNode(begun, begun.current, { text: " It rained." }).id;
  const [mine, theirs] = [structuredClone(begun), structuredClone(begun)];
  retype(theirs, "The owl ran. It rained.");
  mine.current = addNode(mine, mine.current, { text: " The end." }).id;
  const { story, added, hasMoved } = merge(mine, theirs);
  assert.equal(textOf(story), "The owl ran. It rained. The end.");
  assert.deepEqual([added, hasMoved], [1, true], "only the new word");
});

test("a piece that was cut off is not taken for an equal one, which was moved elsewhere", () => {
  const begun = newStory();
  const [other, piece] = ["Two.", "ab"].map(
    (text) => addNode(begun, begun.root, { text, source: "user" }).id,
  );
  const equal = addNode(begun, piece, { text: "b", source: "user" }).id;
  const [mine, theirs] = [structuredClone(begun), structuredClone(begun)];
  const rest = split(mine, piece, 1);
  move(mine, equal, piece);
  drop(mine, rest);
  move(theirs, equal, other);
  theirs.nodes[equal].moved = mine.nodes[equal].moved + 1;
  const { story, added } = merge(mine, theirs);
  assert.deepEqual([places(story).sort(), added], [["", "Two.", "Two.b", "a", "ab"], 1]);
  assert.equal(merge(story, theirs).added, 0);
});

test("a merge changes neither version", () =>
  eachSeed((random) => {
    const both = versions(random);
    const before = structuredClone(both);
    merge(...both);
    assert.deepEqual(both, before);
  }));

test("what was merged once adds nothing the second time", () =>
  eachSeed((random) => {
    const [mine, theirs] = versions(random, BUT_JOIN);
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
  ["language", { lang: "de" }],
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

test("phrases that one of two versions bans are banned in both", () => {
  const [mine, theirs] = [newStory(), newStory()];
  for (const [one, banned] of [
    [mine, "suddenly\na fox"],
    [theirs, "A fox\nsuddenly"],
  ])
    Object.assign(one, { banned });
  const { story, hasGrown, fields } = merge(mine, theirs);
  assert.equal(story.banned, "suddenly\na fox\nA fox");
  assert.ok(hasGrown && !fields.length);
});

test("passages and entries that only one of them has are in both", () => {
  const parts = (id) => ({ memory: "It rains.", lore: [newEntry({ id })] });
  const [b, c] = [[["model", "b"]], [["edit", "c"]]];
  const mine = { ...newStory(), scraps: ["a", "b"], origins: [b], parts: parts("a") };
  const theirs = { ...structuredClone(mine), scraps: ["b", "c"], origins: [c, b], parts: parts("b") };
  const { story, hasGrown, fields } = merge(mine, theirs);
  assert.deepEqual(
    [story.scraps, story.parts.lore.map(({ id }) => id)],
    [
      ["a", "b", "c"],
      ["a", "b"],
    ],
  );
  assert.deepEqual([story.parts.memory, hasGrown, fields], ["It rains.", true, []]);
  assert.deepEqual(story.origins, [b, c]);
});

test("a story that another text may begin stays one when candidates are asked for elsewhere", () => {
  const begun = newStory();
  retype(begun, "Once upon a time");
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
