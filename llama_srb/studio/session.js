// What the writer does: asking, choosing, going on, going back. The only part that changes a story.
//
// A run is one request: `nodes` are the candidates that it fills, by index; null is one whose text is no
// longer taken, because the writer has chosen it in mid-stream.

import { ApiError, call, events } from "./api.js";
import * as store from "./store.js";
import { hold, take, watchTabs } from "./tabs.js";
import {
  addNode,
  childrenOf,
  cutAt,
  drop,
  join,
  joinable,
  newStory,
  pathTo,
  promptFor,
  split,
  textOf,
  write,
} from "./tree.js";
import { changed } from "./ui.js";

const TYPING_MS = 400; // a pause that ends a piece of typing
const PAUSE_MS = 900; // a pause in which the prompt is computed
const HISTORY = 500;
const ANSWER_MS = 2000; // to a request that is stopped

export const DEFAULTS = {
  n: 4,
  n_branches: 8, // while the tree is looked at
  max_tokens: 60,
  next: true,
  alternatives: 10,
  model: null, // when the server has several
  colours: false,
  full: false,
  values: {},
  spreads: {},
  stop: "",
  structure: { kind: "none", text: "" },
};

export const session = {
  story: null,
  stories: [],
  models: [], // of the server
  fields: null, // that it takes, with their bounds
  text: "",
  caret: null, // where the editor's caret goes next, when the text was not typed
  at: 0, // where it is
  point: null, // where candidates stand, when that is not the end of the text
  runs: new Set(),
  error: null, // {message, param}
  settings: { ...DEFAULTS, ...store.read("studio.settings", {}) },
  prompt: null, // {tokens, cached} of the last prompt
  said: "", // for screen readers
  compare: null,
  branching: false, // the tree is open
  elsewhere: false, // another tab changes this story
};

export const setting = (fields) => {
  Object.assign(session.settings, fields);
  store.save("studio.settings", session.settings);
  changed("settings");
};

/** The model that is asked: the first one until the writer has chosen another. */
export function model() {
  const { models, settings } = session;
  return models.find(({ id }) => id === settings.model) ?? models[0];
}

/** How many are asked for at a time: more, as branches, beside the tree. */
export function wanted() {
  const { n, n_branches } = session.settings;
  return session.branching ? Math.max(n, n_branches) : n;
}

export const pointId = () => session.point ?? session.story.current;
export const isChat = () => session.story.kind === "chat";

/** The candidates at this place, those set aside only if asked for. */
export const candidates = (aside = false) =>
  childrenOf(session.story, pointId()).filter((node) => aside || !node.aside);

export function say(message) {
  session.said = message;
  changed("said");
}

export function fail(error) {
  session.error = error && { message: error.message, param: error.param ?? null };
  changed("error");
}

export const AWAY = "the server has gone away; what had come is kept";
/** What is told when it has. */
export const onLost = [];

const UNKEPT = "the browser could not keep what is new";
store.refused.push((error) => {
  if (error && !session.error)
    fail({ message: `${UNKEPT} (${error.message}): export the story or make room` });
  if (!error && session.error?.message.startsWith(UNKEPT)) fail(null);
});

function lost() {
  fail({ message: AWAY });
  for (const tell of onLost) tell();
}

// ---- stories -----------------------------------------------------------------------------------------

export async function begin() {
  await store.open();
  session.stories = await store.stories();
  const last = store.read("studio.story", null);
  const found = session.stories.find((story) => story.id === last) ?? session.stories[0];
  await (found ? openStory(found.id) : createStory());
}

export async function openStory(id) {
  commit();
  if (!(await store.flush())) return; // what is stored is older than what is here
  const story = await store.load(id);
  if (!story) return;
  for (const node of Object.values(story.nodes)) if (node.state === "running") node.state = "interrupted";
  show(story);
}

watchTabs({
  lost() {
    session.elsewhere = true;
    changed("story", "server");
  },
  async give() {
    await finished();
    commit();
    return store.flush();
  },
  reopen: () => openStory(session.story.id),
});

/** Ends what streams; a server that says nothing is left. */
async function finished(end = stopAll) {
  end();
  const left = setTimeout(leaveAll, ANSWER_MS);
  while (session.runs.size) await new Promise((resolve) => setTimeout(resolve, 20));
  clearTimeout(left);
}

/** The other tab keeps what it has, and this one goes on with it. */
export async function writeHere() {
  await take();
  await openStory(session.story.id);
}

