// What outlives the page: stories and their nodes in IndexedDB, settings in localStorage.
//
// Writes are gathered for a moment. What is still to be written when the page goes away is put into localStorage,
// which is written at once, and comes back with the next load: a reload in mid-stream loses nothing.

const DELAY_MS = 250;
const RESCUE = "studio.rescue";
let database;
let timer = null;
const heads = new Map(); // story id → story, to be written
const nodes = new Map(); // node id → [story id, node], to be written

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
  const rescued = read(RESCUE, null);
  if (!rescued) return;
  await put(rescued.heads, rescued.nodes);
  localStorage.removeItem(RESCUE);
}

const allOf = (story) => IDBKeyRange.bound([story], [story, []]);

function put(newHeads, newNodes) {
  const work = database.transaction(["stories", "nodes"], "readwrite");
  for (const head of newHeads) work.objectStore("stories").put(head);
  for (const node of newNodes) work.objectStore("nodes").put(node);
  return new Promise((resolve, reject) => {
    work.oncomplete = resolve;
    work.onerror = work.onabort = () => reject(work.error);
  });
}

const headOf = ({ nodes: _, ...head }) => head;

/** To be kept: a story's own fields, and of its nodes those that have changed. */
export function keep(story, changed = []) {
  story.changed = Date.now();
  heads.set(story.id, story);
  for (const node of changed) nodes.set(node.id, [story.id, node]);
  timer ??= setTimeout(flush, DELAY_MS);
}

function taken() {
  const all = [
    [...heads.values()].map(headOf),
    [...nodes.values()].map(([story, node]) => ({ ...node, story })),
  ];
  heads.clear();
  nodes.clear();
  clearTimeout(timer);
  timer = null;
  return all;
}

export const flush = () => put(...taken());

/** What still has to be said to keep() before the page goes away. */
export const leaving = [];

addEventListener("pagehide", () => {
  for (const tell of leaving) tell();
  if (!heads.size) return;
  const [newHeads, newNodes] = taken();
  try {
    localStorage.setItem(RESCUE, JSON.stringify({ heads: newHeads, nodes: newNodes }));
  } catch {} // no room there: the transaction below usually ends even so
  put(newHeads, newNodes).catch(() => {});
});

/** All stories without their nodes, last changed first. */
export async function stories() {
  const all = await done(database.transaction("stories").objectStore("stories").getAll());
  return all.sort((a, b) => b.changed - a.changed);
}

export async function load(id) {
  const work = database.transaction(["stories", "nodes"]);
  const head = await done(work.objectStore("stories").get(id));
  if (!head) return null;
  const all = await done(work.objectStore("nodes").getAll(allOf(id)));
  return { ...head, nodes: Object.fromEntries(all.map(({ story, ...node }) => [node.id, node])) };
}

export async function remove(id) {
  const work = database.transaction(["stories", "nodes"], "readwrite");
  work.objectStore("stories").delete(id);
  work.objectStore("nodes").delete(allOf(id));
}

export function read(name, fallback) {
  try {
    return JSON.parse(localStorage.getItem(name)) ?? fallback;
  } catch {
    return fallback;
  }
}

export const save = (name, value) => localStorage.setItem(name, JSON.stringify(value));
