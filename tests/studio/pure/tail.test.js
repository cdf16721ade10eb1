// A change of the text moves what stands behind it: whatever a writer does, the text behind stays as it was.

import "./page.js";
import assert from "node:assert/strict";
import { test } from "node:test";
import { choose } from "#studio/candidates/choosing.js";
import { fromFile, toJson } from "#studio/files/exchange.js";
import { merge } from "#studio/story/merge.js";
import { DEFAULTS, refresh, session, setPoint } from "#studio/story/session.js";
import {
  addNode,
  cutsAt,
  drop,
  layout,
  move,
  newStory,
  pathTo,
  promptFor,
  reached,
  rewritten,
  spans,
  spelling,
  tailOf,
  textOf,
  write,
} from "#studio/story/tree.js";
import { asStored, canUndo, commit, recall, redo, typed, undo } from "#studio/text/history.js";
import { shareOfModel } from "#studio/text/share.js";
import { DOINGS, opened } from "./hour.js";
import {
  assertTree,
  changesOf,
  eachSeed,
  lostPieces,
  placeIn,
  randomOf,
  randomStory,
  SEEDS,
  sourcesOf,
} from "./trees.js";

/** The parts of a text that changes leave as they are, as [begin in the old text, begin in the new one,
    length]. */
function kept(text, changes) {
  const parts = [];
  let [end, shift] = [0, 0];
  for (const [from, to, by] of [...changes, [text.length, text.length, ""]]) {
    parts.push([end, end + shift, from - end]);
    shift += by.length - (to - from);
    end = to;
  }
  return parts;
}

test("a change leaves the sources of all other characters, and the nodes behind it with all they have", () =>
  eachSeed((random) => {
    const story = randomStory(random);
    const [before, text, sources] = [structuredClone(story), textOf(story), sourcesOf(story)];
    const changes = changesOf(text, random);
    write(story, changes);
    assertTree(story);
    assert.equal(textOf(story), rewritten(text, changes));
    const leaf = before.nodes[before.current];
    const isOpen = leaf.source === "user" && !leaf.children.length; // it is typed in place, or found again
    const end = isOpen ? text.length - leaf.text.length : text.length;
    const now = sourcesOf(story);
    for (const [old, at, length] of kept(text, changes)) {
      const most = Math.max(0, Math.min(length, end - old));
      assert.deepEqual(now.slice(at, at + most), sources.slice(old, old + most));
    }
    if (isOpen) delete before.nodes[leaf.id];
    assert.deepEqual(lostPieces(before, story), []);
    const path = pathTo(before);
    const last = changes.at(-1)[1];
    let begin = 0;
    for (const { id, text: own, tokens, children } of path) {
      const isBehind = begin >= last && id !== before.root && before.nodes[id];
      begin += own.length;
      if (!isBehind) continue;
      const { children: all, ...node } = story.nodes[id];
      assert.deepEqual([node.text, node.tokens], [own, tokens], "it is behind the change");
      for (const child of children) assert.ok(all.includes(child), "with its candidates");
    }
  }));

test("going to an old piece takes the tail along, and going to the new one, too", () =>
  eachSeed((random) => {
    const story = randomStory(random);
    const text = textOf(story);
    const [from, to] = [placeIn(text, random), placeIn(text, random)].sort((a, b) => a - b);
    const tail = pathTo(story).at(-1);
    if (from === to || to > text.length - tail.text.length || to === text.length) return;
    write(story, [[from, to, "NEW"]]);
    const there = new Set(Object.keys(story.nodes));
    const fresh = pathTo(story).find((node) => node.text === "NEW");
    const [first] = fresh.children;
    const isOld = (node) => node.tail === first && textOf(story, node.id) === text.slice(0, to);
    const piece = Object.values(story.nodes).find(isOld);
    assert.ok(piece, "the old piece knows its tail");
    assert.equal(tailOf(story, piece.id).id, first);
    move(story, tailOf(story, piece.id).id, piece.id);
    assert.equal(textOf(story), text);
    move(story, tailOf(story, fresh.id).id, fresh.id);
    assert.equal(textOf(story), `${text.slice(0, from)}NEW${text.slice(to)}`);
    assert.deepEqual(new Set(Object.keys(story.nodes)), there);
    assertTree(story);
  }));

// ---- a writer's hour -----------------------------------------------------------------------------------

