// Undo: what was typed goes back word by word, far enough, also after a reload.

import "./page.js";
import assert from "node:assert/strict";
import { test } from "node:test";
import { choose, splitHere } from "#studio/candidates/choosing.js";
import { candidates, DEFAULTS, refresh, session, setPoint } from "#studio/story/session.js";
import { addNode, cutsAt, newStory, textOf } from "#studio/story/tree.js";
import { asStored, canRedo, canUndo, commit, recall, redo, typed, undo } from "#studio/text/history.js";
import { DOINGS, opened } from "./hour.js";
import { assertTree, randomOf, SEEDS, sourcesOf } from "./trees.js";

function openedWith(text) {
  const story = newStory();
  story.current = addNode(story, story.root, { text, source: "user" }).id;
  Object.assign(session, { story, error: null, settings: { ...DEFAULTS, next: false } });
  recall(null);
  setPoint(null);
  refresh();
  return story;
}

/** Types a text key by key at a place. */
function type(text, at) {
  for (const one of text) {
    typed(session.text.slice(0, at) + one + session.text.slice(at), at + one.length);
    at += one.length;
  }
  return at;
}

/** All texts that undo comes to, the present one first. */
function undone() {
  const texts = [session.text];
  for (; canUndo(); texts.push(session.text)) undo();
  return texts;
}

const settle = () => void asStored(); // no steps wait to be stored

/** Pieces of a text with their sources, and what is typed over it: [from, to, words], each a step. */
const TYPED = {
  "words among equal ones": [
    [["model", "Once ran."]],
    [
      [4, 4, " *"],
      [4, 4, " *"],
    ],
  ],
  "a deletion in words before the model's": [
    [["model", " ran."]],
    [
      [0, 0, "x y"],
      [1, 3, ""],
      [2, 2, "🐈"],
    ],
  ],
  "a piece that went, and what stood before it": [
    [
      ["model", "One. "],
      ["user", "Two."],
    ],
    [
      [0, 5, ""],
      [0, 4, ""],
    ],
  ],
  "a piece that became longer, was cut and is shorter again": [
    [
      ["model", "# "],
      ["user", "xyz"],
    ],
    [
      [0, 0, "🐈 "],
      [0, 0, "* "],
      [7, 7, "a b "],
      [5, 12, "c"],
    ],
  ],
};

test("undo gives each character the source that it had, and redo, too", () => {
  for (const [name, [pieces, changes]] of Object.entries(TYPED)) {
    const story = openedWith("");
    for (const [source, text] of pieces)
      story.current = addNode(story, story.current, { text, source, state: "stop" }).id;
    recall(null);
    refresh();
    const found = () => [
      textOf(story),
      sourcesOf(story)
        .map((source) => source[0])
        .join(""),
    ];
    const known = [found()];
    for (const [from, to, by] of changes) {
      typed(session.text.slice(0, from) + by + session.text.slice(to), from + by.length);
      commit();
      known.push(found());
    }
    for (const [go, wanted] of [
      [undo, known.slice(0, -1).reverse()],
      [redo, known.slice(1)],
    ])
      for (const one of wanted) {
        go();
        assert.deepEqual(found(), one, `${name}, ${go.name}`);
      }
  }
  settle();
});

test("undo gives the sources back also where the text that it finds ends elsewhere", () => {
  const story = openedWith("");
  story.current = addNode(story, story.current, { text: "The fox. ", source: "model", state: "stop" }).id;
  story.current = addNode(story, story.current, { text: "One two three", source: "user" }).id;
  recall(null);
  refresh();
  const found = () => [textOf(story), sourcesOf(story).join()];
  const write = (from, to, by) => {
    typed(session.text.slice(0, from) + by + session.text.slice(to), from + by.length);
    commit();
    return found();
  };
  write(0, 0, " ");
  undo();
  const first = write(0, 0, " Oh ");
  const second = write(1, 4, ""); // the space is the one that was there
  write(14, 18, "");
  for (const at of [16, 13]) {
    session.at = at;
    splitHere();
  }
  undo();
  assert.deepEqual(found(), second);
  undo();
  assert.deepEqual(found(), first);
  settle();
});

const HILL = "Alpha went to the hill. Omega stayed. The end.";
/** Where candidates stand, what they rewrite, and what is typed elsewhere meanwhile. */
const ASKED = {
  "candidates, and words before them": [23, null, [0, 0, "So "]],
  "candidates, and words behind them": [23, null, [46, 46, " Or not."]],
  "rewrites, and words before them": [23, " Omega stayed.", [0, 0, "So "]],
  "rewrites, and words in the passage": [23, " Omega stayed.", [29, 29, " TYPED"]],
};

test("a choice amid the text that is undone shows its candidates, whatever was typed elsewhere", async () => {
  for (const [name, [at, replaces, [from, to, by]]] of Object.entries(ASKED))
    for (const again of [() => {}, reload]) {
      const story = openedWith(HILL);
      const { ends } = cutsAt(story, replaces ? [at + replaces.length, at] : [at]);
      const point = ends.at(-1);
      for (const text of [" One.", " Two."])
        addNode(story, point, { text, state: "stop", ...(replaces && { replaces }) });
      setPoint(point, replaces);
      const found = () => [candidates().map(({ text }) => text), session.replaces];
      const before = [[" One.", " Two."], replaces];
      typed(session.text.slice(0, from) + by + session.text.slice(to), from + by.length);
      commit();
      assert.deepEqual(found(), before, name);
      const whole = session.text;
      for (const i of [1, 0]) {
        await choose(candidates()[i].id);
        again();
        undo();
        assert.equal(session.text, whole);
        assert.deepEqual(found(), before, `${name}, undone`);
      }
      await choose(candidates()[1].id, 3);
      const rest = found();
      undo();
      redo();
      assert.deepEqual(found(), rest, `${name}, a part is chosen again`);
    }
  settle();
});

