// What the model reads of the story, as the server says it: by `start` of a request, or by /v1/prompt.

import { ApiError, call } from "./api.js";
import { loreOf, partsOf, storyField } from "./parts.js";
import { isChat, isReady, modelField, pointId, session } from "./session.js";
import * as store from "./store.js";
import { heldBack, textOf } from "./tree.js";
import { changed } from "./ui.js";

const PAUSE_MS = 500; // of the writer, after which changed parts are sent

let pause = null;

/** Takes over what the server says of a prompt that was sent; nothing, if it says nothing. */
export function told(story, prompt, notes) {
  if (story !== session.story || !notes) return;
  session.reads = { ...notes, at: unitsOf(prompt, notes.begins), entries: loreOf(story) };
  changed("reads", "text");
}

/** Notes that the server has cut the beginning of a candidate's tokens; it does not say where in the text. */
export function toldOfCut(story, tokens) {
  if (story === session.story && tokens) session.reads = { begins: 0, cut_tokens: tokens };
}

/** Whether the model reads only the end of the story, as far as is known. */
export const isCut = () => session.reads?.cut_tokens > 0;

/** The server counts characters, and the browser the units of UTF-16. */
function unitsOf(text, characters) {
  let at = 0;
  while (characters-- > 0) at += text.codePointAt(at) > 0xffff ? 2 : 1;
  return at;
}

/** The text that a request at the caret sends. */
const textToSend = () => textOf(session.story, pointId()).slice(0, heldBack(session.story, Infinity));

/** The prompt fields of the whole story at a place. */
export const wholeStory = (story, prompt) => ({ prompt, story: storyField(story) });

/** Asks the server how it would make the prompt. */
export async function look() {
  const { story, settings } = session;
  if (isChat() || !isReady()) return;
  const prompt = textToSend();
  try {
    const body = { ...wholeStory(story, prompt), max_tokens: settings.max_tokens, ...modelField() };
    const made = await call("POST", "v1/prompt", body);
    session.exact = made.prompt;
    session.refused = null;
    told(story, prompt, made.story);
  } catch (error) {
    if (error instanceof ApiError) session.refused = error.message;
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
