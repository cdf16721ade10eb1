// Storage: stories, their nodes and their undo steps in IndexedDB, settings in localStorage.
//
// Writes are batched for a moment, and split into parts, because copying many tokens blocks the page. When
// the page is closed, all unwritten data goes to localStorage, which is written at once, including the part
// of an unfinished transaction, which the browser aborts. The next load restores it: a reload in mid-stream
// loses nothing.

import { checkFormat, FORMAT, newId, reached } from "./tree.js";

/** @import { Head, Story, TreeNode } from "./tree.js" */

/** @typedef {TreeNode & {story: string}} Stored a node, with its story's id */
/** @typedef {{heads: Head[], nodes: Stored[]}} Rescue what a closed page could not write to IndexedDB */

const BLOCKED = "Close the other tabs of the studio: one of them is of an older version and has the stories.";
const NEWER = "A newer studio has stored stories here: reload the page. Nothing was changed.";
const DELAY_MS = 500;
const AGAIN_MS = 5000; // after a write that the browser refused
const PART = 500; // tokens in one transaction
const RESCUE = "studio.rescue."; // and a number of its own for each page, since two may go away at once
/** @type {IDBDatabase} */
let database;
/** @type {number | null} */
let timer = null;
/** @type {Map<string, Head | Story>} */
const heads = new Map(); // story id → story, to be written
/** @type {Map<string, [string, TreeNode]>} */
const nodes = new Map(); // node id → [story id, node], to be written; to be deleted, if the node is gone
/** @type {[Head[], Stored[]]} */
let part = [[], []]; // what a transaction is at: stories without nodes, and nodes
/** @type {Promise<boolean>} */
let written = Promise.resolve(true); // resolves when all flushes so far have ended

/** @type {<T>(request: IDBRequest<T>) => Promise<T>} */
const done = (request) =>
  new Promise((resolve, reject) => {
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error);
  });

export async function open() {
  const request = indexedDB.open("llama-srb studio", 2);
  request.onupgradeneeded = ({ oldVersion }) => {
    const { result } = request;
    if (oldVersion < 1) {
      result.createObjectStore("stories", { keyPath: "id" });
      result.createObjectStore("nodes", { keyPath: ["story", "id"] });
    }
    result.createObjectStore("history", { keyPath: "story" });
  };
  const notice = document.createElement("p");
  /** @type {(textContent: string) => void} */
  const tell = (textContent) => document.body.append(Object.assign(notice, { textContent }));
  request.onblocked = () => tell(BLOCKED);
  request.onerror = () => request.error?.name === "VersionError" && tell(NEWER);
  database = await done(request);
  notice.remove();
  database.onversionchange = () => database.close(); // a newer page needs it
}

const rescues = () => Object.keys(localStorage).filter((key) => key.startsWith(RESCUE));

/** Restores what closed pages could write to localStorage only, unless it was written again since. */
async function recover() {
  for (const name of rescues()) {
    /** @type {Rescue} */
    const rescued = read(name, { heads: [], nodes: [] });
    const stories = database.transaction("stories").objectStore("stories");
    const stored = await Promise.all(rescued.heads.map(({ id }) => done(stories.get(id))));
    const isNewer = (/** @type {Head | undefined} */ one) => (one?.format ?? FORMAT) > FORMAT;
    const newHeads = rescued.heads.filter(
      (head, i) => !(stored[i]?.changed > head.changed) && !isNewer(stored[i]),
    );
    const ids = new Set(newHeads.map(({ id }) => id));
    try {
      await put(
        newHeads,
        rescued.nodes.filter(({ story }) => ids.has(story)),
      );
      localStorage.removeItem(name);
    } catch (error) {
      for (const tell of refused) tell(error);
    }
  }
}

/** @type {(story: string) => IDBKeyRange} */
const allOf = (story) => IDBKeyRange.bound([story], [story, []]);

/** @type {(work: IDBTransaction) => Promise<unknown>} */
const over = (work) =>
  new Promise((resolve, reject) => {
    work.oncomplete = resolve;
    work.onabort = () => reject(work.error ?? new Error("the write was aborted"));
  });

/** @type {(newHeads: Head[], newNodes: Stored[]) => Promise<void>} */
async function put(newHeads, newNodes) {
  const work = database.transaction(["stories", "nodes"], "readwrite");
  for (const head of newHeads) work.objectStore("stories").put(head);
  const all = work.objectStore("nodes");
  for (const node of newNodes) node.gone ? all.delete([node.story, node.id]) : all.put(node);
  await over(work);
}

/** @type {(story: Head & {nodes?: unknown}) => Head} */
const headOf = ({ nodes: _, ...head }) => head;

/** Schedules a write of the story's own fields and of its changed nodes.
    @type {(story: Head, changed?: TreeNode[]) => void} */