/** Undo and redo, with some steps of each. */
const WAYS = { undo: [canUndo, undo], redo: [canRedo, redo] };

test("undo and redo come to texts with the sources that they had, after a reload, too", async () => {
  for (let seed = 1; seed <= SEEDS; seed++) {
    const random = randomOf(seed);
    const story = opened(random);
    const found = () => [textOf(story), sourcesOf(story)];
    const steps = () => asStored().past.length;
    let known = [found()]; // by how many steps undo has
    const done = [];
    for (let i = 0; i < 40; i++) {
      if (!random.below(6)) {
        commit();
        known[steps()] ??= found();
        reload();
      }
      const name = random.pick([...Object.keys(DOINGS), "type", "type", "undo", "redo"]);
      done.push(name);
      const before = steps();
      const [can, go] = WAYS[name] ?? [];
      try {
        go ? commit() : await DOINGS[name](random);
        if (!go && random.below(3)) commit();
        const isWritten = session.text === textOf(story);
        if (!go || steps() > before) known = known.slice(0, before + 1);
        if (isWritten) known[steps()] = found();
        for (let left = random.below(6); go && left > 0 && can(); left--) {
          go();
          assertTree(story);
          assert.deepEqual(found(), (known[steps()] ??= found()));
        }
      } catch (error) {
        throw new Error(`seed ${seed}, ${done}: ${error.message}`, { cause: error });
      }
    }
  }
  settle();
});

const reload = () => recall(structuredClone(asStored()));
const SENTENCE =
  "The fox, who was not young any more, went on 🦊🦊 slowly to Llanfairpwllgwyngyllgogerychwyrn. ";

test("what was typed without a pause is taken back word by word, and comes back as it was", () => {
  for (const [text, at] of [
    ["", 0],
    ["Once.", 5],
    ["It was late. It rained.", 12],
  ]) {
    const story = openedWith(text);
    type(SENTENCE.repeat(4), at);
    commit();
    const nodes = Object.keys(story.nodes).length;
    const whole = session.text;
    const texts = undone();
    assert.equal(texts.at(-1), text);
    assert.ok(texts.length > 40, `${texts.length} steps`);
    for (const [i, one] of texts.slice(1).entries()) {
      const gone = texts[i].slice(at, texts[i].length - (text.length - at));
      const kept = one.slice(at, one.length - (text.length - at));
      assert.ok(gone.startsWith(kept) && one.startsWith(text.slice(0, at)) && one.endsWith(text.slice(at)));
      assert.ok([...gone].length - [...kept].length <= 40);
      assert.ok(!/\S\s+\S/.test(gone.slice(kept.length)), "a word");
      assert.ok(one.isWellFormed());
    }
    assertTree(story);
    while (canRedo()) redo();
    assert.equal(session.text, whole);
    assert.equal(textOf(story), whole);
    assert.ok(Object.keys(story.nodes).length <= nodes);
  }
  settle();
});

test("what was deleted key by key comes back in parts of at most 40 characters", () => {
  const text = SENTENCE.replaceAll("🦊", "x").repeat(4);
  openedWith(`${text}The end.`);
  for (let at = text.length; at > 0; at--)
    typed(session.text.slice(0, at - 1) + session.text.slice(at), at - 1);
  commit();
  assert.equal(session.text, "The end.");
  const lengths = undone().map((one) => one.length);
  assert.equal(lengths.at(-1), text.length + 8);
  for (const [i, length] of lengths.slice(1).entries()) assert.ok(length - lengths[i] <= 41);
  settle();
});

test("what was pasted is one step, and typing beside it is not", () => {
  openedWith("");
  type("A few words ", 0);
  const pasted = SENTENCE.repeat(20);
  typed(session.text + pasted, session.text.length + pasted.length);
  type("more words", session.text.length);
  commit();
  const texts = undone();
  const at = texts.indexOf(`A few words ${pasted}`);
  assert.equal(texts[at + 1], "A few words ");
  settle();
});

test("undo reaches back 20,000 typed characters and 500 other changes, after a reload, too", async () => {
  const story = openedWith("Once. ");
  for (let left = 22_000; left > 0; left -= SENTENCE.length)
    for (const word of SENTENCE.match(/\S+\s/g) ?? []) {
      type(word, session.text.length);
      commit(); // as a pause does
    }
  reload();
  const size = JSON.stringify(asStored()).length;
  assert.ok(size < 700_000, `${size} characters are stored`);
  const [long, ...shorter] = undone();
  assert.ok(long.length - shorter.at(-1).length >= 20_000);
  assert.ok(shorter.length < 22_000 / 4, "older ones are forgotten");
  while (canRedo()) redo();
  assert.equal(session.text, long);
  for (let i = 0; i < 600; i++)
    await choose(addNode(story, story.current, { text: ` ${i}`, state: "stop" }).id);
  reload();
  const texts = undone();
  assert.ok(texts.length > 500);
  for (let i = 1; i <= 500; i++) assert.ok(texts[i].endsWith(` ${599 - i}`));
  settle();
});
