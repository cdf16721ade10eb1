// Choosing a candidate, editing one, and keeping pieces of text on the shelf.

import * as passages from "../story/passages.js";
import { candidates, isChat, refresh, say, session, setPoint } from "../story/session.js";
import * as store from "../story/store.js";
import {
  addNode,
  around,
  behind,
  childrenOf,
  cutAt,
  cutsAt,
  goesOn,
  isBlank,
  isSpaced,
  join,
  joinable,
  meanLogprob,
  pathTo,
  spaceBehind,
  split,
  textFrom,
  textOf,
} from "../story/tree.js";
import { commit, note, redirect, takeTail, typed } from "../text/history.js";
import { changed } from "../ui/ui.js";
import { ask, awaitPause } from "./asking.js";
import { gapBehind, spaced } from "./joining.js";
import { quotedLike } from "./quotes.js";
import { behindPassage, tailOfPassage } from "./rewrite.js";
import { freeze } from "./stopping.js";

/** @import { Story, Token, TreeNode } from "../story/tree.js" */
/** @import { Step } from "../text/history.js" */

/** Adds a candidate to the text, up to `end` if given, and requests the next ones. The text behind moves
    there, behind a space if one is missing. A card may be pressed twice, or just after a change of the text
    that it continues.
    @type {(id: string, end?: number | null) => Promise<void>} */
export async function choose(id, end = null) {
  commit();
  const { story } = session;
  const node = story.nodes[id];
  const there = new Set(pathTo(story));
  if (there.has(node) || !there.has(story.nodes[parentOf(node)])) return;
  const step = note();
  const { passage, last, tail } = placeFor(story, node);
  freeze(node);
  if (!passage && node.source === "model") partFromWord(step, node);
  const rest = end === null ? null : split(story, id, end);
  const put = rest || !last ? id : last; // the last piece of what is chosen
  node.seen = true;
  quote(story, node);
  if (!tail || !takeTail(step, tail, withGap(story, node, put, tail))) story.current = put;
  session.compare = null;
  store.keep(story, around(story, id));
  refresh(isChat() ? 0 : textOf(story, put).length);
  setPoint(tail ? put : null);
  const isPart = isChat() || passage;
  if (session.settings.next && !isPart && !candidates().some((one) => one !== rest)) await ask();
}

/** Puts a candidate that would end the word before it behind the space that was typed since.
    @type {(step: Step, node: TreeNode) => void} */
function partFromWord(step, node) {
  const space = isChat() ? null : spaceBehind(session.story, parentOf(node), session.at);
  if (space && spaced(node.text) !== node.text) takeTail(step, node, space.id);
}

/** Gives a candidate the quotation marks of the text, unless it is in use already. The server's sequence has
    the other ones, so a candidate whose text has changed is not continued by its name: the text is sent.
    @type {(story: Story, node: TreeNode) => void} */
function quote(story, node) {
  const { text, tokens } = node;
  const made = quotedText(story, node);
  if (made === text) return;
  const isSpelt = made.length === text.length && tokens?.map((token) => token.text).join("") === text;
  let at = 0;
  /** @type {(token: Token) => Token} */
  const respelt = (token) => ({ ...token, text: made.slice(at, (at += token.text.length)) });
  const mean = meanLogprob(node) ?? undefined;
  Object.assign(node, { text: made, ref: null, mean, tokens: isSpelt ? tokens.map(respelt) : null });
}

/** The text that a candidate gets when it is chosen.
    @type {(story: Story, node: TreeNode) => string} */
function quotedText(story, node) {
  if (isChat() || node.source !== "model" || goesOn(story, node)) return node.text;
  return quotedLike(node.text, textOf(story), textOf(story, parentOf(node)), story.lang);
}

/** The text of a candidate as it would stand in the story's, with a space that is missing before or behind
    it. The writer's space before it stands there already, behind its place.
    @type {(story: Story, node: TreeNode) => string} */
export function asChosen(story, node) {
  const parent = parentOf(node);
  const text = quotedText(story, node);
  if (!text) return "";
  if (isSpaced(story, parent, session.at)) return spaced(text);
  const rest = node.replaces
    ? behindPassage(story, parent, node.replaces)
    : textFrom(story, behind(story, parent, session.at));
  return text + gapBehind(textOf(story, parent), text, rest);
}

/** Where the tail moves: behind what is chosen, or behind the space that is missing there. The space is a
    piece of the writer's between the two, so that what is chosen stays as it is, and undo leaves it behind.
    @type {(story: Story, node: TreeNode, put: string, tail: TreeNode) => string} */
function withGap(story, node, put, tail) {
  const before = textOf(story, parentOf(node));
  const text = textOf(story, put).slice(before.length);
  const gap = gapBehind(before, text, textFrom(story, tail));
  if (!gap) return put;
  const known = childrenOf(story, put).find((one) => isBlank(one) && one.text === gap);
  const space = known ?? addNode(story, put, { text: gap, source: "user" });
  store.keep(story, [story.nodes[put], space]);
  return space.id;
}

