// What the model reads of the story, as the server says it: by `start` of a request, or by /v1/prompt.

import { placeInText, unescaped } from "../files/emphasis.js";
import { ApiError, call } from "../server/api.js";
import { lengthFields } from "../settings/lengths.js";
import { isChat, isReady, model, modelField, pointId, session } from "../story/session.js";
import * as store from "../story/store.js";
import { heldBack, textOf } from "../story/tree.js";
import { changed } from "../ui/ui.js";
import { hasParts, loreOf, partsOf, storyField } from "./parts.js";

const SHORT = 1024; // tokens: the context of a model that is not known
const PAUSE_MS = 500; // of the writer, after which changed parts are sent

/** @type {number | undefined} */
let pause;
let asked = 0; // how often the server was asked
let heard = 0; // the number of the latest question that was answered

/** Numbers a question when it is sent, since answers may come in another order. */
export const numbered = () => ++asked;

/** Whether no later question of this story was answered before. */
function isNews(story, number) {
  if (story !== session.story || number < heard) return false;
  heard = number;
  return true;
}

/** Takes over what the server says of a prompt that was sent; nothing, if it says nothing. */
export function told(story, prompt, notes, number) {
  if (!notes || !isNews(story, number)) return;
  session.reads = {
    ...notes,
    at: placeInText(session.text, unitsOf(prompt, notes.begins)),
    entries: loreOf(story),
  };
  changed("reads", "text");
}

/** Notes that the server has cut the beginning of a candidate's tokens; it does not say where in the text. */
export function toldOfCut(story, tokens) {
  if (story === session.story && tokens) session.reads = { begins: 0, cut_tokens: tokens };
}

/** Whether the model reads only the end of the story, as far as is known. */
export const isCut = () => (session.reads?.cut_tokens ?? 0) > 0;

/** The server counts characters, and the browser the units of UTF-16. */
function unitsOf(text, characters) {
  let at = 0;
  while (characters-- > 0) at += text.codePointAt(at) > 0xffff ? 2 : 1;
  return at;
}

/** The text that a request at the caret sends. */
const textToSend = () =>
  unescaped(textOf(session.story, pointId()).slice(0, heldBack(session.story, Infinity)));

/** The field `story` of a request. A short text without other parts needs none: the server would count its
    tokens first, and load the model for that without telling how far it is. */
export const partsFor = (story, text) =>
  session.watching || isCut() || hasParts(story) || !fits(text) ? { story: storyField(story) } : {};

/** Whether a text fits beside any answer, whatever its tokens: they have a byte at least. */
function fits(text) {
  const { context, n_ctx } = model()?.meta ?? {};
  return new TextEncoder().encode(text).length < Math.min(context ?? SHORT, n_ctx ?? SHORT) / 2;
}

/** The field for the tokens that a story leaves to the answer. */
export const room = () => ({ max_tokens: lengthFields().max_tokens });

/** Asks the server how it would make the prompt. */
export async function look() {
  const { story } = session;
  if (isChat() || !isReady()) return;
  const prompt = textToSend();
  const number = numbered();
  try {
    const body = { prompt, story: storyField(story), ...room(), ...modelField() };
    const made = await call("POST", "v1/prompt", body);
    if (!isNews(story, number)) return;
    session.exact = made.prompt;
    session.refused = null;
    told(story, prompt, made.story, number);
  } catch (error) {
    if (!(error instanceof ApiError) || !isNews(story, number)) return;
    session.refused = error.message;
  }
  changed("reads");
}

/** Stores changed parts of the story, and asks what the model reads now. */
export function changeParts(fields) {
  const { story } = session;
  story.parts = { ...partsOf(story), ...fields };
  store.keep(story);
  changed("parts");
  clearTimeout(pause);
  pause = setTimeout(look, PAUSE_MS);
}