function show(story) {
  stopAll();
  session.elsewhere = false;
  hold(story.id);
  Object.assign(session, { story, point: null, error: null, compare: null, prompt: null });
  past.length = future.length = 0;
  store.save("studio.story", story.id);
  refresh(textOf(story).length);
}

const UNNAMED = ["Untitled", "Chat"];

export async function createStory(name = "Untitled", kind = "story") {
  const story = newStory(name, kind);
  await adopt(story);
}

/** A story from elsewhere becomes one of ours, and is opened. */
export async function adopt(story) {
  commit();
  store.keep(story, Object.values(story.nodes));
  await store.flush();
  session.stories = await store.stories();
  show(story);
  changed("stories");
}

export async function nameStory(fields) {
  Object.assign(session.story, fields);
  store.keep(session.story);
  await store.flush();
  session.stories = await store.stories();
  changed("stories", "story");
}

/** Pieces of all stories that hold some words, and stories whose name or tags do. */
export async function search(words) {
  await store.flush();
  const has = (text) => text?.toLowerCase().includes(words.toLowerCase());
  const names = session.stories.filter(({ name, tags }) => has(name) || has(tags));
  return [...names.map(({ id }) => ({ story: id })), ...(await store.find(({ text }) => has(text)))];
}

export async function openPlace({ story, id }) {
  if (story !== session.story.id) await openStory(story);
  if (id && session.story.nodes[id]) goTo(id);
}

export async function deleteStory() {
  if (session.elsewhere) await take();
  const { story } = session;
  await finished(leaveAll); // or what still streams would bring it back
  commit();
  await store.remove(story.id);
  session.stories = await store.stories();
  if (session.story === story)
    await (session.stories.length ? openStory(session.stories[0].id) : createStory());
  changed("stories");
}

function refresh(caret = null) {
  session.text = isChat() ? "" : textOf(session.story);
  session.caret = caret ?? session.text.length;
  session.at = Math.min(session.caret, session.text.length);
  changed("story", "text", "server");
}

// ---- typing, undo ------------------------------------------------------------------------------------

const past = [];
const future = [];
let typing = null;
let pause = null;

const now = () => ({ current: session.story.current, text: textOf(session.story), at: session.at });

function note() {
  past.push(now());
  if (past.length > HISTORY) past.shift();
  future.length = 0;
}

export function typed(text, at) {
  Object.assign(session, { text, at, point: null });
  clearTimeout(typing);
  typing = setTimeout(commit, TYPING_MS);
  awaitPause();
  changed("text");
}

export function movedTo(at) {
  session.at = at;
}

/** What was typed becomes part of the tree. */
export function commit() {
  clearTimeout(typing);
  typing = null;
  const { story, text } = session;
  if (!story || isChat() || text === textOf(story)) return;
  note();
  store.keep(story, write(story, text));
  changed("story");
}
store.leaving.push(commit);

export const canUndo = () => past.length > 0;
export const canRedo = () => future.length > 0;
export const undo = () => step(past, future);
export const redo = () => step(future, past);

function step(from, to) {
  commit();
  const wanted = from.pop();
  if (!wanted) return;
  to.push(now());
  const { story } = session;
  story.current = wanted.current;
  session.point = null;
  const altered = isChat() ? [] : write(story, wanted.text);
  store.keep(story, altered);
  refresh(wanted.at);
}

/** Makes a node the end of the text. */
export function goTo(id) {
  commit();
  if (id === session.story.current) return;
  note();
  session.story.current = id;
  session.story.nodes[id].seen = true;
  session.point = null;
  store.keep(session.story, [session.story.nodes[id]]);
  refresh();
}

/** The prompt is computed while the writer thinks; the answer says how many tokens it has. */
function awaitPause() {
  clearTimeout(pause);
  pause = setTimeout(async () => {
    if (session.runs.size || isChat() || !session.text) return;
    try {
      const { prompt_tokens, cached_tokens } = await call("POST", "v1/prefix", { prompt: session.text });
      session.prompt = { tokens: prompt_tokens, cached: cached_tokens };
      changed("status");
    } catch (error) {
      if (!(error instanceof ApiError)) for (const tell of onLost) tell();
    }
  }, PAUSE_MS);
}

// ---- asking ------------------------------------------------------------------------------------------

const FIELDS_OF_ALL = new Set(["seed"]);

