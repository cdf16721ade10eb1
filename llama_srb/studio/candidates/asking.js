// Requests to the server: n candidates, a longer one, another one, a stop.
//
// A run is one request. `nodes` are the candidates that it fills, by index; null marks a candidate that the
// writer has chosen in mid-stream, so that its text is ignored from then on.

import { isCut, look, numbered, partsFor, room, told, toldOfCut } from "../background/reads.js";
import { unescaped } from "../files/emphasis.js";
import { ApiError, call, events } from "../server/api.js";
import { answered, knownModels } from "../server/models.js";
import { apart } from "../settings/best.js";
import {
  baseModel,
  candidates,
  fail,
  isChat,
  isReady,
  lost,
  model,
  modelField,
  nameByItsWords,
  onLost,
  pointId,
  say,
  session,
  setPoint,
  wanted,
} from "../story/session.js";
import * as store from "../story/store.js";
import {
  addNode,
  cutsAt,
  drop,
  goesOn,
  hashed,
  heldBack,
  inOrder,
  isSpaced,
  textOf,
  withoutReturns,
} from "../story/tree.js";
import { commit } from "../text/history.js";
import { changed } from "../ui/ui.js";
import { spaced } from "./joining.js";
import { body, continuing, own, samplingOf } from "./request.js";
import { beginLike, lengthLike, passageIn, rewriteFields, tailOfPassage } from "./rewrite.js";
import { stop, stopOne } from "./stopping.js";

/** @import { StreamEvent } from "../server/api.js" */
/** @import { Sampling, Story, Token, TreeNode } from "../story/tree.js" */

/** @typedef {StreamEvent & {index: number, text: string, tokens?: Token[], reasoning?: string}} Taken */

/** One request, from the start to its end.
    @typedef {object} Run
    @property {Story} story
    @property {string} point the node that its candidates continue
    @property {string} before hash of the text before them
    @property {string | null} replaces the text that they rewrite
    @property {string} [tail] the node behind that text
    @property {boolean} isFresh its candidates began without text
    @property {boolean} isSpaced the prompt ends with the writer's space, with which candidates begin
    @property {(TreeNode | null)[]} nodes its candidates, by index
    @property {string | null} id the server's, from its start on
    @property {string | undefined} asked the model that was asked for
    @property {string | undefined} model the one that computes
    @property {number | null} loading 0 to 1, while the model loads
    @property {boolean} over
    @property {AbortController} abort
    @property {number} tokens that came so far
    @property {number} began when, as performance.now() has it
    @property {Promise<void>} known until then it cannot be named to the server
    @property {() => void} knows
    @property {number} [position] in the queue
    @property {number} [seed]
    @property {string | null} [prompt] if it was sent
    @property {number} [number] of the question what the model reads
    @property {string} [end] of the prompt, which the first tokens may spell again
    @property {Map<number, Token[] | null>} spelling tokens before a candidate's text; null: it has begun */

const HEALED = 80; // characters of a prompt's end; the longest tokens have fewer
const PAUSE_MS = 900; // the writer's pause after which the prompt is prefilled

/** @type {number | undefined} */
let pause;

/** Prefills the prompt while the writer pauses, and shows how many tokens it has. */
export function awaitPause() {
  clearTimeout(pause);
  pause = setTimeout(async () => {
    commit();
    if (session.runs.size || isChat() || !session.text || !isReady()) return;
    try {
      const { story, text } = session;
      const prompt = unescaped(text.slice(0, heldBack(story, text.length)));
      const parts = partsFor(story, prompt);
      const { prompt_tokens, cached_tokens } = await call("POST", "v1/prefix", {
        prompt,
        ...parts,
        ...(parts.story && room()),
        ...modelField(),
      });
      session.prompt = { tokens: prompt_tokens, cached: cached_tokens };
      changed("status");
      if (isCut() || session.watching) await look();
    } catch (error) {
      if (!(error instanceof ApiError)) for (const tell of onLost) tell();
    }
  }, PAUSE_MS);
}