export function keep(story, changed = []) {
  story.changed = Math.max(Date.now(), story.changed + 1); // each change has another time
  heads.set(story.id, story);
  for (const node of changed) nodes.set(node.id, [story.id, node]);
  timer ??= setTimeout(flush, DELAY_MS);
  if (wasSaved) tellSaving(false);
}

/** Schedules a write of the story's own fields, and of nodes, which is no change of the writer's.
    @type {(story: Head, some?: TreeNode[]) => void} */
export function keepAsIs(story, some = []) {
  heads.set(story.id, story);
  for (const node of some) nodes.set(node.id, [story.id, node]);
  timer ??= setTimeout(flush, DELAY_MS);
}

/** Writes undo steps of a story. If the browser refuses, only undo after a reload is lost.
    @type {(steps: {story: string}) => Promise<void>} */
export async function keepHistory(steps) {
  try {
    const work = database.transaction("history", "readwrite");
    work.objectStore("history").put(steps);
    await over(work);
  } catch {}
}

const STEPS = "studio.steps"; // of a page that went away before they were stored

/** @type {(steps: {story: string}) => void} */
export function rescueHistory(steps) {
  try {
    save(STEPS, steps);
  } catch {} // they are too many
}

/** @type {(story: string) => Promise<any>} */
export async function historyOf(story) {
  const rescued = read(STEPS, null);
  if (rescued?.story === story) {
    localStorage.removeItem(STEPS);
    keepHistory(rescued);
    return rescued;
  }
  return (await done(database.transaction("history").objectStore("history").get(story))) ?? null;
}

/** Functions to call with whether everything is written, each time that this changes.
    @type {((saved: boolean) => void)[]} */
export const saving = [];
let wasSaved = true;

/** @type {(isSaved: boolean) => void} */
function tellSaving(isSaved) {
  wasSaved = isSaved;
  for (const tell of saving) tell(isSaved);
}

/** The next part to write, oldest first, up to `limit` tokens; a story comes after all its nodes.
    @type {(limit?: number) => [Head[], Stored[]]} */
function taken(limit = Infinity) {
  /** @type {Stored[]} */
  const some = [];
  for (const [id, [story, node]] of nodes) {
    if (limit <= 0) break;
    nodes.delete(id);
    some.push({ ...node, story });
    limit -= node.tokens?.length ?? 1;
  }
  const whole = nodes.size ? [] : [...heads.values()].map(headOf);
  if (whole.length) heads.clear();
  return [whole, some];
}

/** Schedules the parts of a failed transaction again, unless they have changed since. */
function reschedule() {
  for (const head of part[0]) if (!heads.has(head.id)) heads.set(head.id, head);
  for (const { story, ...node } of part[1]) if (!nodes.has(node.id)) nodes.set(node.id, [story, node]);
}

/** Writes all pending data, one call after the other; returns whether that succeeded. Refused data is tried
    again.
    @type {() => Promise<boolean>} */
export const flush = () => (written = written.then(writeAll));

/** @type {() => Promise<boolean>} */
async function writeAll() {
  clearTimeout(timer ?? undefined);
  timer = -1; // none is started
  let error = null;
  try {
    for (let left = nodes.size; nodes.size ? left > 0 : heads.size; left -= part[1].length) {
      part = taken(PART);
      await put(...part);
    }
  } catch (refusal) {
    error = refusal;
    reschedule();
  }
  part = [[], []];
  timer = heads.size ? setTimeout(flush, error ? AGAIN_MS : DELAY_MS) : null;
  for (const tell of refused) tell(error);
  if (!error && !heads.size) tellSaving(true);
  return !error;
}

/** Functions to call with the browser's error when it refuses a write, with null when a write succeeds.
    @type {((error: Error | null) => void)[]} */
export const refused = [];

/** Functions to call before the page is closed; they pass to keep() what is not stored yet.
    @type {(() => void)[]} */
export const leaving = [];

addEventListener("pagehide", () => {
  for (const tell of leaving) tell();
  reschedule();
  if (!heads.size) return;
  const [newHeads, newNodes] = taken();
  part = [[], []];
  const light = newNodes.map(({ tokens: _, ...node }) => node);
  rescue(newHeads, newNodes) || rescue(newHeads, light);
  put(newHeads, newNodes).catch(() => {});
});

/** False when there is no room; localStorage has only some megabytes.
    @type {(newHeads: Head[], newNodes: Stored[]) => boolean} */
function rescue(newHeads, newNodes) {
  try {
    localStorage.setItem(RESCUE + newId(), JSON.stringify({ heads: newHeads, nodes: newNodes }));
    return true;
  } catch {
    return false;
  }
}

/** All stories without their nodes, last changed first.
    @type {() => Promise<Head[]>} */