/** The values that a candidate gets: those of all, or its own share of a spread. */
function samplingOf(index, n) {
  const { values, spreads } = session.settings;
  const shares = Object.entries(spreads).map(([name, [from, to]]) => {
    const value = n < 2 ? from : from + ((to - from) * index) / (n - 1);
    return [name, Math.round(value * 1000) / 1000];
  });
  return { ...values, ...Object.fromEntries(shares) };
}

function body(story, point, n) {
  const { settings } = session;
  const each = Array.from({ length: n }, (_, index) => samplingOf(index, n));
  const lists = Object.keys(settings.spreads).map((name) => [name, each.map((sampling) => sampling[name])]);
  const stop = settings.stop
    .split("\n")
    .filter(Boolean)
    .map((line) => line.replaceAll("\\n", "\n"));
  const { kind, text } = settings.structure;
  return {
    ...(story.kind === "chat" ? { messages: messages(story, point) } : promptFor(story, point)),
    n,
    ...(session.models.length > 1 && { model: model().id }),
    max_tokens: settings.max_tokens,
    logprobs: settings.alternatives,
    ...settings.values,
    ...Object.fromEntries(lists),
    ...(stop.length && { stop }),
    ...(kind !== "none" && text.trim() && { [kind]: text }),
  };
}

const ROLES = { user: "user", model: "assistant" };

function messages(story, point) {
  const said = pathTo(story, point).filter((node) => node.text);
  const system = story.system.trim() ? [{ role: "system", content: story.system }] : [];
  return [
    ...system,
    ...said.map(({ source, text }) => ({ role: ROLES[source] ?? "assistant", content: text })),
  ];
}

/** n candidates at the caret. Those that are there and not pinned are set aside, unless `more` are wanted. */
export async function ask({ n = wanted(), more = false } = {}) {
  commit();
  fail(null);
  nameByItsWords();
  const { story } = session;
  if (!more) place();
  const point = pointId();
  const there = candidates();
  if (more && (await extended(point, n))) return;
  const pinned = there.filter((node) => node.pinned).length;
  const old = more ? [] : there.filter((node) => !node.pinned && !node.children.length);
  quit(old);
  setAside(story, old);
  const count = more ? n : Math.max(1, n - pinned);
  const nodes = Array.from({ length: count }, (_, i) => candidate(story, point, samplingOf(i, count)));
  await start(point, nodes);
  const kept = old.filter(({ id }) => story.nodes[id]);
  if (!nodes.some((node) => node.text)) setAside(story, kept, false);
}

/** A story that has no name yet is called by its first words. */
function nameByItsWords() {
  const [, words] = /^\s*(.{0,40}\S)(?!\S)/.exec(textOf(session.story)) ?? [];
  if (words && UNNAMED.includes(session.story.name)) nameStory({ name: words });
}

/** No more for these; a request that has no others ends. */
function quit(nodes) {
  for (const run of session.runs) {
    if (run.nodes.every((node) => !node || nodes.includes(node))) stop(run);
    else for (const { id } of run.nodes.filter((node) => nodes.includes(node))) stopOne(id);
  }
}

/** Where the caret is: the end of the text, or a place within it that the tree gets a border at. */
function place() {
  if (isChat() || session.at >= session.text.length) return;
  const known = session.point && textOf(session.story, session.point).length === session.at;
  if (known) return;
  const { id } = cutAt(session.story, session.at);
  session.point = id;
  store.keep(session.story, Object.values(session.story.nodes));
  changed("story");
}

const candidate = (story, point, sampling, after = null, fields = {}) =>
  addNode(story, point, { state: "running", sampling, tokens: [], ...fields }, after);

function setAside(story, nodes, aside = true) {
  for (const node of nodes) node.aside = aside;
  store.keep(story, nodes);
  changed("story");
}

/** More candidates in the stream that runs; false when none does. */
async function extended(point, add) {
  const run = [...session.runs].find((run) => run.point === point);
  await run?.known;
  if (!run?.id || run.over) return false;
  try {
    await call("POST", `v1/completions/${run.id}/extend`, { add });
    return true;
  } catch {
    return false; // it has just ended
  }
}

