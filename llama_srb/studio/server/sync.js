// Stories on the server (--stories): each change here goes there, each change of another device comes here.
//
// A story's `base` says which version of the server it has last been equal to: {version, at}, `at` being the
// story's own time of change then. What was changed in both places is a conflict, which the writer decides.
// The tokens of candidates stay in this browser: they are many, and another device can read without them.

import { finished, leaveAll } from "../candidates/stopping.js";
import { ours } from "../files/exchange.js";
import { moveCaret } from "../story/carets.js";
import { beginOf } from "../story/finding.js";
import { list, REMOVED, replaceOpen } from "../story/library.js";
import { lay, merge, withTokens } from "../story/merge.js";
import { fail, session } from "../story/session.js";
import * as store from "../story/store.js";
import { duties } from "../story/tabs.js";
import { checkFormat, hashed, isUnnamed, newId, shownName, textOf, titled } from "../story/tree.js";
import { commit } from "../text/history.js";
import { changed } from "../ui/ui.js";
import { call, isAway, send } from "./api.js";

const EVERY_MS = 10_000; // to learn of other devices
const QUIET_MS = 2000; // after a change, until it is sent
const STORY_MS = 300_000; // for an answer with a story, which may be long, and its line slow
const PATH = "v1/stories";
const CHANGED = 412; // the server's answer where a story has another version by now

/** @import { Head, Story } from "../story/tree.js" */

/** A story as the server lists it; `state`: "kept", "trash" or "removed".
    @typedef {{id: string, version: string, name: string, state: string}} Listed */

/** The state of the exchange. `on`: whether the server stores stories; null: not known. `at`: when all was
    equal. `refused`: the stories that cannot be exchanged, by their ids.
    @type {{on: boolean | null, error: string | null, at: number | null,
      refused: Map<string, {name: string, message: string}>}} */
export const sharing = {
  on: null,
  error: null,
  refused: new Map(),
  at: null,
};
/** @type {number | undefined} */
let timer;
let working = false;
let next = EVERY_MS; // from the end of the round that runs

/** Exchanges stories for as long as the page is open, once the server has said that it keeps them. */
export function share() {
  store.saving.push((saved) => saved && sharing.on && later(QUIET_MS));
  addEventListener("online", () => later(0));
  document.addEventListener("visibilitychange", () => round(true)); // nothing runs while it is hidden
}

/** Begins a round in so many milliseconds; if one runs, so many behind it, or sooner.
    @type {(ms: number) => void} */
export function later(ms) {
  next = Math.min(next, ms);
  if (working) return;
  clearTimeout(timer);
  timer = setTimeout(() => round(), ms);
}

async function round(isNow = false) {
  if (working) return later(0);
  if (!session.fields) return; // status.js begins when the server is known
  if (session.fields.stories === false) {
    sharing.on = false;
    return changed("saved");
  }
  working = true;
  next = EVERY_MS;
  try {
    if (isNow || !document.hidden) await exchange();
    if (sharing.on) sharing.error = null;
  } catch (error) {
    if (error.status === 501) sharing.on = false;
    else sharing.error = messageOf(error);
  }
  working = false;
  changed("saved");
  if (sharing.on !== false) later(next);
}

/** @type {(method: string, id: string, story?: object, condition?: Record<string, string>)
      => Promise<Response>} */
const exchanged = (method, id, story, condition) =>
  send(method, `${PATH}/${id}`, story, AbortSignal.timeout(STORY_MS), condition);

/** @type {(error: Error) => string} */
const messageOf = (error) => (isAway(error) ? "the server does not answer" : error.message);

async function exchange() {
  const { data } = await call("GET", PATH);
  sharing.on = true;
  await sendRemoved(data);
  const { own, isFirst, elsewhere } = await duties();
  commit();
  if (!(await store.flush())) return;
  const heads = new Map((await store.stories()).map((head) => [head.id, head]));
  const entries = new Map(data.map((entry) => [entry.id, entry]));
  const isMine = (id) => (id === session.story.id ? own : isFirst && !elsewhere.has(id));
  let isEqual = true;
  for (const id of new Set([...heads.keys(), ...entries.keys()]))
    if (isMine(id)) isEqual = (await tried(id, heads.get(id), entries.get(id))) && isEqual;
  for (const id of sharing.refused.keys()) if (!heads.has(id) && !entries.has(id)) sharing.refused.delete(id);
  if (isEqual) sharing.at = Date.now();
  if (isFirst) await list();
}