// ---- requests ---------------------------------------------------------------------------------------

/** Requests n candidates at the caret. With `more` the old ones stay, else those not pinned are set aside.
    `anyway`: also where the model would end. `replaces`: a text behind the point that they rewrite; with
    `more` that is the one that is rewritten there.
    @type {(how?: {n?: number, more?: boolean, anyway?: boolean, replaces?: string | null}) =>
      Promise<void>} */
export async function ask({ n = wanted(), more = false, anyway = false, replaces = null } = {}) {
  commit();
  fail(null);
  nameByItsWords();
  const { story } = session;
  if (!more && !replaces) place();
  const point = pointId();
  const there = candidates();
  const passage = replaces ?? (more ? session.replaces : null);
  if (more && !anyway && (await extended(point, passage, n))) return;
  story.nodes[point].ends = undefined;
  const pinned = there.filter((node) => node.pinned).length;
  const old = more ? [] : there.filter((node) => !node.pinned && !goesOn(story, node) && !wasText(node));
  quit(old);
  setAside(story, old);
  const count = more ? n : Math.max(1, n - pinned);
  /** @type {Sampling} */
  const also = anyway ? { ignore_eos: true } : {};
  /** @type {(i: number) => Sampling} */
  const sampling = (i) => ({ ...samplingOf(i, count), ...also });
  const own = passage ? { replaces: passage, tail: tailOfPassage(story, point, passage)?.id } : {};
  const nodes = Array.from({ length: count }, (_, i) => candidate(story, point, sampling(i), null, own));
  await start(point, nodes, { ...also, ...(passage && (await rewriting(story, point, passage, count))) });
  const kept = old.filter(({ id }) => story.nodes[id]);
  if (!nodes.some((node) => node.text)) setAside(story, kept, false);
}

/** Whether a node is an old piece of the text, which had a tail.
    @type {(node: TreeNode) => boolean} */
const wasText = ({ tail, replaces }) => !!tail && !replaces;

/** Requests rewrites of the selected text, which stand beside it as branches.
    @type {(from: number, to: number) => Promise<void>} */
export async function rewrite(from, to) {
  commit();
  const { story, text } = session;
  const passage = passageIn(text, from, to);
  if (!passage) return ask();
  const [begin, end] = passage;
  const { ends, changed: nodes } = cutsAt(story, [end, begin]);
  const replaces = text.slice(begin, end);
  setPoint(ends[1], replaces);
  store.keep(story, nodes);
  changed("story");
  await ask({ replaces });
}

/** The fields of a request for rewrites, which depend on what the model can do. */
async function rewriting(...passage) {
  await knownModels();
  return rewriteFields(...passage);
}

/** Stops these candidates, and each request that has no others.
    @type {(nodes: TreeNode[]) => void} */
function quit(nodes) {
  for (const run of session.runs) {
    if (run.nodes.every((node) => !node || nodes.includes(node))) stop(run);
    else for (const node of run.nodes) if (node && nodes.includes(node)) stopOne(node.id);
  }
}

/** Sets the point to the caret, before spaces that are held back; within the text the tree is cut there. */
function place() {
  const { story, at, text, point } = session;
  const end = isChat() ? Infinity : heldBack(story, at);
  if (end >= text.length) return setPoint(null);
  if (point && textOf(story, point).length === end) return setPoint(point, null);
  const { ends, changed: nodes } = cutsAt(story, [at, end]);
  setPoint(ends[1], null);
  store.keep(story, nodes);
  changed("story");
}

/** @type {(story: Story, point: string, sampling?: Sampling, after?: string | null,
      fields?: Partial<TreeNode>) => TreeNode} */
const candidate = (story, point, sampling, after = null, fields = {}) =>
  addNode(story, point, { state: "running", sampling, tokens: [], ...fields }, after);

/** @type {(story: Story, nodes: TreeNode[], aside?: boolean) => void} */
function setAside(story, nodes, aside = true) {
  for (const node of nodes) node.aside = aside;
  store.keep(story, nodes);
  changed("story");
}

