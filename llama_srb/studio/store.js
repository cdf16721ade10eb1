// What outlives the page: stories and their nodes in IndexedDB, settings in localStorage.
//
// Writes are gathered for a moment, and made a part at a time, since copying many tokens holds up the
// page. What is not yet written when the page goes away, the part that a transaction is at with it, since
// the browser ends that, is put into localStorage, which is written at once, and comes back with the next
// load: a reload in mid-stream loses nothing.

import { newId } from "./tree.js";

const DELAY_MS = 500;
const AGAIN_MS = 5000; // after a write that the browser refused
const PART = 500; // tokens in one transaction
const RESCUE = "studio.rescue."; // and a number of its own for each page, since two may go away at once
let database;
let timer = null;
const heads = new Map(); // story id → story, to be written
const nodes = new Map(); // node id → [story id, node], to be written
let part = [[], []]; // what a transaction is at: stories without nodes, and nodes
let written = Promise.resolve(); // when all flushes so far are over

const done = (request) =>
  new Promise((resolve, reject) => {
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error);
  });

export async function open() {
  const request = indexedDB.open("llama-srb studio", 1);
  request.onupgradeneeded = () => {
    request.result.createObjectStore("stories", { keyPath: "id" });
    request.result.createObjectStore("nodes", { keyPath: ["story", "id"] });
  };
  database = await done(request);
}

const rescues = () => Object.keys(localStorage).filter((key) => key.startsWith(RESCUE));

/** What pages that went away could write to localStorage only; not what has been written anew since. */
async function recover() {
  for (const name of rescues()) {
    const rescued = read(name, { heads: [], nodes: [] });
    const stories = database.transaction("stories").objectStore("stories");
    const stored = await Promise.all(rescued.heads.map(({ id }) => done(stories.get(id))));
    const newHeads = rescued.heads.filter((head, i) => !(stored[i]?.changed > head.changed));
    const ids = new Set(newHeads.map(({ id }) => id));
    try {
      await put(newHeads, rescued.nodes.filter(({ story }) => ids.has(story)));
      localStorage.removeItem(name);
    } catch (error) {
      for (const tell of refused) tell(error);
    }
  }
}

const allOf = (story) => IDBKeyRange.bound([story], [story, []]);

const over = (work) =>
  new Promise((resolve, reject) => {
    work.oncomplete = resolve;
    work.onabort = () => reject(work.error ?? new Error("the write was aborted"));
  });

async function put(newHeads, newNodes) {
  const work = database.transaction(["stories", "nodes"], "readwrite");
  for (const head of newHeads) work.objectStore("stories").put(head);
  for (const node of newNodes) work.objectStore("nodes").put(node);
  await over(work);
}

const headOf = ({ nodes: _, ...head }) => head;

/** To be kept: a story's own fields, and of its nodes those that have changed. */
export function keep(story, changed = []) {
  story.changed = Date.now();
  heads.set(story.id, story);
  for (const node of changed) nodes.set(node.id, [story.id, node]);
  timer ??= setTimeout(flush, DELAY_MS);
}

/** What is to be written, the oldest first, up to some number of tokens; stories when all their nodes are. */
function taken(limit = Infinity) {
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

/** What a transaction was at is to be written again, except for what has changed since. */
function putBack() {
  for (const head of part[0]) if (!heads.has(head.id)) heads.set(head.id, head);
  for (const { story, ...node } of part[1]) if (!nodes.has(node.id)) nodes.set(node.id, [story, node]);
}

/** Writes all that is to be written now, one call after the other; what is kept meanwhile waits. Whether it
    could: what was refused is tried again. */
export const flush = () => (written = written.then(writeAll));

async function writeAll() {
  clearTimeout(timer);
  timer = -1; // none is started
  let error = null;
  try {
    for (let left = nodes.size; nodes.size ? left > 0 : heads.size; left -= part[1].length) {
      part = taken(PART);
      await put(...part);
    }
  } catch (refusal) {
    error = refusal;
    putBack();
  }
  part = [[], []];
  timer = heads.size ? setTimeout(flush, error ? AGAIN_MS : DELAY_MS) : null;
  for (const tell of refused) tell(error);
  return !error;
}

/** Called with the browser's error when it has refused a write, and with null when it has not. */
export const refused = [];

/** What still has to be said to keep() before the page goes away. */
export const leaving = [];

addEventListener("pagehide", () => {
  for (const tell of leaving) tell();
  putBack();
  if (!heads.size) return;
  const [newHeads, newNodes] = taken();
  part = [[], []];
  const light = newNodes.map(({ tokens: _, ...node }) => node);
  rescue(newHeads, newNodes) || rescue(newHeads, light);
  put(newHeads, newNodes).catch(() => {});
});

/** False when there is no room: some megabytes are all that there is. */
function rescue(newHeads, newNodes) {
  try {
    localStorage.setItem(RESCUE + newId(), JSON.stringify({ heads: newHeads, nodes: newNodes }));
    return true;
  } catch {
    return false;
  }
}

/** All stories without their nodes, last changed first. */
export async function stories() {
  await recover();
  const all = await done(database.transaction("stories").objectStore("stories").getAll());
  return all.sort((a, b) => b.changed - a.changed);
}

export async function load(id) {
  await recover();
  const work = database.transaction(["stories", "nodes"]);
  const head = await done(work.objectStore("stories").get(id));
  if (!head) return null;
  const all = await done(work.objectStore("nodes").getAll(allOf(id)));
  const known = Object.fromEntries(all.map(({ story, ...node }) => [node.id, node]));
  for (const node of Object.values(known)) node.children = node.children.filter((child) => known[child]);
  return { ...head, nodes: known, current: known[head.current] ? head.current : head.root };
}

/** Nodes of all stories that fit. */
export async function find(fits) {
  const all = await done(database.transaction("nodes").objectStore("nodes").getAll());
  return all.filter(fits);
}

/** A story that is nowhere any more, nor comes back from what is still to be written. */
export async function remove(id) {
  const others = (list) => list.filter((one) => (one.story ?? one.id) !== id);
  heads.delete(id);
  for (const [node, [story]] of nodes) if (story === id) nodes.delete(node);
  part = part.map(others);
  for (const name of rescues()) {
    const rescued = read(name, { heads: [], nodes: [] });
    save(name, { heads: others(rescued.heads), nodes: others(rescued.nodes) });
  }
  const work = database.transaction(["stories", "nodes"], "readwrite");
  work.objectStore("stories").delete(id);
  work.objectStore("nodes").delete(allOf(id));
  await over(work);
}

export function read(name, fallback) {
  try {
    return JSON.parse(localStorage.getItem(name)) ?? fallback;
  } catch {
    return fallback;
  }
}

export const save = (name, value) => localStorage.setItem(name, JSON.stringify(value));