/** One request that fills these nodes; what they have already is what the text goes on from. */
async function start(point, nodes, prompt = null) {
  const { story } = session;
  const run = {
    story,
    point,
    nodes: [...nodes],
    id: null,
    over: false,
    abort: new AbortController(),
    tokens: 0,
    began: performance.now(),
  };
  run.known = new Promise((resolve) => (run.knows = resolve)); // until then it cannot be named to the server
  session.runs.add(run);
  store.keep(story, [story.nodes[point]]); // which has new children
  changed("story", "status");
  try {
    const { text, ...request } = { ...body(story, point, nodes.length), ...prompt };
    await withText(run, request, text);
    say(`${nodes.length} ${nodes.length === 1 ? "candidate is" : "candidates are"} there`);
  } catch (error) {
    if (error.name !== "AbortError") failed(run, error);
  } finally {
    over(run);
  }
}

/** A candidate that the server has forgotten is sent as text. */
async function withText(run, request, text) {
  try {
    await follow(run, request);
  } catch (error) {
    if (error.param !== "continue" || run.id) throw error;
    const { continue: _, ...rest } = request;
    await follow(run, { ...rest, prompt: text });
  }
}

async function follow(run, request) {
  for await (const batch of events(request, run.abort.signal)) {
    const touched = new Set();
    for (const event of batch) TAKERS[event.event]?.(run, event, touched);
    const nodes = [...touched].filter(Boolean);
    if (nodes.length) store.keep(run.story, nodes);
    changed("status", ...nodes.map((node) => node.id));
  }
}

const TAKERS = {
  queued: (run, { position }) => (run.position = position),
  start(run, { id, seed, prompt_tokens, cached_tokens }) {
    Object.assign(run, { id, seed, position: 0 });
    session.prompt = { tokens: prompt_tokens, cached: cached_tokens };
    run.nodes.forEach((node, index) => name(run, node, index));
    run.knows();
  },
  stream(run, { index, text, tokens, reasoning }, touched) {
    const node = run.nodes[index];
    run.tokens += tokens?.length ?? 1;
    if (!node) return;
    node.text += text;
    if (reasoning) node.thoughts = (node.thoughts ?? "") + reasoning;
    if (tokens) (node.tokens ??= []).push(...tokens);
    touched.add(node);
  },
  stop(run, { index, length, finish_reason }, touched) {
    const node = run.nodes[index];
    if (!node) return;
    Object.assign(node, { state: finish_reason, length: (node.length ?? 0) + length });
    touched.add(node);
    changed("candidates");
  },
  extend(run, { first, count }, touched) {
    for (let index = first; index < count; index++) {
      run.nodes[index] = candidate(run.story, run.point, { ...session.settings.values });
      name(run, run.nodes[index], index);
      touched.add(run.nodes[index]);
    }
    store.keep(run.story, [run.story.nodes[run.point]]);
    changed("story");
  },
  error(run, { message, param, code }) {
    throw new ApiError(500, { message, param, code });
  },
};

/** How the server calls a node's text; `from` counts the tokens of the sequence before the node's first. */
function name(run, node, index) {
  if (!node) return; // chosen before it began
  node.ref = { id: run.id, index, from: -(node.tokens?.length ?? 0), whole: true };
  node.seed = (run.seed + index) % (2 ** 32 - 1);
}

function failed(run, error) {
  for (const node of run.nodes) if (node?.state === "running") node.state = "interrupted";
  if (error instanceof ApiError) fail(error);
  else lost();
}

/** Candidates that nothing came for leave no trace. */
function over(run) {
  run.over = true;
  run.knows();
  session.runs.delete(run);
  const { story } = run;
  for (const node of run.nodes) {
    if (!node || node.state !== "running") continue;
    node.state = "cancelled";
  }
  const empty = run.nodes.filter((node) => node && !node.text && !["stop", "length"].includes(node.state));
  for (const node of empty) drop(story, node);
  const kept = run.nodes.filter((node) => node && story.nodes[node.id]);
  store.keep(story, [story.nodes[run.point], ...kept]);
  changed("story", "status", ...kept.map((node) => node.id));
}

// ---- stopping ----------------------------------------------------------------------------------------

const runOf = (node) => [...session.runs].find((run) => run.nodes.includes(node));

function stop(run) {
  if (run.id) call("DELETE", `v1/completions/${run.id}`).catch(() => run.abort.abort());
  else run.abort.abort();
}

export const stopAll = () => [...session.runs].forEach(stop);
const leaveAll = () => [...session.runs].forEach((run) => run.abort.abort());