test("undo and redo of a change, a choice or a way to a branch add no node", async () => {
  for (let seed = 1; seed <= SEEDS; seed++) {
    const random = randomOf(seed);
    const story = opened(random);
    const [before, begun] = [textOf(story), Object.keys(story.nodes)];
    const name = random.pick(["type", "replaceAll", "choose", "goTo"]);
    const after = await DOINGS[name](random);
    commit();
    const known = new Set([...begun, ...Object.keys(story.nodes)]); // what was removed comes back
    if (!canUndo()) continue;
    for (const [go, text] of [...Array(2)].flatMap(() => [
      [undo, before],
      [redo, after],
    ])) {
      go();
      assert.equal(textOf(story), text, `seed ${seed}, ${name}`);
      assert.ok(Object.keys(story.nodes).length <= known.size, `seed ${seed}, ${name}`);
    }
  }
});

test("undo finds the piece before one that a change has removed, though that change has cut it", () => {
  const story = newStory();
  for (const text of ["The fox ran. ", "It"]) {
    story.current = addNode(story, story.current, { text, source: "user" }).id;
    addNode(story, story.current, { text: "a candidate" });
  }
  drop(story, story.nodes[story.nodes[story.current].children[0]]);
  Object.assign(session, { story, error: null });
  recall(null);
  refresh();
  const changes = [
    [3, 3, " old"],
    [13, 15, ""],
  ];
  typed(rewritten(session.text, changes), 0, changes);
  undo();
  assert.deepEqual(
    pathTo(story).map(({ text }) => text),
    ["", "The", " fox ran. ", "It"],
  );
});

/** A story with rewrites of its first word, of which none is chosen. */
function asked() {
  const story = newStory();
  Object.assign(session, { story, error: null, settings: { ...DEFAULTS, next: false } });
  recall(null);
  refresh();
  writeAll("The fox ran.");
  const [old, point] = cutsAt(story, [3, 0]).ends;
  const tail = story.current;
  const rewrite = addNode(story, point, { text: "One", state: "stop", replaces: "The", tail }).id;
  return { story, point, old, rewrite };
}

/** Types a text in place of all that is there. */
function writeAll(text) {
  typed(text, text.length, [[0, session.text.length, text]]);
  commit();
}

const CHOICES = [
  ["a rewrite", "The fox ran.", "rewrite", "One fox ran."],
  ["a rewrite of what stands within a piece", "The fox slept.", "rewrite", "One fox slept."],
  ["a rewrite of what is gone", "It slept.", "rewrite", "One It slept."],
  ["the old text, of which all is gone", "It slept.", "old", "The It slept."],
];

test("a choice keeps all text but the passage that it is another version of", async () => {
  for (const [what, text, which, wanted] of CHOICES) {
    const all = asked();
    writeAll(text);
    session.at = 0;
    setPoint(all.point);
    for (const press of ["pressed", "pressed twice"]) {
      await choose(all[which]);
      assert.equal(session.text, wanted, `${what}, ${press}`);
      assertTree(all.story);
    }
    undo();
    assert.equal(session.text, text, what);
  }
});

/** Where the caret is, the candidate behind “a fire”, and the text after the choice. */
const BEFORE_A_BLANK = [
  [6, "place", "a fireplace burns"],
  [7, "place", "a fire place burns"],
  [9, "place", "a fireplace burns"],
  [9, " went", "a fire went burns"],
];

test("a blank is the writer's before a candidate only if the caret is behind it", async () => {
  for (const [at, text, wanted] of BEFORE_A_BLANK) {
    const story = newStory();
    Object.assign(session, { story, error: null, settings: { ...DEFAULTS, next: false } });
    recall(null);
    const [point, ...others] = ["a fire", " ", "burns"];
    story.current = addNode(story, story.root, { text: point, source: "user" }).id;
    const card = addNode(story, story.current, { text, state: "stop" }).id;
    for (const one of others) story.current = addNode(story, story.current, { text: one, source: "user" }).id;
    refresh(at);
    setPoint(story.nodes[card].parent);
    await choose(card);
    assert.equal(session.text, wanted, `${text}, ${at}`);
  }
});

test("a card that is pressed before what was typed is in the tree keeps that", async () => {
  const { story, rewrite } = asked();
  typed("The fox ran. So", 15);
  await choose(rewrite);
  assert.equal(session.text, "One fox ran. So");
  const card = addNode(story, story.current, { text: " did I.", state: "stop" });
  setPoint(null);
  typed("One fox ran. So it was.", 23);
  await choose(card.id);
  assert.equal(session.text, "One fox ran. So did I. it was.");
});

