// What a request says: the prompt at a point of the story, and the settings.

import { hasParts } from "../background/parts.js";
import { isCut, partsFor } from "../background/reads.js";
import { apart, together } from "../settings/best.js";
import { lengthFields } from "../settings/lengths.js";
import { isContinuable, modelField, session } from "../story/session.js";
import { isSpaced, pathTo, promptFor } from "../story/tree.js";
import { structureField, textsOf } from "../ui/fields.js";
import { bannedField } from "./banned.js";

/** @import { PromptFields, Sampling, Story, TreeNode } from "../story/tree.js" */

/** The body of POST /v1/events for candidates: a prompt or messages, and fields of the settings, which the
    server's table describes. `text` is not sent: what the model reads, should `continue` not be known.
    @typedef {Partial<PromptFields> & {messages?: Message[], n: number, model?: string, story?: object,
      logprobs: number, token_healing?: boolean, [field: string]: any}} Request */
/** @typedef {{role: string, content: string}} Message */

const FIELDS_OF_ALL = new Set(["seed"]);

/** The sampling values of a candidate: the common ones, and its own value of each spread.
    @type {(index: number, n: number) => Sampling} */
export function samplingOf(index, n) {
  const { values, spreads } = session.settings;
  const shares = Object.entries(spreads).map(([name, [from, to]]) => {
    const value = n < 2 ? from : from + ((to - from) * index) / (n - 1);
    return [name, Math.round(value * 1000) / 1000];
  });
  return { ...apart(values), ...Object.fromEntries(shares) };
}

/** @type {(story: Story, point: string, n: number) => Request} */
export function body(story, point, n) {
  const { settings } = session;
  const each = Array.from({ length: n }, (_, index) => samplingOf(index, n));
  const lists = Object.keys(settings.spreads).map((name) => [name, each.map((sampling) => sampling[name])]);
  const stop = textsOf(settings.stop);
  return {
    ...(story.kind === "chat" ? { messages: messages(story, point) } : promptOf(story, point)),
    n,
    ...modelField(),
    ...lengthFields(),
    logprobs: settings.alternatives,
    ...apart(settings.values),
    ...together(settings.values, n),
    ...Object.fromEntries(lists),
    ...(stop.length && { stop }),
    ...bannedField(story),
    ...structureField(settings.structure),
  };
}

const ROLES = { user: "user", model: "assistant" };

/** @type {(story: Story, point: string) => Message[]} */
function messages(story, point) {
  const said = pathTo(story, point).filter((node) => node.text);
  const system = story.system.trim() ? [{ role: "system", content: story.system }] : [];
  return [
    ...system,
    ...said.map(({ source, text }) => ({ role: ROLES[source] ?? "assistant", content: text })),
  ];
}

/** The sampling values of one node, as fields of a request with n = 1.
    @type {(node: TreeNode) => Sampling} */
export const own = ({ sampling }) =>
  Object.fromEntries(Object.entries(sampling ?? {}).filter(([name]) => !FIELDS_OF_ALL.has(name)));

/** The prompt fields at a node. A story that is cut, or has other parts than its text, is sent as a whole. A
    word that the writer has begun may go on, and behind the writer's space another one begins.
    @type {(story: Story, id: string) => PromptFields & Record<string, any>} */
function promptOf(story, id) {
  const isWhole = hasParts(story) || isCut();
  const fields = promptFor(story, id, isWhole ? () => false : isContinuable);
  const last = pathTo(story, id).findLast(({ text }) => text);
  const isBehindSpace = isSpaced(story, id, session.at);
  if (isBehindSpace) Object.assign(fields, { prompt: `${fields.prompt ?? ""} `, text: `${fields.text} ` });
  const heals = fields.prompt && (isBehindSpace || last?.source !== "model");
  return { ...fields, ...partsFor(story, fields.text), ...(heals && { token_healing: true }) };
}

/** The prompt fields that let a candidate grow.
    @type {(story: Story, id: string) => Record<string, any>} */
export function continuing(story, id) {
  if (story.kind === "chat") return { messages: messages(story, id), continue_final_message: true };
  return { prompt: undefined, continue: undefined, token_healing: undefined, ...promptOf(story, id) };
}
