// A story as a tree: whatever a writer does, it stays one, and keeps what was chosen among.

import assert from "node:assert/strict";
import { test } from "node:test";

import {
  behind,
  changeOf,
  childrenOf,
  composed,
  cutAt,
  cutsAt,
  firstWords,
  hashed,
  heldBack,
  join,
  joinable,
  move,
  newStory,
  patched,
  patchOf,
  placeAfter,
  promptFor,
  rewritten,
  split,
  textFrom,
  textOf,
  withoutReturns,
  wordDiff,
  write,
} from "#studio/story/tree.js";
import {
  ACTIONS,
  assertTree,
  changesOf,
  eachSeed,
  lost,
  lostPieces,
  placeIn,
  places,
  randomStory,
  retype,
} from "./trees.js";

test("after each action a story is one tree", () =>
  eachSeed((random) => {
    const story = newStory();
    for (let step = 0; step < 25; step++) {
      ACTIONS[random.pick(Object.keys(ACTIONS))](story, random);
      assertTree(story);
    }
  }));

/** What changes nodes and tells which, so that they are stored. */
const TOLD = {
  write: (story, random) => write(story, changesOf(textOf(story), random)).nodes,
  cut(story, random) {
    const offsets = [placeIn(textOf(story), random), placeIn(textOf(story), random)];
    return cutsAt(
      story,
      offsets.sort((a, b) => b - a),
    ).changed;
  },
  move: (story, random) =>
    move(story, random.pick(Object.keys(story.nodes)), random.pick(Object.keys(story.nodes))),
  join(story, random) {
    const some = Object.keys(story.nodes).filter((id) => joinable(story, id));
    return some.length ? join(story, random.pick(some)) : [];
  },
};

test("all nodes that have changed are told, or a reload would bring the old ones back", () =>
  eachSeed((random) => {
    const story = randomStory(random);
    const before = JSON.parse(JSON.stringify(story.nodes));
    const name = random.pick(Object.keys(TOLD));
    const told = new Set(TOLD[name](story, random).map(({ id }) => id));
    const now = JSON.parse(JSON.stringify(story.nodes));
    for (const id of Object.keys({ ...before, ...now }))
      if (!told.has(id)) assert.deepEqual(now[id], before[id], `${name} does not tell it`);
  }));

test("the text is what was typed, and nothing else that was there is lost", () =>
  eachSeed((random) => {
    const story = randomStory(random);
    const leaf = story.nodes[story.current];
    const isOpen = leaf.source === "user" && !leaf.children.length; // which the writer goes on writing
    const text = textOf(story).slice(0, placeIn(textOf(story), random)) + random.words(3);
    const before = structuredClone(story);
    if (isOpen) delete before.nodes[leaf.id];
    retype(story, text);
    assert.equal(textOf(story), text);
    assertTree(story);
    assert.deepEqual(lostPieces(before, story), []);
    assert.deepEqual(retype(story, text).nodes, [], "the same text is no change");
  }));

test("a candidate that is typed is found, and not written again", () =>
  eachSeed((random) => {
    const story = randomStory(random);
    for (const { id, text } of childrenOf(story, story.current)) {
      const typed = structuredClone(story);
      retype(typed, textOf(story, id));
      assert.deepEqual(Object.keys(typed.nodes), Object.keys(story.nodes), text);
    }
  }));

test("what is typed behind a text and taken back leaves nothing", () =>
  eachSeed((random) => {
    const story = randomStory(random);
    const { source, children } = story.nodes[story.current];
    if (source === "user" && !children.length) return; // it is typed in place
    const [text, before] = [textOf(story), Object.keys(story.nodes)];
    retype(story, `${text}${random.words(2)}!`); // which no branch has
    retype(story, text);
    assert.deepEqual([Object.keys(story.nodes), textOf(story)], [before, text]);
  }));