/** Adds candidates to the story's model's running request for the same; false when there is none.
    @type {(point: string, passage: string | null, add: number) => Promise<boolean>} */
async function extended(point, passage, add) {
  const asked = model()?.id;
  const isSame = (run) => pointOf(run) === point && run.replaces === passage && run.isFresh;
  const run = [...session.runs].find((run) => isSame(run) && (run.asked ?? asked) === asked);
  await run?.known;
  if (!run?.id || run.over) return false;
  try {
    await call("POST", `v1/completions/${run.id}/extend`, { add });
    return true;
  } catch {
    return false; // it has just ended
  }
}

/** Starts one request that fills these nodes; text that a node has already is continued.
    @type {(point: string, nodes: TreeNode[], prompt?: Record<string, any>) => Promise<void>} */
async function start(point, nodes, prompt = {}) {
  const { story } = session;
  let knows = () => {};
  /** @type {Promise<void>} */
  const known = new Promise((resolve) => (knows = () => resolve()));
  const { replaces = null, tail, text } = nodes[0];
  /** @type {Run} */
  const run = {
    story,
    point,
    before: hashed(textOf(story, point)),
    replaces,
    tail,
    isFresh: !text,
    isSpaced: !isChat() && !replaces && !text && isSpaced(story, point, session.at),
    nodes: [...nodes],
    id: null,
    asked: model()?.id,
    model: baseModel(),
    loading: null,
    over: false,
    abort: new AbortController(),
    tokens: 0,
    began: performance.now(),
    known,
    knows,
    spelling: new Map(),
  };
  session.runs.add(run);
  store.keep(story, [story.nodes[point]]); // which has new children
  changed("story", "status");
  try {
    const { text, ...request } = { ...body(story, point, nodes.length), ...prompt };
    if (request.token_healing) run.end = text?.slice(-HEALED);
    await withText(run, request, text);
    const left = run.nodes.filter((node) => node && !node.aside).length;
    say(left ? `${left} ${left === 1 ? "candidate is" : "candidates are"} complete` : ENDS_HERE);
  } catch (error) {
    if (error.name !== "AbortError") failed(run, error);
  } finally {
    over(run);
  }
}

/** Follows the request; when the server has forgotten the candidate to continue, its text is sent instead.
    @type {(run: Run, request: Record<string, any>, text?: string) => Promise<void>} */
async function withText(run, request, text) {
  try {
    await follow(run, request);
  } catch (error) {
    if (error.param !== "continue" || run.id) throw error;
    const { continue: _, ...rest } = request;
    await follow(run, { ...rest, prompt: text });
  }
}

/** @type {(run: Run, request: Record<string, any>) => Promise<void>} */
async function follow(run, request) {
  run.prompt = request.continue ? null : request.prompt;
  run.number = numbered();
  for await (const batch of events(request, run.abort.signal)) {
    const touched = new Set();
    for (const event of batch) TAKERS[event.event]?.(run, event, touched);
    const nodes = [...touched].filter(Boolean);
    if (nodes.length) store.keep(run.story, nodes);
    changed("status", ...nodes.map((node) => node.id));
  }
}

