// The page's state: the open story, its text and point, runs, settings; functions that read it.
// It knows neither the server nor the keys; history.js, asking.js, choosing.js and library.js change it.

import { changed } from "../ui/ui.js";
import * as store from "./store.js";
import { childrenOf, isBlank, pathTo, shownName, textOf } from "./tree.js";

/** @import { Entry } from "../background/parts.js" */
/** @import { Run } from "../candidates/asking.js" */
/** @import { Head, Ref, Story, TreeNode } from "./tree.js" */

/** The settings of requests and of the page, in localStorage.
    @typedef {object} Settings
    @property {number} n
    @property {number} max_tokens
    @property {{kind: string, count: number}} length tokens, sentences or paragraphs
    @property {boolean} next
    @property {number} alternatives
    @property {boolean} colours
    @property {boolean | null} reading one candidate at a time; null: on phones
    @property {boolean} full
    @property {string} preset the key of the one that was chosen last (presets.js)
    @property {Record<string, any>} values of fields, by their names
    @property {Record<string, [number, number]>} spreads the first and the last candidate's values
    @property {string} stop one a line
    @property {string} banned the phrases of all stories, one a line
    @property {{kind: string, text: string}} structure */

/** A model of the server, or an adapter that has a name: an entry of /v1/models.
    @typedef {object} Model
    @property {string} id
    @property {string[]} [aliases]
    @property {string} [parent] of an adapter: its model
    @property {Record<string, any>} [meta]
    @property {{value: string, [more: string]: any}} [status] */

/** What the model reads: the server's answer for a prompt, and `at`, where in the text it begins.
    @typedef {Record<string, any> &
      {begins: number, cut_tokens: number, at?: number, entries?: Entry[]}} Reads */

/** Another device's version of the open story, and the words for what differs.
    @typedef {{remote: Story, version: string, fields: string[]}} Conflict */

/** @typedef {Record<string, any> & {id: string}} Task an entry of /v1/tasks */
/** A preset of the server.
    @typedef {{name: string, title: string, about: string, fields: Record<string, any>}} Preset */
/** @typedef {{message: string, param?: string | null, code?: string | null}} Shown an error that is shown */

/** The page's state.
    @typedef {object} Session
    @property {Story} story the open one; there is none only until the page has begun
    @property {Head[]} stories
    @property {Head[]} trash
    @property {boolean} saved all that is written is stored in this browser
    @property {Conflict | null} conflict of the open story
    @property {Task[]} tasks that the key may use
    @property {Model[]} models of the server, and their adapters that have names
    @property {string | null} defaultModel the one that answers requests without a name; null: there is one
    @property {Preset[]} presets
    @property {Record<string, any> | null} fields of the server, with their bounds
    @property {string} text
    @property {number | null} caret where the editor's caret is put next, when the text was not typed
    @property {number} at where the caret is
    @property {[number, number] | null} selected of the text, while the writer has selected some
    @property {string | null} point the node that candidates continue, when that is not the end of the text
    @property {string | null} replaces the text behind the point that candidates rewrite
    @property {Set<Run>} runs
    @property {Shown | null} error
    @property {Settings} settings
    @property {{tokens: number, cached: number} | null} prompt the last prefilled one
    @property {{tokens: number, right: number} | null} guessed by the last request
    @property {Reads | null} reads
    @property {string | null} exact the last prompt that the server has shown
    @property {string | null} refused why the server cannot make the prompt
    @property {boolean} watching the panel of what the model reads is open
    @property {string} said for screen readers
    @property {string | null} compare
    @property {boolean} elsewhere another tab changes this story */

/** @type {Settings} */
export const DEFAULTS = {
  n: 4,
  max_tokens: 60,
  length: { kind: "tokens", count: 0 },
  next: true,
  alternatives: 10,
  colours: false,
  reading: null,
  full: false,
  preset: "",
  values: {},
  spreads: {},
  stop: "",
  banned: "",
  structure: { kind: "none", text: "" },
};

/** @type {Session} */
export const session = {
  story: /** @type {any} */ (null),
  stories: [],
  trash: [],
  saved: true,
  conflict: null,
  tasks: [],
  models: [],
  defaultModel: null,
  presets: [],
  fields: null,
  text: "",
  caret: null,
  at: 0,
  selected: null,
  point: null,
  replaces: null,
  runs: new Set(),
  error: null,
  settings: { ...DEFAULTS, ...store.read("studio.settings", {}) },
  prompt: null,
  guessed: null,
  reads: null,
  exact: null,
  refused: null,
  watching: false,
  said: "",
  compare: null,
  elsewhere: false,
};