test("a node that has children keeps its text when the writer types over it", () =>
  eachSeed((random) => {
    const story = randomStory(random);
    const before = structuredClone(story.nodes);
    retype(story, random.words(3));
    for (const { id, text, children } of Object.values(before))
      if (children.length) assert.ok(text.startsWith(story.nodes[id].text), "it was cut at most");
  }));

test("a cut ends a node at its place and keeps the text and all branches", () =>
  eachSeed((random) => {
    const story = randomStory(random);
    const [before, text] = [places(story), textOf(story)];
    const at = placeIn(text, random);
    const node = cutAt(story, at);
    assertTree(story);
    assert.equal(textOf(story, node.id), text.slice(0, at));
    assert.equal(textOf(story), text);
    assert.deepEqual(lost(before, story), []);
  }));

test("the parts of a split node have its text and its tokens between them", () =>
  eachSeed((random) => {
    const story = randomStory(random);
    const node = random.pick(Object.values(story.nodes));
    const { text, tokens } = structuredClone(node);
    const rest = split(story, node.id, placeIn(text, random));
    if (!rest) return;
    assert.equal(node.text + rest.text, text);
    if (rest.tokens) assert.deepEqual([...node.tokens, ...rest.tokens], tokens);
    for (const part of [node, rest])
      if (part.tokens) assert.equal(part.tokens.map((token) => token.text).join(""), part.text);
  }));

test("a join keeps the text and each place but the joined node's", () =>
  eachSeed((random) => {
    const story = randomStory(random);
    for (const id of Object.keys(story.nodes)
      .filter((one) => joinable(story, one))
      .slice(0, 1)) {
      const gone = textOf(story, joinable(story, id).id);
      const [before, text] = [places(story).filter((one) => one !== gone), textOf(story)];
      join(story, id);
      assertTree(story);
      assert.equal(textOf(story), text);
      assert.deepEqual(lost(before, story), []);
    }
  }));

test("only spaces and tabs are held back, and what stands behind them is the rest", () =>
  eachSeed((random) => {
    const story = randomStory(random);
    const text = textOf(story);
    const at = placeIn(text, random);
    const end = heldBack(story, at);
    assert.match(text.slice(end, at), /^[ \t]*$/);
    const node = cutAt(story, end);
    const rest = textFrom(story, behind(story, node.id, at));
    assert.ok(text.endsWith(rest));
    assert.match(text.slice(end, text.length - rest.length), /^[ \t]*$/);
  }));

test("a prompt says the whole text, with or without a candidate that is continued", () =>
  eachSeed((random) => {
    const story = randomStory(random);
    for (const id of Object.keys(story.nodes)) {
      const text = textOf(story, id);
      assert.deepEqual(
        promptFor(story, id, () => false),
        { prompt: text, text },
      );
      const fields = promptFor(story, id, () => true);
      assert.ok(text.endsWith(fields.prompt ?? ""));
      assert.equal(fields.text, text);
    }
  }));

test("a patch makes the second text of the first one, and of no other", () =>
  eachSeed((random) => {
    const a = random.words(8);
    const at = placeIn(a, random);
    const b = a.slice(0, at) + random.words(2) + a.slice(random.pick([at, a.length]));
    assert.equal(patched(a, patchOf(a, b)), b);
    const [start, length, by, before] = patchOf(a, b);
    assert.equal(a.slice(start, start + length), before);
    assert.ok(by.isWellFormed() && before.isWellFormed(), "no half of a character");
    if (before) assert.equal(patched(a.slice(0, start), [start, length, by, before]), null);
  }));

test("changes one after the other are one change, as long as they meet", () =>
  eachSeed((random) => {
    const a = random.words(8);
    const [b, c] = [random, random]
      .reduce((texts) => [...texts, changedIn(texts.at(-1), random)], [a])
      .slice(1);
    const [first, second] = [changeOf(a, b, b.length), changeOf(b, c, 0)];
    assert.equal(rewritten(a, [first]), b);
    assert.equal(rewritten(b, [second]), c);
    const both = composed(first, second);
    if (both) assert.equal(rewritten(a, [both]), c);
    else assert.ok(second[0] > first[0] + first[2].length || second[1] < first[0], "they are apart");
  }));