export async function stories() {
  await recover();
  const all = await done(database.transaction("stories").objectStore("stories").getAll());
  return all.sort((a, b) => b.changed - a.changed);
}

/** A stored story; Error if a newer page has stored it in another format.
    @type {(id: string) => Promise<Story | null>} */
export async function load(id) {
  await recover();
  const work = database.transaction(["stories", "nodes"]);
  const head = await done(work.objectStore("stories").get(id));
  if (!head) return null;
  checkFormat(head);
  return assembled(head, await done(work.objectStore("nodes").getAll(allOf(id))));
}

const AT_ONCE = 32; // nodes; the tokens of many more would hold up the page

/** A stored story for reading only: without its tokens, and the page answers while it is read. What is not
    written yet is written first.
    @type {(head: Head) => Promise<Story>} */
export async function loadTexts(head) {
  await flush();
  checkFormat(head);
  /** @type {Stored[]} */
  const all = [];
  for (let range = allOf(head.id); ; ) {
    const some = await done(database.transaction("nodes").objectStore("nodes").getAll(range, AT_ONCE));
    for (const { tokens: _, ...node } of some) all.push(node);
    if (some.length < AT_ONCE) return assembled(head, all);
    range = IDBKeyRange.bound([head.id, some[AT_ONCE - 1].id], [head.id, []], true);
  }
}

/** @type {(head: Head, all: any[]) => Story} */
function assembled(head, all) {
  const stored = Object.fromEntries(all.map(({ story, ...node }) => [node.id, node]));
  mend(stored);
  const known = reached(head.root, stored);
  for (const { id, children } of Object.values(known)) for (const one of children) known[one].parent = id;
  let { current } = head;
  while (stored[current] && !known[current]) current = stored[current].parent;
  return { ...head, nodes: known, current: known[current] ? current : head.root };
}

/** Mends what a page that died in mid-write has left: a child that is not there, and a node that has moved
    but is still its old parent's child, or not yet its new one's.
    @type {(nodes: Record<string, any>) => void} */
function mend(nodes) {
  const all = Object.values(nodes);
  /** @type {(node: any, child: any) => boolean} */
  const isAt = (node, child) => child && (!child.moved || !nodes[child.parent] || child.parent === node.id);
  for (const node of all)
    node.children = node.children.filter((/** @type {string} */ child) => isAt(node, nodes[child]));
  for (const { id, moved, parent } of all)
    if (moved && nodes[parent] && !nodes[parent].children.includes(id)) nodes[parent].children.push(id);
}

/** Changes fields of a stored story that is open nowhere, if it has not changed since `at`.
    @type {(id: string, at: number, fields: Partial<Head>) => Promise<void>} */
export async function amend(id, at, fields) {
  const work = database.transaction("stories", "readwrite");
  const store = work.objectStore("stories");
  const head = await done(store.get(id));
  if (head?.changed === at) store.put({ ...head, ...fields });
  await over(work);
}

/** Stores a whole story in place of what there is of it, which is of the time `at` (undefined: nothing);
    false if it has changed since.
    @type {(story: Story, at?: number) => Promise<boolean>} */
export async function replace(story, at = undefined) {
  await flush();
  const work = database.transaction(["stories", "nodes", "history"], "readwrite");
  const stored = await done(work.objectStore("stories").get(story.id));
  if (stored?.changed !== at) return false;
  work.objectStore("history").delete(story.id);
  work.objectStore("nodes").delete(allOf(story.id));
  work.objectStore("stories").put(headOf(story));
  for (const node of Object.values(story.nodes)) work.objectStore("nodes").put({ ...node, story: story.id });
  await over(work);
  return true;
}

/** Deletes a story, and every write of it that is still pending.
    @type {(id: string) => Promise<void>} */
export async function remove(id) {
  /** @type {<T extends {id: string, story?: string}>(list: T[]) => T[]} */
  const others = (list) => list.filter((one) => (one.story ?? one.id) !== id);
  heads.delete(id);
  for (const [node, [story]] of nodes) if (story === id) nodes.delete(node);
  part = [others(part[0]), others(part[1])];
  for (const name of rescues()) {
    const rescued = read(name, { heads: [], nodes: [] });
    save(name, { heads: others(rescued.heads), nodes: others(rescued.nodes) });
  }
  const work = database.transaction(["stories", "nodes", "history"], "readwrite");
  work.objectStore("history").delete(id);
  work.objectStore("stories").delete(id);
  work.objectStore("nodes").delete(allOf(id));
  await over(work);
}

/** @type {(name: string, fallback: any) => any} */
export function read(name, fallback) {
  try {
    return JSON.parse(localStorage.getItem(name) ?? "null") ?? fallback;
  } catch {
    return fallback;
  }
}

/** @type {(name: string, value: unknown) => void} */
export const save = (name, value) => localStorage.setItem(name, JSON.stringify(value));