/** @type {(fields: Partial<Settings>) => void} */
export const setting = (fields) => {
  Object.assign(session.settings, fields);
  store.save("studio.settings", session.settings);
  changed("settings");
};

/** @type {(name: string) => boolean} */
export const isTask = (name) => session.tasks.some(({ id }) => id === name);

/** The tasks that the key may tune: an admin sees their private tokens.
    @type {() => Task[]} */
export const tunable = () => session.tasks.filter((task) => task.private_tokens);

/** The model that the writer has chosen for the story, if it is served.
    @type {() => Model | undefined} */
export const chosenModel = () =>
  session.models.find(
    ({ id, aliases }) => id === session.story.model || aliases?.includes(session.story.model ?? ""),
  );

/** @type {() => Model | undefined} */
export const defaultModel = () =>
  session.models.find(({ id }) => id === session.defaultModel) ?? session.models[0];

/** The model that answers the story's requests; undefined before the server's models are known.
    @type {() => Model | undefined} */
export const model = () => chosenModel() ?? defaultModel();

/** The name of the model that computes: for an adapter that of its model.
    @type {() => string | undefined} */
export const baseModel = () => model()?.parent ?? model()?.id;

/** Whether the server has models, but not the one that the writer has chosen. */
export const isUnserved = () => !!session.story.model && session.models.length > 0 && !chosenModel();

/** The field of requests that names the chosen model.
    @type {() => {model?: string}} */
export function modelField() {
  const { models, story } = session;
  const name = models.length > 1 ? chosenModel()?.id : !models.length && story.model;
  return name ? { model: name } : {};
}

/** Whether the story's model can continue a candidate with this `ref`: one of its own.
    @type {(ref: Ref) => boolean} */
export const isContinuable = (ref) => (ref.model ? ref.model === baseModel() : session.models.length < 2);

/** Whether something can be computed without a load: typing loads none of several models. */
export const isReady = () => session.models.length < 2 || model()?.status?.value === "loaded";

/** The number of candidates per request. */
export const wanted = () => session.settings.n;

/** The text that some of these candidates rewrite; null: they continue the text before them.
    @type {(nodes: TreeNode[]) => string | null} */
const passageOf = (nodes) => nodes.find(({ replaces, aside }) => replaces && !aside)?.replaces ?? null;

/** Sets the point, and the text behind it that is rewritten: as its candidates do, if none is given.
    @type {(id: string | null, replaces?: string | null) => void} */
export function setPoint(id, replaces = id && passageOf(childrenOf(session.story, id))) {
  Object.assign(session, { point: id, replaces });
}

export const pointId = () => session.point ?? session.story.current;
export const isChat = () => session.story.kind === "chat";

/** The candidates at the point; `aside` includes those set aside. The text that stands there is none.
    @type {(aside?: boolean) => TreeNode[]} */
export function candidates(aside = false) {
  const all = childrenOf(session.story, pointId());
  const there = new Set(session.point ? pathTo(session.story) : []);
  return all.filter((node) => !isBlank(node) && (aside || !node.aside) && !there.has(node));
}

/** @type {(message: string) => void} */
export function say(message) {
  session.said = message;
  changed("said");
}

/** @type {(error: Shown | null) => void} */
export function fail(error) {
  session.error = error && { message: error.message, param: error.param ?? null, code: error.code ?? null };
  changed("error");
}

export const AWAY = "Can't reach the server. Your writing is safe in this browser; reconnecting…";
/** Functions to call when the server is gone.
    @type {(() => void)[]} */
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

/** @type {(fields: Partial<Story>) => Promise<void>} */
export async function nameStory(fields) {
  const { story } = session;
  Object.assign(story, fields);
  store.keep(story);
  const named = session.stories.find(({ id }) => id === story.id);
  if (named) Object.assign(named, fields, { changed: story.changed });
  changed("stories", "story");
}

/** Names a story that has no name yet after its first words. */
export function nameByItsWords() {
  const name = shownName(session.story);
  if (name !== session.story.name) nameStory({ name });
}

/** Shows the text of the story, with the caret at its end or at the given place.
    @type {(caret?: number | null) => void} */
export function refresh(caret = null) {
  session.text = isChat() ? "" : textOf(session.story);
  session.caret = caret ?? session.text.length;
  session.at = Math.min(session.caret, session.text.length);
  changed("story", "text", "server");
}
