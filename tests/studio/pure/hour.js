// What a writer does within an hour, as the page does it: typing, choosing, going to branches, undo.

import "./page.js";
import assert from "node:assert/strict";
import { choose, splitHere } from "#studio/candidates/choosing.js";
import { gapBehind, spaced } from "#studio/candidates/joining.js";
import { passageIn, tailOfPassage } from "#studio/candidates/rewrite.js";
import { candidates, DEFAULTS, pointId, refresh, session, setPoint } from "#studio/story/session.js";
import {
  addNode,
  behind,
  childrenOf,
  cutAt,
  cutsAt,
  pathTo,
  rewritten,
  spaceBehind,
  tailOf,
  textFrom,
  textOf,
} from "#studio/story/tree.js";
import { canRedo, canUndo, commit, goTo, recall, redo, typed, undo } from "#studio/text/history.js";
import { changesOf, placeIn, randomStory } from "./trees.js";

/** A candidate behind the writer's space, should one stand there, unless it begins with one or a sign. */
function apart(story, point, own) {
  const space = own === spaced(own) ? null : spaceBehind(story, point, session.at);
  return (space?.text ?? "") + own;
}

/** What a writer does, as the page does it; returns the text that should be there then. */
export const DOINGS = {
  type(random) {
    const { text } = session;
    const [from, other] = [placeIn(text, random), placeIn(text, random)].sort((a, b) => a - b);
    const to = random.below(2) ? from : other;
    const by = random.words(2);
    typed(text.slice(0, from) + by + text.slice(to), from + by.length);
    return text.slice(0, from) + by + text.slice(to);
  },
  goOnTyping(random) {
    const { at, text } = session;
    const isBack = at > 0 && !random.below(3) && !/[\ud800-\udfff]/.test(text[at - 1]);
    const now = isBack ? text.slice(0, at - 1) + text.slice(at) : `${text.slice(0, at)}x${text.slice(at)}`;
    typed(now, isBack ? at - 1 : at + 1);
    return now;
  },
  replaceAll(random) {
    commit();
    const changes = changesOf(session.text, random);
    const now = rewritten(session.text, changes);
    typed(now, 0, changes);
    return now;
  },
  async choose(random) {
    commit();
    const { story, text } = session;
    const at = placeIn(text, random);
    const point = at === text.length ? null : cutAt(story, at).id;
    Object.assign(session, { at });
    setPoint(point);
    const own = random.words(2);
    if (passagesAt(story, pointId()).includes(own)) return text; // it would be the old text beside rewrites
    const { id } = addNode(story, point ?? story.current, {
      text: own,
      state: "stop",
      tokens: [{ text: own }],
    });
    const rest = point ? textFrom(story, behind(story, point, at)) : "";
    const put = apart(story, pointId(), own);
    await choose(id);
    const before = text.slice(0, at);
    return before + put + gapBehind(before, put, rest) + rest;
  },
  rewrite(random) {
    commit();
    const { story, text } = session;
    const [from, to] = [placeIn(text, random), placeIn(text, random)].sort((a, b) => a - b);
    const [begin, end] = passageIn(text, from, to) ?? [];
    if (end === undefined) return text;
    const point = cutsAt(story, [end, begin]).ends[1];
    const replaces = text.slice(begin, end);
    const tail = tailOfPassage(story, point, replaces)?.id;
    for (const own of [random.words(2), random.words(2)])
      addNode(story, point, { text: own, state: "stop", replaces, tail });
    Object.assign(session, { at: begin });
    setPoint(point, replaces);
    return text;
  },
  async chooseThere(random) {
    commit();
    const { story, text } = session;
    const point = pointId();
    const node = random.pick(candidates());
    if (!node) return text;
    const before = textOf(story, point);
    const rest = text.slice(before.length);
    const olds = oldsAt(story, point, rest);
    const texts = [node.text, apart(story, point, node.text)];
    const owns = node.replaces ? texts : [...texts, ...passagesAt(story, point)];
    const ways = owns.flatMap((own) => {
      const kept = olds.map((old) => rest.slice(old.length));
      return kept.map((behind) => before + own + gapBehind(before, own, behind) + behind);
    });
    for (let presses = 1 + random.below(2); presses > 0; presses--) await choose(node.id);
    assert.ok(ways.includes(session.text), `${JSON.stringify(session.text)} after ${JSON.stringify(text)}`);
    return session.text;
  },
  goTo(random) {
    commit();
    const { story } = session;
    const id = random.pick(Object.keys(story.nodes));
    const text = textOf(story, id) + textFrom(story, tailOf(story, id));
    goTo(id);
    return text;
  },
  split(random) {
    commit();
    Object.assign(session, { at: placeIn(session.text, random) });
    splitHere();
    return session.text;
  },
  undo: () => thereAndBack(canUndo, undo, redo),
  redo: () => thereAndBack(canRedo, redo, undo),
};

/** The passages that candidates at a point rewrite. */
const passagesAt = (story, point) => childrenOf(story, point).flatMap(({ replaces }) => replaces ?? []);

/** What a choice at a point may take the place of: blanks that were held back, a passage that stands there,
    or another version of one with what was typed within it. All other text stays. */
function oldsAt(story, point, rest) {
  const path = pathTo(story).slice(pathTo(story, point).length);
  let text = "";
  const versions = path[0]?.replaces ? path.map((node) => (text += node.text)) : [];
  const [blanks] = /^[ \t]*/.exec(rest);
  const held = Array.from({ length: blanks.length + 1 }, (_, i) => blanks.slice(0, i));
  return [...held, ...passagesAt(story, point).filter((one) => rest.startsWith(one)), ...versions];
}

/** Undoes or redoes, and takes it back some times in between, which finds the same nodes. */
function thereAndBack(can, go, back) {
  commit();
  const { story } = session;
  if (!can()) return textOf(story);
  const before = textOf(story);
  go();
  const there = textOf(story);
  const counts = [];
  for (let i = 0; i < 2; i++) {
    back();
    assert.equal(textOf(story), before);
    go();
    assert.equal(textOf(story), there);
    counts.push(Object.keys(story.nodes).length);
  }
  assert.equal(counts[1], counts[0]);
  return there;
}

/** Opens a random story, without undo. */
export function opened(random) {
  const story = randomStory(random);
  Object.assign(session, { story, error: null, settings: { ...DEFAULTS } });
  recall(null);
  setPoint(null);
  refresh();
  return story;
}
