// The page's state: the open story, its text and point, runs, settings; functions that read it.
// It knows neither the server nor the keys; history.js, asking.js, choosing.js and library.js change it.

import { changed } from "../ui/ui.js";
import * as store from "./store.js";
import { childrenOf, isBlank, pathTo, textOf } from "./tree.js";

export const DEFAULTS = {
  n: 4,
  n_branches: 8, // while the tree is looked at
  max_tokens: 60,
  length: { kind: "tokens", count: 0 }, // or sentences, paragraphs
  next: true,
  alternatives: 10,
  colours: false,
  reading: null, // one candidate at a time; null: on phones
  full: false,
  preset: "", // the key of the one that was chosen last (presets.js)
  values: {},
  spreads: {},
  stop: "",
  structure: { kind: "none", text: "" },
};

export const session = {
  story: null,
  stories: [],
  trash: [], // stories, without their nodes
  saved: true, // all that is written is stored in this browser
  conflict: null, // {remote, version}: another device's version of the open story
  tasks: [], // that the key may use: their entries of /v1/tasks
  models: [], // of the server, and their adapters that have names
  defaultModel: null, // the name of the model that answers requests without a name; null: there is one
  presets: [], // of the server: {name, title, about, fields}
  fields: null, // of the server, with their bounds
  text: "",
  caret: null, // where the editor's caret is put next, when the text was not typed
  at: 0, // where the caret is
  selected: null, // [from, to] of the text, while the writer has selected some
  point: null, // the node that candidates continue, when that is not the end of the text
  replaces: null, // the text behind the point that candidates rewrite
  runs: new Set(),
  error: null, // {message, param}
  settings: { ...DEFAULTS, ...store.read("studio.settings", {}) },
  prompt: null, // {tokens, cached} of the last prefilled prompt
  reads: null, // what the model reads: the server's parts, and `at`, where in the text it begins
  exact: null, // the last prompt that the server has shown
  refused: null, // why the server cannot make the prompt
  watching: false, // the panel of what the model reads is open
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

export const isTask = (name) => session.tasks.some(({ id }) => id === name);

/** The tasks that the key may tune: an admin sees their private tokens. */
export const tunable = () => session.tasks.filter((task) => task.private_tokens);

/** The model that the writer has chosen for the story, if it is served. */
export const chosenModel = () =>
  session.models.find(
    ({ id, aliases }) => id === session.story.model || aliases?.includes(session.story.model),
  );

export const defaultModel = () =>
  session.models.find(({ id }) => id === session.defaultModel) ?? session.models[0];

/** The model that answers the story's requests; undefined before the server's models are known. */
export const model = () => chosenModel() ?? defaultModel();

/** The name of the model that computes: for an adapter that of its model. */
export const baseModel = () => model()?.parent ?? model()?.id;

/** Whether the server has models, but not the one that the writer has chosen. */
export const isUnserved = () => !!session.story.model && session.models.length > 0 && !chosenModel();

/** The field of requests that names the chosen model. */
export function modelField() {
  const { models, story } = session;
  const name = models.length ? models.length > 1 && chosenModel()?.id : story.model;
  return name ? { model: name } : {};
}

/** Whether the story's model can continue a candidate with this `ref`: one of its own. */
export const isContinuable = (ref) => (ref.model ? ref.model === baseModel() : session.models.length < 2);

/** Whether something can be computed without a load: typing loads none of several models. */
export const isReady = () => session.models.length < 2 || model().status?.value === "loaded";

/** The number of candidates per request; more while the tree is open. */
export function wanted() {
  const { n, n_branches } = session.settings;
  return session.branching ? Math.max(n, n_branches) : n;
}

/** The text that some of these candidates rewrite; null: they continue the text before them. */
const passageOf = (nodes) => nodes.find(({ replaces, aside }) => replaces && !aside)?.replaces ?? null;

/** Sets the point, and the text behind it that is rewritten: as its candidates do, if none is given. */
export function setPoint(id, replaces = id && passageOf(childrenOf(session.story, id))) {
  Object.assign(session, { point: id, replaces });
}

export const pointId = () => session.point ?? session.story.current;
export const isChat = () => session.story.kind === "chat";

/** The candidates at the point; `aside` includes those set aside. The writer's text that stands there is
    none, nor is the old text beside rewrites. */
export function candidates(aside = false) {
  const all = childrenOf(session.story, pointId());
  const there = new Set(session.point && pathTo(session.story));
  const rewrites = all.some(({ replaces }) => replaces);
  const stands = (node) => there.has(node) && (rewrites || node.source === "user");
  return all.filter((node) => !isBlank(node) && (aside || !node.aside) && !stands(node));
}

export function say(message) {
  session.said = message;
  changed("said");
}

export function fail(error) {
  session.error = error && { message: error.message, param: error.param ?? null };
  changed("error");
}

export const AWAY = "Can't reach the server. Your writing is safe in this browser; reconnecting…";
/** Functions to call when the server is gone. */
export const onLost = [];

const UNKEPT = "the browser could not keep what is new";
store.refused.push((error) => {
  if (error && !session.error)
    fail({ message: `${UNKEPT} (${error.message}): export the story or make room` });
  if (!error && session.error?.message.startsWith(UNKEPT)) fail(null);
});

/** Reports that the server does not answer any more. */
export function lost() {
  fail({ message: AWAY });
  for (const tell of onLost) tell();
}

store.saving.push((saved) => {
  session.saved = saved;
  changed("saved");
});

export async function nameStory(fields) {
  const { story } = session;
  Object.assign(story, fields);
  store.keep(story);
  const named = session.stories.find(({ id }) => id === story.id);
  if (named) Object.assign(named, fields, { changed: story.changed });
  changed("stories", "story");
}

/** Shows the text of the story, with the caret at its end or at the given place. */
export function refresh(caret = null) {
  session.text = isChat() ? "" : textOf(session.story);
  session.caret = caret ?? session.text.length;
  session.at = Math.min(session.caret, session.text.length);
  changed("story", "text", "server");
}