/** @type {(data: Listed[]) => Promise<void>} */
async function sendRemoved(data) {
  for (const id of store.read(REMOVED, [])) {
    if (data.some((entry) => entry.id === id && entry.state !== "removed"))
      await call("DELETE", `${PATH}/${id}?forever=true`);
    store.save(
      REMOVED,
      store.read(REMOVED, []).filter((one) => one !== id),
    );
    data.splice(0, data.length, ...data.filter((entry) => entry.id !== id));
  }
}

/** Settles a story; what is in its way is told beside its name, and is in no other story's way.
    @type {(id: string, head?: Head, entry?: Listed) => Promise<boolean>} */
async function tried(id, head, entry) {
  try {
    const isEqual = await settle(id, head, entry);
    sharing.refused.delete(id);
    return isEqual;
  } catch (error) {
    if (isAway(error)) throw error;
    if (error.status === CHANGED) {
      later(QUIET_MS); // another device was faster: the next round reads what it has sent
      return false;
    }
    const isOpen = id === session.story?.id;
    if (isOpen && !sharing.refused.has(id)) fail(error); // the writer may go on, but knows
    sharing.refused.set(id, { name: await nameOf(id, head, entry), message: error.message });
    return false;
  }
}

/** @type {(id: string, head?: Head, entry?: Listed) => Promise<string>} */
async function nameOf(id, head, entry) {
  if (id === session.story?.id) return shownName(session.story);
  return (head && isUnnamed(head) && (await beginOf(head))) || ((head ?? entry)?.name ?? "");
}

/** Makes a story equal in both places; false if that has to wait.
    @type {(id: string, head?: Head, entry?: Listed) => Promise<boolean>} */
async function settle(id, head, entry) {
  if (head) checkFormat(head);
  if (!head) return !entry || entry.state === "removed" || fetchStory(entry, null);
  const isChanged = !head.base || head.changed !== head.base.at;
  const isKnown = head.base && entry?.version === head.base.version;
  if (id === session.story.id && session.runs.size) return false; // when the candidates are complete
  if (entry?.state === "removed" && !isChanged) return forget(head);
  if (!entry || entry.state === "removed") return put(head, null);
  if (isKnown && isChanged) return put(head, entry.version);
  if (isKnown) return follow(head, entry);
  return isChanged ? reconcile(head, entry) : fetchStory(entry, head);
}

/** Sends a story; `version`: the one that it replaces.
    @type {(head: Head, version: string | null) => Promise<boolean>} */
async function put(head, version) {
  const story = head.id === session.story.id ? session.story : await store.load(head.id);
  if (!story || (isEmpty(story) && !version)) return true;
  const { id, changed: at, trashed } = story; // as it is sent: it may change meanwhile
  /** @type {Record<string, string>} */
  const condition = version ? { "If-Match": `"${version}"` } : { "If-None-Match": "*" };
  await noteSent(story);
  const response = await exchanged("PUT", id, light(story), condition);
  const entry = await response.json();
  if (trashed) await call("DELETE", `${PATH}/${id}`);
  await keepBase(id, at, entry.version);
  return true;
}

/** What tells a version from all others, also of another device.
    @type {(story: Story) => string} */
const markOf = (story) => `${story.changed} ${hashed(textOf(story))}`;

/** Notes what is sent: if no answer comes, as when the page is left, the server may have it nevertheless.
    @type {(story: Story) => Promise<void>} */
async function noteSent(story) {
  const base = { ...(story.base ?? { version: "", at: -1 }), sent: markOf(story) };
  if (session.story !== story) return store.amend(story.id, story.changed, { base });
  story.base = base;
  store.keepAsIs(story); // stored at the latest when the page is left; nothing waits, as it may change
}

/** @type {(story: Story) => boolean} */
export const isEmpty = ({ nodes, name }) =>
  name === "Untitled" && Object.values(nodes).every(({ text }) => !text);

/** @type {(story: Story) => object} */
function light({ base: _, trashed: __, nodes, ...head }) {
  const some = Object.values(nodes).map(({ tokens: _, ref: __, ...node }) => [node.id, node]);
  return { ...head, nodes: Object.fromEntries(some) };
}

/** Notes that a story, as it was at its `changed`, is equal to a version of the server.
    @type {(id: string, at: number, version: string) => Promise<void>} */
async function keepBase(id, at, version) {
  const base = { version, at };
  if (session.story.id !== id) return store.amend(id, at, { base });
  session.story.base = base;
  store.keepAsIs(session.story);
  await store.flush();
}

/** Takes a change of the trash over from another device.
    @type {(head: Head, entry: Listed) => Promise<boolean>} */