test("in an hour of a writer text, tree, path and sources agree, and nothing is lost", async () => {
  for (let seed = 1; seed <= SEEDS; seed++) {
    const random = randomOf(seed);
    const story = opened(random);
    for (let step = 0; step < 30; step++) {
      const name = random.pick(Object.keys(DOINGS));
      const before = structuredClone(story);
      try {
        const text = await DOINGS[name](random);
        assert.equal(session.text, text);
        assert.equal(
          spans(story, text)
            .map(([, part]) => part)
            .join(""),
          text,
          "before it is in the tree",
        );
        if (random.below(2)) commit();
        if (session.text !== textOf(story)) continue; // a burst goes on
        assertTree(story);
        for (const { id, source } of Object.values(before.nodes)) {
          if (source === "user")
            delete before.nodes[id]; // typing goes on there, or takes it back
          else assert.ok(story.nodes[id], "no candidate is removed");
        }
        assert.deepEqual(lostPieces(before, story), []);
      } catch (error) {
        throw new Error(`seed ${seed}, step ${step}, ${name}: ${error.message}`, { cause: error });
      }
    }
  }
});

// ---- long stories --------------------------------------------------------------------------------------

const LONG = 50_000;

/** A story of so many pieces behind each other. */
function chain(count) {
  const story = newStory();
  for (let i = 0; i < count; i++) {
    const ref = { id: "r", index: i, from: 0, whole: true, before: "" };
    story.current = addNode(story, story.current, {
      text: `${i} `,
      source: i % 2 ? "user" : "model",
      ref,
    }).id;
  }
  return story;
}

test("a story of 50,000 pieces is written, spelt, drawn, merged, asked for and exported", async () => {
  const story = chain(LONG);
  const [text, end] = [textOf(story), story.current];
  const { places, rows, columns } = layout(story, () => true);
  assert.deepEqual([places.length, rows, columns], [2, 1, 2], "one place behind the beginning");
  assert.equal(places[1].chain.length, LONG);
  assert.equal(spelling(story, story.root, text).id, end);
  const { nodes } = write(story, [[0, 2, "Once "]]);
  assert.ok(nodes.length < 20, "few nodes change");
  assert.equal(textOf(story), `Once ${text.slice(2)}`);
  assert.equal(story.current, end);
  assert.equal(promptFor(story, end, () => true).prompt, textOf(story));
  assert.equal(spans(story, `x${textOf(story)}`).length, LONG + 2);
  const theirs = structuredClone(story);
  theirs.current = addNode(theirs, end, { text: "The end." }).id;
  assert.equal(merge(story, theirs).added, 1);
  assert.equal(Object.keys(reached(story.root, story.nodes)).length, LONG + 2);
  const found = await fromFile(new File([toJson(story)], "long.json"));
  assert.equal(textOf(found), textOf(story));
});

const BOOK = { chapters: 40, pieces: 1000, words: 100 };

test("100 changes in the first chapter of a book add at most 200 KB, with their undo steps", async () => {
  const story = newStory();
  for (let i = 0; i < BOOK.pieces; i++) {
    const head = i % (BOOK.pieces / BOOK.chapters) ? "" : "# Chapter\n";
    const text = head + "word ".repeat(BOOK.words);
    const [chosen] = [text, "other"].map((one) =>
      addNode(story, story.current, { text: one, state: "stop" }),
    );
    story.current = chosen.id;
  }
  Object.assign(session, { story, error: null, settings: { ...DEFAULTS } });
  recall(null);
  refresh();
  const before = toJson(story).length;
  const random = randomOf(1);
  for (let i = 0; i < 100; i++) {
    const at = 5 * random.below(2000);
    const by = `changed ${i} `;
    typed(session.text.slice(0, at) + by + session.text.slice(at + 5), at + by.length);
    commit();
  }
  const added = toJson(story).length - before + JSON.stringify(asStored()).length;
  assert.ok(added <= 200_000, `${added} characters`);
  const sources = sourcesOf(story).filter((source) => source !== "model").length;
  assert.ok(sources < 100 * 12, "all else is still the model's");
});

// ---- how much is the model's ---------------------------------------------------------------------------

test("the model's share is that of its characters without spaces, as they are coloured", () =>
  eachSeed((random) => {
    const story = randomStory(random);
    const [node] = Object.values(story.nodes).filter(({ source }) => source === "model");
    if (node && random.below(2)) node.source = "edit";
    const at = placeIn(textOf(story), random);
    const text = textOf(story).slice(0, at) + random.pick(["", "x y"]) + textOf(story).slice(at);
    const parts = spans(story, text);
    const letters = (kinds) =>
      parts.flatMap(([one, part]) =>
        kinds.includes(one?.source ?? "user") ? (part.match(/\S/gu) ?? []) : [],
      ).length;
    const [models, all] = [letters(["model"]), letters(["model", "user", "edit"])];
    const share = shareOfModel(parts);
    if (!all) assert.equal(share, null);
    else assert.ok(Math.abs(share - (100 * models) / all) < 1, `${share}: ${models} of ${all}`);
    assert.equal(share === 100, all > 0 && models === all);
    assert.equal(share === 0, all > 0 && models === 0);
  }));