/** @type {Record<string, (run: Run, event: StreamEvent, touched: Set<TreeNode>) => void>} */
const TAKERS = {
  loading(run, { progress }) {
    if (run.loading === null) {
      say(`loading ${run.model ?? "the model"}`);
      answered();
    }
    run.loading = progress;
    redraw(run);
  },
  queued: (run, { position }) => (run.position = position),
  start(run, { id, seed, prompt_tokens, cached_tokens, cut_tokens, story }) {
    if (run.prompt) told(run.story, run.prompt, story, run.number);
    else toldOfCut(run.story, cut_tokens);
    Object.assign(run, { id, seed, position: 0 });
    session.prompt = { tokens: prompt_tokens, cached: cached_tokens };
    for (const [index, node] of run.nodes.entries()) name(run, node, index);
    run.knows();
    if (run.loading === null) return;
    run.loading = null;
    redraw(run);
    answered();
  },
  stream(run, event, touched) {
    const { index, text: sent, tokens, reasoning } = withoutReturns(/** @type {Taken} */ (event));
    const node = run.nodes[index];
    run.tokens += tokens?.length ?? 1;
    if (!node) return;
    const hasBegun = node.text.trim();
    const text = run.isSpaced && !node.text ? spaced(sent) : sent;
    node.text += text;
    if (reasoning) node.thoughts = (node.thoughts ?? "") + reasoning;
    if (tokens) (node.tokens ??= []).push(...(run.end ? healed(run, index, text, tokens) : tokens));
    if (node.replaces && !hasBegun && node.text.trim()) beginLike(node.replaces, node);
    touched.add(node);
  },
  stop(run, { index, length, finish_reason, stop_text }, touched) {
    const node = run.nodes[index];
    if (!node) return;
    if (finish_reason === "stop" && !node.text && !node.thoughts) return endedAtOnce(run, index, stop_text);
    Object.assign(node, { state: finish_reason, length: (node.length ?? 0) + length });
    if (finish_reason === "pruned" && !node.pinned) node.aside = true;
    touched.add(node);
    changed("candidates");
  },
  done(run, { ranking, timings }) {
    const { draft_n: tokens, draft_n_accepted: right } = timings ?? {};
    session.guessed = tokens ? { tokens, right } : null;
    changed("status");
    if (!ranking) return;
    const ranked = ranking.map((index) => run.nodes[index]).filter(Boolean);
    inOrder(run.story, pointOf(run), ranked);
    changed("story");
  },
  extend(run, { first, count }, touched) {
    const own = run.replaces ? { replaces: run.replaces, tail: run.tail } : {};
    const point = pointOf(run);
    for (let index = first; index < count; index++) {
      const node = candidate(run.story, point, apart(session.settings.values), null, own);
      run.nodes[index] = node;
      name(run, node, index);
      touched.add(node);
    }
    store.keep(run.story, [run.story.nodes[point]]);
    changed("story");
  },
  error(_run, { message, param, code }) {
    throw new ApiError(500, { message, param, code });
  },
};

/** A candidate's tokens without the end of the prompt that its first ones spell; none before its text begins.
    @type {(run: Run, index: number, text: string, tokens: Token[]) => Token[]} */
function healed({ spelling, end }, index, text, tokens) {
  const before = spelling.get(index) ?? [];
  if (spelling.get(index) === null) return tokens;
  const all = [...before, ...tokens];
  spelling.set(index, text ? null : all);
  if (!text) return [];
  const spelt = all.map((token) => token.text).join("");
  const surplus = spelt.endsWith(text) ? spelt.slice(0, spelt.length - text.length) : "";
  let left = end?.includes(surplus) ? surplus.length : 0;
  return all.map((token) => {
    const gone = token.text.slice(0, left);
    left -= gone.length;
    return gone ? withoutBeginning(token, gone) : token;
  });
}

/** @type {(token: Token, gone: string) => Token} */
function withoutBeginning({ text, top, ...token }, gone) {
  const others = top?.filter((one) => one.text.startsWith(gone) && one.text !== gone);
  /** @type {(one: Token) => Token} */
  const rest = (one) => ({ ...one, text: one.text.slice(gone.length) });
  return { ...token, text: text.slice(gone.length), ...(others && { top: others.map(rest) }) };
}

export const ENDS_HERE = "The model would end here.";

/** Removes a candidate without text, and counts it at its place: the model, or a stop string, ends it.
    @type {(run: Run, index: number, stopText?: string | null) => void} */
function endedAtOnce(run, index, stopText) {
  const { story, nodes } = run;
  const by = stopText ? "string" : "model";
  const node = story.nodes[pointOf(run)];
  node.ends = { ...node.ends, [by]: (node.ends?.[by] ?? 0) + 1 };
  const gone = nodes[index];
  if (!gone) return;
  drop(story, gone);
  nodes[index] = null;
  store.keep(story, [node, gone]);
  changed("story");
}

