// The server's models: the list with their states, the writer's choice among them, and the line of a card
// that waits for a load.

import { chosenModel, defaultModel, isTask, isUnserved, model, session } from "../story/session.js";
import * as store from "../story/store.js";
import { changed, html, useChanges, useEffect } from "../ui/ui.js";
import { call } from "./api.js";

const STATES = { unloaded: "not loaded", loading: "loading", loaded: "loaded", failed: "failed to load" };

const PERIOD = 1000; // ms between refreshes while a model loads

/** @type {string | null} */
let fieldsOf = null; // the name of the model whose defaults session.fields has
let last = Promise.resolve(); // the last refresh
let due = false; // a refresh has not begun yet
let again = 0; // the timer of the next refresh while a model loads

/** Reads the models and the fields with the defaults of the story's model; ApiError when that is refused. */
export async function learnModels() {
  await readModels();
  await readFields();
}

async function readModels() {
  const { data } = await call("GET", "v1/models");
  const answering = data.length > 1 ? await call("GET", "v1/model") : null; // that of requests without a name
  Object.assign(session, { models: data, defaultModel: answering?.id ?? null });
  changed("server", "text");
}

async function readFields() {
  const name = nameOfMany();
  const fields = await call("GET", `v1/samplers${name ? `?model=${encodeURIComponent(name)}` : ""}`);
  if (name !== nameOfMany()) return; // the story's model changed meanwhile, and so followModel reads again
  session.fields = fields;
  fieldsOf = name;
  changed("fields");
}

/** The name of the story's model; null when the server has one model. */
const nameOfMany = () => (session.models.length > 1 ? (model()?.id ?? null) : null);

/** Reads the models again. Calls while one waits to begin share it. Errors are reported by status.js. */
export function refreshModels() {
  if (!due) last = last.then(refresh);
  due = true;
  return last;
}

async function refresh() {
  due = false;
  try {
    await readModels();
    await followModel();
  } catch {} // what is known so far stays
  clearTimeout(again);
  const loads = session.models.some(({ status }) => status?.value === "loading");
  if (loads) again = setTimeout(refreshModels, PERIOD);
}

/** Waits for the models, where a page has just been opened. */
export const knownModels = async () => void (session.models.length || (await refreshModels()));

/** Reads the tasks, which change only with a restart of the server. */
export async function learnTasks() {
  session.tasks = (await call("GET", "v1/tasks")).data;
  changed("tasks", "server");
}

/** Reads the fields if the story's model has changed. */
export async function followModel() {
  if (nameOfMany() !== fieldsOf) await readFields().catch(() => {});
}

/** Refreshes the states when a request was answered, which may have loaded and unloaded models. */
export const answered = () => session.models.length > 1 && refreshModels();

function choose(name) {
  session.story.model = name || null;
  session.prompt = null; // which was another model's
  store.keep(session.story);
  changed("story", "settings", "server", "status", "text");
  followModel();
}

// ---- views -------------------------------------------------------------------------------------------

const kindOf = (name) => (isTask(name) ? "task" : "adapter");

const told = (...facts) => facts.filter(Boolean).join(" · ");

/** The names that the writer may choose, with their states; nothing when there is one. */
export function ModelChoice() {
  useChanges("server", "story");
  useEffect(() => void refreshModels(), []);
  const { models, story } = session;
  if (models.length < 2 && !isUnserved()) return null;
  const { id: answering, status } = model() ?? {};
  return html`<label class="field">Model
    <select value=${isUnserved() ? story.model : (chosenModel()?.id ?? "")} onFocus=${refreshModels}
      onPointerDown=${refreshModels} onChange=${(event) => choose(event.target.value)}>
      <option value="">${`the server's default (${defaultModel()?.id})`}</option>
      ${isUnserved() && html`<option disabled>${story.model}</option>`}
      ${models.map(
        ({ id, parent, status }) => html`<option key=${id} value=${id}>
        ${told(id, parent && `${kindOf(id)} of ${parent}`, STATES[status?.value])}</option>`,
      )}</select></label>
    ${status?.error && html`<p class="bad">${answering} failed to load: ${status.error}</p>`}`;
}

/** Says that the story's model is not served. */
export function Unserved() {
  useChanges("server", "story");
  if (!isUnserved()) return null;
  const { model: name } = session.story;
  return html`<p class="notice" role="alert">${`This story's model, ${name}, is not served any more; `}
    ${`${defaultModel()?.id} answers until you choose another.`}</p>`;
}

/** How far the load is that a candidate waits for. */
export function Loading({ node }) {
  const run = [...session.runs].find(({ nodes }) => nodes.includes(node));
  if (run?.loading == null) return null;
  const percent = Math.round(100 * run.loading);
  return html`<p class="hint">${`Loading ${run.model ?? "the model"}: ${percent} %`}</p>`;
}
