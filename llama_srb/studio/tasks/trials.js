// The page of tasks, without its views: the open task, its draft, and trials of both with the same prompts.
// Drafts and prompts are kept in the browser, so that a reload loses nothing.

import { ApiError, call, events } from "../server/api.js";
import { say, tunable } from "../story/session.js";
import { read, save } from "../story/store.js";
import { textsOf } from "../ui/fields.js";
import { changed } from "../ui/ui.js";
import { draftOf, filtersOf, tomlOf } from "./drafts.js";

const DRAFTS = "studio.drafts"; // by the task's name
const INPUT = "studio.trials";
const MOST_SEED = 2 ** 31;

export const SIDES = { configured: "As configured", edited: "Edited" };

/** The page of tasks: the open task and its draft, the trials, what was found.
    @typedef {object} Tuning
    @property {any} task its entry of /v1/tasks; null: none is open
    @property {any} draft
    @property {any} before the draft of the task as it is configured
    @property {any[]} memories those that the key may use
    @property {any} fields of the draft's model, with the model's defaults
    @property {{prompts: string[], seed: number | null, chat: boolean, full: boolean}} input
    @property {string} view one of tuning.js
    @property {number} at the prompt whose exact prompt is shown
    @property {any[]} trials a prompt and what each side made of it
    @property {AbortController | null} run the trials that run
    @property {Record<string, any>} made by side, the exact prompt, or the error
    @property {any} found in a memory */

/** @type {Tuning} */
export const tuning = {
  task: null,
  draft: null,
  before: null,
  memories: [],
  fields: null,
  input: { prompts: [""], seed: null, chat: false, full: false, ...read(INPUT, {}) },
  view: "compare",
  at: 0,
  trials: [],
  run: null,
  made: {},
  found: null,
};

// ---- the draft ---------------------------------------------------------------------------------------

/** @type {any} */
let wanted = null; // the task that was asked for last

/** Opens a task with its draft, which may be one that was kept. */
export async function openTask(name) {
  wanted = tunable().find(({ id }) => id === name) ?? tunable()[0];
  const task = wanted;
  if (!task || task === tuning.task) return;
  stop();
  const fields = await fieldsOf(task.named_model);
  if (task !== wanted) return;
  const before = draftOf(
    task,
    fields.samplers.map(({ name }) => name),
  );
  const draft = { ...structuredClone(before), ...read(DRAFTS, {})[task.id] };
  Object.assign(tuning, { task, fields, before, draft, trials: [], made: {}, found: null });
  changed("tuning", "trials", "made", "found");
}

const fieldsOf = (model) => call("GET", `v1/samplers${model ? `?model=${encodeURIComponent(model)}` : ""}`);

/** Reads the defaults of the draft's model; the server refuses an unknown one in trials. */
async function followModel() {
  const { model } = tuning.draft;
  const fields = await fieldsOf(model).catch(() => tuning.fields);
  if (tuning.draft.model === model) tuning.fields = fields;
  changed("tuning");
}

export function edit(fields) {
  Object.assign(tuning.draft, fields);
  save(DRAFTS, { ...read(DRAFTS, {}), [tuning.task.id]: tuning.draft });
  if ("model" in fields) followModel();
  changed("tuning");
}

/** Makes the draft what is configured. */
export function resetDraft() {
  const { [tuning.task.id]: _, ...others } = read(DRAFTS, {});
  save(DRAFTS, others);
  tuning.draft = structuredClone(tuning.before);
  followModel();
  changed("tuning");
}

/** Reads which memories the key may use. */
export async function learnMemories() {
  const { data } = await call("GET", "v1/memories");
  tuning.memories = data;
  changed("tuning");
}

export function input(fields) {
  Object.assign(tuning.input, fields);
  save(INPUT, tuning.input);
  changed("tuning");
}

export function show(fields) {
  Object.assign(tuning, fields);
  changed("tuning");
}

// ---- trials ------------------------------------------------------------------------------------------

const TRIED = {
  configured: () => ({ model: tuning.task.id }),
  edited: () => ({ toml: tomlOf(tuning.draft) }),
};
const SEEDED = {
  configured: ({ task }) => "seed" in task.fields || task.locked.includes("seed"),
  edited: ({ draft }) => "seed" in draft.values || textsOf(draft.locked).includes("seed"),
};