/** The node behind which a run's candidates stand now: a change of the text before it may have cut it.
    @type {(run: Run) => string} */
function pointOf({ story, nodes, point }) {
  const parent = nodes.find(Boolean)?.parent;
  return parent && story.nodes[parent] ? parent : point;
}

/** @type {(run: Run) => void} */
const redraw = ({ nodes }) => changed(...nodes.flatMap((node) => node?.id ?? []));

/** The server's name for a node's text; `from` counts the sequence's tokens before the node's first one.
    @type {(run: Run, node: TreeNode | null, index: number) => void} */
function name(run, node, index) {
  if (!node || !run.id) return; // chosen before it began
  const from = -(node.tokens?.length ?? 0);
  node.ref = { id: run.id, index, from, whole: true, model: run.model, before: run.before };
  node.seed = ((run.seed ?? 0) + index) % (2 ** 32 - 1);
}

/** @type {(run: Run, error: Error) => void} */
function failed(run, error) {
  for (const node of run.nodes) if (node?.state === "running") node.state = "interrupted";
  if (error instanceof ApiError) fail(error);
  else lost();
}

/** Ends a run; candidates without text are removed from the story.
    @type {(run: Run) => void} */
function over(run) {
  run.over = true;
  run.knows();
  session.runs.delete(run);
  const { story } = run;
  for (const node of run.nodes) if (node?.state === "running") node.state = "cancelled";
  const nodes = run.nodes.flatMap((node) => node ?? []);
  const empty = nodes.filter(({ text, state = "" }) => !text && !["stop", "length"].includes(state));
  for (const node of empty) drop(story, node);
  const kept = nodes.filter(({ id }) => story.nodes[id]);
  store.keep(story, [story.nodes[run.point], ...kept, ...empty]);
  changed("story", "status", ...kept.map((node) => node.id));
  answered();
}

// ---- variants of one candidate -----------------------------------------------------------------------

/** @type {(node: TreeNode) => string} */
const parentOf = ({ parent }) => /** @type {string} */ (parent); // a candidate is no root

/** @type {(id: string) => Promise<void>} */
export async function longer(id) {
  const { story } = session;
  const node = story.nodes[id];
  fail(null);
  Object.assign(node, { state: "running", aside: false });
  changed(id, "candidates");
  await start(parentOf(node), [node], { ...own(node), ...(node.text && continuing(story, id)) });
}

/** Generates another candidate in place of this one, which is set aside.
    @type {(id: string) => Promise<void>} */
export async function again(id) {
  const { story } = session;
  const old = story.nodes[id];
  stopOne(id);
  fail(null);
  const { replaces, tail } = old;
  const parent = parentOf(old);
  const node = candidate(story, parent, old.sampling, id, replaces ? { replaces, tail } : {});
  setAside(story, [old]);
  const fields = replaces && (await rewriting(story, parent, replaces));
  await start(parent, [node], { ...own(old), ...fields });
  if (!node.text) setAside(story, [old], false);
}

/** Continues from another token in place of token i.
    @type {(id: string, i: number, token: Token) => Promise<void>} */
export async function branch(id, i, token) {
  const { story } = session;
  const old = story.nodes[id];
  const parent = parentOf(old);
  const known = old.tokens ?? [];
  const tokens = [...known.slice(0, i), { ...token, top: known[i].top }];
  const text = tokens.map((one) => one.text).join("");
  const { replaces, tail } = old;
  const node = candidate(story, parent, old.sampling, id, { text, tokens, replaces, tail });
  changed("story");
  const prompt = { prompt: unescaped(textOf(story, node.id)), continue: undefined, token_healing: undefined };
  await start(parent, [node], { ...own(old), ...prompt, ...(replaces && lengthLike(replaces, text)) });
}