async function follow(head, { version, state }) {
  const trashed = state === "trash" ? (head.trashed ?? Date.now()) : null;
  if (!head.trashed === !trashed) return true;
  if (head.id === session.story.id) return true; // not while it is open
  await store.amend(head.id, head.changed, { trashed, base: { version, at: head.changed } });
  return true;
}

/** @type {(head: Head) => Promise<boolean>} */
async function forget({ id }) {
  if (id === session.story.id) return true; // not while it is open
  await store.remove(id);
  return true;
}

/** Puts the server's version in place of ours, which has not changed, or which there is not.
    @type {(entry: Listed, head: Head | null) => Promise<boolean>} */
async function fetchStory(entry, head) {
  const { story } = await load(entry);
  const older = head && (await store.load(head.id));
  return take(older ? withTokens(story, older) : story, entry, head?.changed, older);
}

/** @type {(entry: Listed) => Promise<{story: Story, version: string}>} */
async function load({ id, version: listed }) {
  const response = await exchanged("GET", id);
  const version = response.headers.get("ETag")?.replaceAll('"', "") ?? listed;
  return { story: ours(await response.json(), id), version };
}

/** Puts a version in place of `older`, the story as it was at its time `at`; false if that has changed since.
    @type {(story: Story, entry: Listed, at?: number, older?: Story | null) => Promise<boolean>} */
async function take(story, { version, state }, at, older) {
  story.trashed = state === "trash" ? story.changed : null;
  story.base = { version, at: story.changed };
  return place(story, at, older);
}

/** @type {(story: Story, at?: number, older?: Story | null) => Promise<boolean>} */
async function place(story, at, older) {
  if (story.id === session.story.id) return replaceOpen(story, at) && store.flush();
  const isDone = await store.replace(story, at);
  if (isDone && older) moveCaret(story.id, textOf(older), textOf(story));
  return isDone;
}

/** A story with all that a version of the server has, which does not have all of it.
    @type {(story: Story, version: string) => Story} */
const united = (story, version) =>
  Object.assign(story, { base: { version, at: 0 }, changed: Date.now(), trashed: null });

const conflicts = new Map(); // story id → the versions here and there of a conflict, which are read once only

/** Both have changed: what one of them has is kept; else the writer decides.
    @type {(head: Head, entry: Listed) => Promise<boolean>} */
async function reconcile(head, entry) {
  const isOpen = head.id === session.story.id;
  const versions = `${head.changed} ${entry.version}`;
  const isKnown = session.conflict?.version === entry.version;
  if (isOpen ? isKnown : conflicts.get(head.id) === versions) return false;
  const mine = await store.load(head.id);
  if (!mine) return false; // another tab has removed it meanwhile
  const { story: remote, version } = await load(entry);
  if (mine.base?.sent === markOf(remote)) return put(head, version); // its answer was lost
  const here = merge(mine, remote);
  const there = merge(remote, mine);
  const { fields } = here;
  if (!fields.length && !here.added)
    return here.hasGrown || here.hasMoved
      ? place(united(here.story, version), mine.changed, mine)
      : put(head, version);
  if (!fields.length && !there.added) {
    const story = withTokens(there.story, mine);
    if (there.hasGrown || there.hasMoved) return place(united(story, version), mine.changed, mine);
    return take(story, { ...entry, version }, mine.changed, mine);
  }
  conflicts.set(head.id, versions);
  if (head.id === session.story.id && mine.changed === session.story.changed) {
    session.conflict = { remote, version, fields };
    changed("server");
  }
  return false;
}

/** Ends the conflict of the open story with this device's text or the other one; both stay as branches. If
    more than the text differs, the version that is not chosen is kept as a story of its own, too.
    @type {(isOther: boolean) => Promise<void>} */
export async function decide(isOther) {
  await finished(leaveAll);
  commit();
  if (!session.conflict) return; // a second click
  const { remote, version } = session.conflict;
  const { fields } = merge(session.story, remote);
  if (fields.length) await keepBeside(isOther ? session.story : remote);
  commit();
  const mine = session.story;
  const { story, paths } = merge(mine, remote);
  if (isOther) {
    const { parts, scraps, origins, banned } = merge(remote, mine).story;
    const { nodes: _, id: __, root: ___, ...others } = remote;
    Object.assign(story, others, { parts, scraps, origins, banned });
  }
  const [path, text] = isOther ? [paths.theirs, textOf(remote)] : [paths.mine, textOf(mine)];
  lay(story, path, text);
  replaceOpen(united(story, version), mine.changed);
  later(0);
}

/** @type {(story: Story) => Promise<void>} */
async function keepBeside({ base: _, ...story }) {
  await store.replace({ ...story, id: newId(), name: titled(shownName(story), " (other version)") });
  await list();
}
