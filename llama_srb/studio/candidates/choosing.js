// Choosing a candidate, editing one, and keeping pieces of text on the shelf.

import { candidates, isChat, refresh, say, session, setPoint } from "../story/session.js";
import * as store from "../story/store.js";
import {
  addNode,
  around,
  childrenOf,
  cutAt,
  join,
  joinable,
  split,
  textBehind,
  textOf,
} from "../story/tree.js";
import { commit, note, redirect, typed } from "../text/history.js";
import { changed } from "../ui/ui.js";
import { ask, awaitPause } from "./asking.js";
import { behindPassage } from "./rewrite.js";
import { freeze } from "./stopping.js";

/** @import { Story, TreeNode } from "../story/tree.js" */

/** Adds a candidate to the text, up to `end` if given, and requests the next ones.
    @type {(id: string, end?: number | null) => Promise<void>} */
export async function choose(id, end = null) {
  commit();
  note();
  const { story } = session;
  const node = story.nodes[id];
  const passage = passageFor(story, node);
  const rest = passage ? behindPassage(story, node.parent ?? story.root, passage) : behindPoint(story);
  freeze(node);
  const tail = end === null ? null : split(story, id, end);
  node.seen = true;
  story.current = id;
  const caret = isChat() ? 0 : textOf(story, id).length;
  const after = rest && addNode(story, id, { text: rest, source: "user" });
  if (after) story.current = after.id;
  session.compare = null;
  store.keep(story, around(story, id));
  refresh(caret);
  setPoint(after ? id : null);
  const isPart = isChat() || passage;
  if (session.settings.next && !isPart && !candidates().some((one) => one !== tail && one !== after))
    await ask();
}

/** @type {(story: Story) => string} */
const behindPoint = (story) =>
  session.point && !isChat() ? textBehind(story, session.point, session.at) : "";

/** The passage in whose place a candidate is put: it rewrites that, or is the old text beside rewrites.
    @type {(story: Story, node: TreeNode) => string | undefined} */
function passageFor(story, { replaces, text, parent }) {
  return replaces ?? childrenOf(story, parent ?? story.root).find((one) => one.replaces === text)?.replaces;
}

/** Adds the writer's edited version beside a candidate.
    @type {(id: string, text: string) => void} */
export function edit(id, text) {
  const { story } = session;
  const old = story.nodes[id];
  if (text === old.text) return;
  const { pinned, replaces } = old;
  const parent = /** @type {string} */ (old.parent);
  const node = addNode(story, parent, { text, source: "edit", state: "stop", pinned, replaces }, id);
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

/** Splits the text at the caret, so that the writer can return there. */
export function splitHere() {
  commit();
  const { story } = session;
  store.keep(story, around(story, cutAt(story, session.at).id));
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
