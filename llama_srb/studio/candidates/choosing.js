// Choosing a candidate, editing one, and keeping pieces of text on the shelf.

import { candidates, isChat, refresh, say, session, setPoint } from "../story/session.js";
import * as store from "../story/store.js";
import { addNode, around, behind, childrenOf, cutAt, join, joinable, split, textOf } from "../story/tree.js";
import { commit, note, redirect, takeTail, typed } from "../text/history.js";
import { changed } from "../ui/ui.js";
import { ask, awaitPause } from "./asking.js";
import { tailOfPassage } from "./rewrite.js";
import { freeze } from "./stopping.js";

/** @import { Story, TreeNode } from "../story/tree.js" */

/** Adds a candidate to the text, up to `end` if given, and requests the next ones. The text behind moves
    there.
    @type {(id: string, end?: number | null) => Promise<void>} */
export async function choose(id, end = null) {
  commit();
  const step = note();
  const { story } = session;
  const node = story.nodes[id];
  const [passage, last] = passageFor(story, node);
  const tail = passage ? tailOfPassage(story, parentOf(node), passage) : behindPoint(story);
  freeze(node);
  const rest = end === null ? null : split(story, id, end);
  const put = rest || !last ? id : last; // the last piece of what is chosen
  node.seen = true;
  if (!tail || !takeTail(step, tail, put)) story.current = put;
  session.compare = null;
  store.keep(story, around(story, id));
  refresh(isChat() ? 0 : textOf(story, put).length);
  setPoint(tail ? put : null);
  const isPart = isChat() || passage;
  if (session.settings.next && !isPart && !candidates().some((one) => one !== rest)) await ask();
}

/** @type {(story: Story) => TreeNode | undefined} */
const behindPoint = (story) =>
  session.point && !isChat() ? behind(story, session.point, session.at) : undefined;

/** @type {(node: TreeNode) => string} */
const parentOf = ({ parent }) => /** @type {string} */ (parent); // a candidate is no root

/** The passage in whose place a candidate is put, and its last piece: it rewrites that, or is the old text
    beside rewrites.
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
export function edit(id, text) {
  const { story } = session;
  const old = story.nodes[id];
  if (text === old.text) return;
  const { pinned, replaces, tail } = old;
  const parent = parentOf(old);
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

export function shelve(text) {
  session.story.scraps.push(text);
  store.keep(session.story);
  say("kept on the shelf");
  changed("shelf");
}

export function unshelve(index) {
  session.story.scraps.splice(index, 1);
  store.keep(session.story);
  changed("shelf");
}

export function insert(text) {
  const { at } = session;
  typed(session.text.slice(0, at) + text + session.text.slice(at), at + text.length);
  awaitPause();
  commit();
  refresh(at + text.length);
}