function requestOf(side, text, seed) {
  const asked = tuning.input.chat ? { messages: [{ role: "user", content: text }] } : { prompt: text };
  return { ...TRIED[side](), ...asked, ...(seed !== undefined && !SEEDED[side](tuning) && { seed }) };
}

const ofSides = (make) => Object.fromEntries(Object.keys(SIDES).map((side) => [side, make(side)]));

/** The prompts of trials; an empty one, if there are no others. */
export function prompts() {
  const written = tuning.input.prompts.filter((text) => text.trim());
  return written.length ? written : [""];
}

/** Runs both sides with each prompt, one prompt after the other, with the same seed. */
export async function runTrials() {
  stop();
  const run = (tuning.run = new AbortController());
  const seed = tuning.input.seed ?? Math.floor(Math.random() * MOST_SEED);
  const trials = prompts().map((text) => ({
    text,
    sides: ofSides((side) => ({ state: "waiting", texts: [], request: requestOf(side, text, seed) })),
  }));
  Object.assign(tuning, { trials, view: "compare" });
  changed("trials", "tuning");
  for (const { sides } of trials)
    await Promise.all(Object.values(sides).map((side) => follow(side, run.signal)));
  if (tuning.run !== run) return;
  tuning.run = null;
  const failed = trials.some(({ sides }) => Object.values(sides).some(({ error }) => error));
  say(failed ? "the trial has failed" : "the trial is complete");
  changed("trials", "tuning");
}

/** Ends the trials that run; their texts so far stay. */
export function stop() {
  tuning.run?.abort();
  tuning.run = null;
  changed("tuning");
}

async function follow(side, signal) {
  try {
    signal.throwIfAborted();
    for await (const batch of events(side.request, signal, "v1/trials")) {
      for (const event of batch) TAKERS[event.event]?.(side, event);
      changed("trials");
    }
    if (side.state !== "complete") throw new Error("the answer ended early");
  } catch (error) {
    if (error.name === "AbortError") side.state = "stopped";
    else Object.assign(side, { state: "failed", error: error.message, param: error.param });
  }
  changed("trials");
}

const TAKERS = {
  loading: (side, { progress }) => (side.state = `loading the model: ${Math.round(100 * progress)} %`),
  queued: (side, { position }) => (side.state = `place ${position} in the queue`),
  start(side, { count, seed, prompt_tokens, cached_tokens }) {
    Object.assign(side, { state: "running", seed, prompt_tokens, cached_tokens });
    side.texts = Array.from({ length: count }, () => ({ text: "", end: null, length: 0 }));
  },
  stream: (side, { index, text }) => (side.texts[index].text += text),
  stop: (side, { index, length, finish_reason }) =>
    Object.assign(side.texts[index], { length, end: finish_reason }),
  done: (side) => (side.state = "complete"),
  error(_, { message, param, code }) {
    throw new ApiError(500, { message, param, code });
  },
};

// ---- exact prompts, and the memory -------------------------------------------------------------------

/** Reads the exact prompts of both sides; what is refused has an error in its place. */
export async function learnPrompts() {
  const text = prompts()[tuning.at] ?? prompts()[0];
  const bodies = ofSides((side) => requestOf(side, text));
  const asked = Object.entries(bodies).map(async ([side, body]) => {
    const made = await call("POST", "v1/trials/prompt", body).catch((error) => ({ error: error.message }));
    if (isCurrent(side, body)) tuning.made[side] = made;
  });
  await Promise.all(asked);
  changed("made");
}

/** Whether a request is still that of the draft and the prompt. */
const isCurrent = (side, body) => {
  const text = prompts()[tuning.at] ?? prompts()[0];
  return JSON.stringify(requestOf(side, text)) === JSON.stringify(body);
};

/** Searches a memory; with the draft's filters if it recalls from it. */
export async function search(memory, query, k) {
  tuning.found = { waiting: true };
  changed("found");
  const { recall } = tuning.draft;
  const own = recall.memory === memory;
  const filters = own ? { ...filtersOf(recall), search: recall.search || undefined } : {};
  const path = `v1/memories/${encodeURIComponent(memory)}/search`;
  tuning.found = await call("POST", path, { query, k, ...filters }).catch(({ message }) => ({
    error: message,
  }));
  changed("found");
}
