// Random stories, made as a writer makes them: typed, continued, cut, joined. The same for the same seed.

import assert from "node:assert/strict";

import {
  addNode,
  cutAt,
  drop,
  join,
  joinable,
  move,
  newStory,
  patchOf,
  pathTo,
  raise,
  split,
  tailOf,
  textOf,
  write,
} from "#studio/story/tree.js";

export const SEEDS = Number(process.env.SEEDS ?? 150); // of each law; tests/studio/test_pure.py sets them
const WORDS = ["The fox", " ran", " slept", ".", "a", " 🦊", " né 日本", "  ", "\t", "\n", "\n\n", "# One\n"];

/** A generator of numbers: mulberry32. */
export function randomOf(seed) {
  let state = seed;
  const next = () => {
    state = (state + 0x6d2b79f5) | 0;
    let t = Math.imul(state ^ (state >>> 15), 1 | state);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 2 ** 32;
  };
  const below = (n) => Math.floor(next() * n);
  const pick = (list) => list[below(list.length)];
  const words = (most) => Array.from({ length: 1 + below(most) }, () => pick(WORDS)).join("");
  return { next, below, pick, words };
}

/** Runs a law with the generators of all seeds; an error names its seed. */
export function eachSeed(law, seeds = SEEDS) {
  for (let seed = 1; seed <= seeds; seed++) {
    try {
      law(randomOf(seed));
    } catch (error) {
      throw new Error(`seed ${seed}: ${error.message}`, { cause: error });
    }
  }
}

/** A place of a text where a caret can stand, which is not within a character. */
export function placeIn(text, random) {
  const places = [0];
  for (const one of text) places.push(places.at(-1) + one.length);
  return random.pick(places);
}

const tokenOf = (text) => ({ text, logprob: -1, top: [{ text, logprob: -1 }] });
const tokensOf = (text) => (text.match(/\s*\S+|\s+/g) ?? []).map(tokenOf);

function candidate(random) {
  const text = random.words(3);
  const named = { tokens: tokensOf(text), ref: { id: "r", index: 0, from: 0, whole: true } };
  return { text, state: "stop", pinned: !random.below(4), ...(random.below(2) && named) };
}

/** Changes the text into another one by one change, as if it was typed. */
export function retype(story, text) {
  const [at, length, by] = patchOf(textOf(story), text);
  return write(story, length || by ? [[at, at + length, by]] : []);
}

/** Changes at random places of a text, in order. */
export function changesOf(text, random, most = 3) {
  const ends = Array.from({ length: 2 * (1 + random.below(most)) }, () => placeIn(text, random));
  ends.sort((a, b) => a - b);
  const pairs = ends.flatMap((from, i) => (i % 2 ? [] : [[from, ends[i + 1]]]));
  return pairs.map(([from, to]) => [from, to, random.below(4) ? random.words(2) : ""]);
}

/** What a writer does to a story. */
export const ACTIONS = {
  type(story, random) {
    const text = textOf(story);
    const [from, to] = [placeIn(text, random), placeIn(text, random)].sort((a, b) => a - b);
    const end = random.below(2) ? text.length : to; // mostly at the end
    const begin = end === text.length && random.below(3) ? end : from;
    retype(story, text.slice(0, begin) + random.words(3) + text.slice(Math.max(begin, end)));
  },
  replace(story, random) {
    write(story, changesOf(textOf(story), random));
  },
  take(story, random) {
    const id = random.pick(Object.keys(story.nodes));
    const tail = tailOf(story, id);
    if (tail) move(story, tail.id, id);
  },
  ask(story, random) {
    const at = placeIn(textOf(story), random);
    const id = random.below(2) ? story.current : cutAt(story, at).id;
    for (let n = 1 + random.below(3); n > 0; n--) addNode(story, id, candidate(random));
  },
  choose(story, random) {
    story.current = random.pick(Object.keys(story.nodes));
  },
  split(story, random) {
    const node = random.pick(Object.values(story.nodes));
    split(story, node.id, placeIn(node.text, random));
  },
  join(story, random) {
    const some = Object.keys(story.nodes).filter((id) => joinable(story, id));
    if (some.length) join(story, random.pick(some));
  },
  begin(story) {
    raise(story);
  },
  drop(story, random) {
    const leaves = Object.values(story.nodes).filter((node) => node.parent && !node.children.length);
    if (leaves.length) drop(story, random.pick(leaves));
  },
};

/** Changes a story by random actions, each of which `check` sees; returns it. */
export function lived(story, random, steps = random.below(12), actions = Object.keys(ACTIONS)) {
  for (let step = 0; step < steps; step++) ACTIONS[random.pick(actions)](story, random);
  return story;
}

export const randomStory = (random, steps = 2 + random.below(20)) => lived(newStory("Fox"), random, steps);

/** The texts from the root to each node, sorted: what a writer can go to. */
export const places = (story) =>
  Object.keys(story.nodes)
    .map((id) => textOf(story, id))
    .sort();

/** The places of one story that another one has not. */
export function lost(before, story) {
  const there = new Set(places(story));
  return [...new Set(before)].filter((text) => !there.has(text));
}

/** Whether the pieces from a node on have a text, or more if it is `open`: each next one is behind it or was,
    maybe with another piece between. */
export function hasText(story, id, text, open = false) {
  const { text: own, children, tail } = story.nodes[id];
  if (own === text || (open && own.startsWith(text))) return true;
  const [, whole, from] = /^(.*)__(\d+)$/.exec(id) ?? [id, id, "0"];
  const rest = `${whole}__${Number(from) + own.length}`;
  const nexts = [...children, tail, rest].filter((one) => story.nodes[one]);
  for (const one of nexts) nexts.push(...story.nodes[one].children.filter((child) => !nexts.includes(child)));
  return text.startsWith(own) && nexts.some((next) => hasText(story, next, text.slice(own.length), open));
}

/** The texts of nodes that a story had and has not any more, whole or in pieces. */
export const lostPieces = (before, story) =>
  Object.values(before.nodes)
    .filter(({ id, text }) => text && !(story.nodes[id] && hasText(story, id, text)))
    .map(({ text }) => text);

/** The source of each character of a text. */
export const sourcesOf = (story) =>
  pathTo(story).flatMap(({ text, source }) => Array.from({ length: text.length }, () => source));

/** A tree as texts within texts: without ids. */
export function shape(story, id = story.root) {
  const { text, source, children } = story.nodes[id];
  return [source, text, id === story.current, ...children.map((child) => shape(story, child))];
}

/** Whether a story is one tree: each node is its parent's child, once, and the root reaches all. */
export function assertTree(story) {
  const nodes = Object.values(story.nodes);
  assert.equal(story.nodes[story.root].parent, null);
  assert.ok(story.nodes[story.current], "the text ends at a node");
  const children = nodes.flatMap((node) => node.children);
  const all = Object.keys(story.nodes).sort();
  assert.deepEqual([...children, story.root].sort(), all, "each node has one parent");
  for (const node of nodes) {
    for (const child of node.children) assert.equal(story.nodes[child].parent, node.id);
    assert.equal(pathTo(story, node.id)[0].id, story.root);
  }
}