export async function stopOne(id) {
  const node = session.story.nodes[id];
  const run = runOf(node);
  await run?.known;
  if (run?.id && !run.over)
    call("DELETE", `v1/completions/${run.id}/${run.nodes.indexOf(node)}`).catch(() => {}); // just over
}

// ---- choosing and working on one ---------------------------------------------------------------------

/** A candidate becomes part of the text, as far as `end` if given; then the next ones are asked for. */
export async function choose(id, end = null) {
  commit();
  note();
  const { story } = session;
  const node = story.nodes[id];
  const rest = session.point && !isChat() ? textOf(story).slice(textOf(story, session.point).length) : "";
  freeze(node);
  const tail = end === null ? null : split(story, id, end);
  node.seen = true;
  story.current = id;
  const caret = isChat() ? 0 : textOf(story, id).length;
  const after = rest && addNode(story, id, { text: rest, source: "user" });
  if (after) story.current = after.id;
  session.point = null;
  session.compare = null;
  store.keep(story, [...pathTo(story), ...(tail ? [tail, ...childrenOf(story, tail.id)] : [])]);
  refresh(caret);
  if (after) session.point = id;
  if (session.settings.next && !isChat() && !candidates().some((one) => one !== tail && one !== after))
    await ask();
}

/** Takes no more text for a node, and ends the request that brings it. */
function freeze(node) {
  const run = runOf(node);
  if (!run) return;
  run.nodes[run.nodes.indexOf(node)] = null;
  node.state = "cancelled";
  if (node.ref) node.ref.whole = false;
  stop(run);
}

export async function longer(id) {
  const { story } = session;
  const node = story.nodes[id];
  fail(null);
  const prompt =
    story.kind === "chat"
      ? { messages: messages(story, id), continue_final_message: true }
      : promptFor(story, id);
  node.state = "running";
  changed(id);
  await start(node.parent, [node], { prompt: undefined, continue: undefined, ...own(node), ...prompt });
}

/** Another one in its place; the old one is set aside. */
export async function again(id) {
  const { story } = session;
  const old = story.nodes[id];
  stopOne(id);
  fail(null);
  const node = candidate(story, old.parent, old.sampling, id);
  setAside(story, [old]);
  await start(old.parent, [node], own(old));
  if (!node.text) setAside(story, [old], false);
}

/** A node's own sampling, as a request of one has it. */
const own = ({ sampling }) =>
  Object.fromEntries(Object.entries(sampling ?? {}).filter(([name]) => !FIELDS_OF_ALL.has(name)));

/** Another token in place of token i, and on from there. */
export async function branch(id, i, token) {
  const { story } = session;
  const old = story.nodes[id];
  const tokens = [...old.tokens.slice(0, i), { ...token, top: old.tokens[i].top }];
  const text = tokens.map((one) => one.text).join("");
  const node = candidate(story, old.parent, old.sampling, id, { text, tokens });
  changed("story");
  await start(old.parent, [node], { continue: undefined, ...own(old), prompt: textOf(story, node.id) });
}

/** The writer's own version of a candidate, beside it. */
export function rewrite(id, text) {
  const { story } = session;
  const old = story.nodes[id];
  if (text === old.text) return;
  const node = addNode(story, old.parent, { text, source: "edit", state: "stop", pinned: old.pinned }, id);
  old.aside = true;
  store.keep(story, [node, old, story.nodes[old.parent]]);
  changed("story");
}

export function mark(id, fields) {
  const node = session.story.nodes[id];
  Object.assign(node, fields);
  store.keep(session.story, [node]);
  changed("story", id);
}

/** The text is cut in two at the caret: a place to go back to. */
export function splitHere() {
  commit();
  const { story } = session;
  cutAt(story, session.at);
  store.keep(story, Object.values(story.nodes));
  changed("story");
}

/** A node and the one before it become one. */
export function joinToParent(id) {
  const { story } = session;
  const gone = joinable(story, id).id;
  store.keep(story, join(story, id));
  for (const was of [...past, ...future]) if (was.current === gone) was.current = id;
  if (session.point === gone) session.point = null;
  changed("story");
}

/** What the writer says in a chat. */
export async function sayInChat(text) {
  note();
  const { story } = session;
  const node = addNode(story, story.current, { text, source: "user" });
  story.current = node.id;
  session.point = null;
  store.keep(story, [node, story.nodes[node.parent]]);
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
  commit();
  refresh(at + text.length);
}