/** @type {(node: TreeNode) => string} */
const parentOf = ({ parent }) => /** @type {string} */ (parent); // a candidate is no root

/** What begins the text behind a candidate. In the place of a passage, if one stands there that it is another
    version of, it is what is behind that, and `last` the candidate's last piece.
    @type {(story: Story, node: TreeNode) => {passage?: string, last?: string, tail?: TreeNode | null}} */
function placeFor(story, node) {
  const parent = parentOf(node);
  const [passage, last] = passageFor(story, node);
  if (passage) {
    const end = textOf(story, parent).length + passage.length;
    const isCut = tailOfPassage(story, parent, passage) !== undefined;
    if (!isCut && stands(story, parent, passage)) store.keep(story, cutsAt(story, [end]).changed);
    const tail = tailOfPassage(story, parent, passage);
    if (tail !== undefined) return { passage, last, tail };
  }
  return { tail: isChat() ? null : behind(story, parent, session.at) };
}

/** @type {(story: Story, id: string, passage: string) => boolean} */
const stands = (story, id, passage) => textOf(story).startsWith(passage, textOf(story, id).length);

/** The passage in whose place a candidate may be put, and its last piece: it rewrites that, or is the old
    text beside rewrites.
    @type {(story: Story, node: TreeNode) => [passage?: string, last?: string]} */
function passageFor(story, node) {
  if (node.replaces) return [node.replaces, node.id];
  const passages = childrenOf(story, parentOf(node)).flatMap(({ replaces }) => replaces ?? []);
  let text = "";
  for (let piece = node; piece; piece = story.nodes[piece.children[0]]) {
    text += piece.text;
    if (passages.includes(text)) return [text, piece.id];
    if (piece.children.length !== 1) break;
  }
  return [];
}

/** Adds the writer's edited version beside a candidate.
    @type {(id: string, text: string) => void} */
export function edit(id, written) {
  const { story } = session;
  const old = story.nodes[id];
  if (written === old.text) return;
  const { pinned, replaces, tail } = old;
  const parent = parentOf(old);
  const isApart = /^\s/.test(old.text); // nobody sees that space while editing
  const text = (isApart ? gapBehind("", textOf(story, parent), written) : "") + written;
  const node = addNode(story, parent, { text, source: "edit", state: "stop", pinned, replaces, tail }, id);
  old.aside = true;
  store.keep(story, [node, old, story.nodes[parent]]);
  changed("story");
}

/** @type {(id: string, fields: Partial<TreeNode>) => void} */
export function mark(id, fields) {
  const node = session.story.nodes[id];
  Object.assign(node, fields);
  store.keep(session.story, [node]);
  changed("story", id);
}

/** Splits the text at the caret, so that the writer can return there: a bookmark, so that the tree shows it.
 */
export function splitHere() {
  commit();
  const { story } = session;
  const node = cutAt(story, session.at);
  if (node.text) node.bookmark = true;
  store.keep(story, around(story, node.id));
  changed("story");
}

/** Joins a node with its parent.
    @type {(id: string) => void} */
export function joinToParent(id) {
  const { story } = session;
  const gone = joinable(story, id)?.id;
  if (!gone) return;
  store.keep(story, join(story, id));
  redirect(gone, id);
  if (session.point === gone) setPoint(null);
  changed("story");
}

/** Sends the writer's message in a chat.
    @type {(text: string) => Promise<void>} */
export async function sayInChat(text) {
  note();
  const { story } = session;
  const said = story.current;
  const node = addNode(story, said, { text, source: "user" });
  story.current = node.id;
  setPoint(null);
  store.keep(story, [node, story.nodes[said]]);
  refresh();
  await ask();
}

// ---- the shelf ---------------------------------------------------------------------------------------

/** @type {(pieces: passages.Pieces) => void} */
export function shelve(pieces) {
  passages.put(session.story, pieces);
  store.keep(session.story);
  say("kept on the shelf");
  changed("shelf");
}

export function unshelve(index) {
  passages.take(session.story, index);
  store.keep(session.story);
  changed("shelf");
}

/** Puts a passage at the caret, which stays its writer's; an opening is taken for the writer's.
    @type {(kept: string) => void} */
export function insert(kept) {
  const { at, story } = session;
  const [before, behind] = [session.text.slice(0, at), session.text.slice(at)];
  const isApart = /(?:^|\s)$/.test(before);
  const begun = isApart ? kept.trimStart() : kept;
  const text = isApart ? begun : gapBehind("", before, kept) + kept;
  typed(before + text + gapBehind(before, text, behind) + behind, at + text.length);
  awaitPause();
  commit();
  const pieces = passages.without(passages.piecesOf(story, kept) ?? [], kept.length - begun.length);
  if (pieces.length) store.keep(story, passages.give(story, at + text.length, pieces));
  refresh(at + text.length);
}