/** A text with another part. */
function changedIn(text, random) {
  const [from, to] = [placeIn(text, random), placeIn(text, random)].sort((a, b) => a - b);
  return text.slice(0, from) + random.pick(["", random.words(2)]) + text.slice(to);
}

test("of equal characters the one before the caret was typed, or taken back behind it", () => {
  assert.deepEqual(changeOf("hello", "helllo", 3), [2, 2, "l"]);
  assert.deepEqual(changeOf("hello", "helo", 3), [3, 4, ""]);
  assert.deepEqual(changeOf("hello", "helo", 0), [3, 4, ""], "a caret elsewhere says nothing");
});

test("a place goes along with the text behind a change, and halves no character of another text", () => {
  for (const [at, a, b, place] of [
    [4, "One two", "Zero One two", 9],
    [3, "One two", "One two three", 3],
    [7, "One two", "One two three", 7],
    [7, "One two three", "One", 3],
    [5, "One two three", "One 2 three", 5],
    [8, "One two three", "One 2 three", 6],
    [1, "aby", "🦊y", 0],
  ])
    assert.equal(placeAfter(at, a, b), place, `${at} ${a} → ${b}`);
});

test("a hash goes on from the one before, and differs where the text does", () =>
  eachSeed((random) => {
    const [a, b] = [random.words(8), random.words(8)];
    assert.equal(hashed(b, hashed(a)), hashed(a + b));
    if (a !== b) assert.notEqual(hashed(a), hashed(b));
  }));

test("long texts are compared by stretches, with the same result", () =>
  eachSeed((random) => {
    const a = "0123456789".repeat(1000 + random.below(2000));
    const [from, to] = [random.below(a.length), random.below(a.length)].sort((x, y) => x - y);
    const [start, length, by] = patchOf(a, `${a.slice(0, from)}x${a.slice(to)}`);
    assert.deepEqual([start, length, by], [from, to - from, "x"]);
  }, 50));

test("the words that differ are those of both texts, in order", () =>
  eachSeed((random) => {
    const texts = [random.words(8), random.words(8)];
    const words = wordDiff(...texts);
    const of = (kinds) => words.flatMap(([kind, word]) => (kinds.includes(kind) ? [word] : [])).join("");
    assert.deepEqual(
      [of(["same", "gone"]), of(["same", "new"])],
      texts.map((text) => text.trimEnd()),
    );
  }));

test("carriage returns are removed from texts, tokens and their alternatives", () => {
  const token = { text: "a\r\n", logprob: -1, top: [{ text: "a\r\n", logprob: -1 }] };
  const [{ text, tokens }] = [withoutReturns({ text: "a\r\n", tokens: [token] })];
  assert.deepEqual([text, tokens[0].text, tokens[0].top[0].text], ["a\n", "a\n", "a\n"]);
  const plain = { text: "a\n" };
  assert.equal(withoutReturns(plain), plain, "a node without any is itself");
});

const NAMED = {
  "# The *Good* Fox\n\nOnce": "The Good Fox",
  "\n\n***\n# \n\\*Not\\* a **bold** _fox_": "*Not* a bold _fox_",
  '> "Go," *she* said.[^1]': '"Go," she said.',
  "- an item": "an item",
  "7\\. A number": "7. A number",
  "\\# one": "# one",
  "#1 fan of 5 * 3": "#1 fan of 5 * 3",
  "* * *\n\n##\n": "",
  "She *walked all the way to the old mill and* back.": "She walked all the way to the old mill",
  "": "",
};

test("a story without a name has the plain first words of its text", () => {
  assert.deepEqual(Object.keys(NAMED).map(firstWords), Object.values(NAMED));
});
