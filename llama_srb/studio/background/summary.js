// The summary of what the model does not read any more, written by hand or drafted by a model.

import { unescaped } from "../files/emphasis.js";
import { events } from "../server/api.js";
import { fail, model, modelField, session } from "../story/session.js";
import { Button, changed, html, useChanges } from "../ui/ui.js";
import { partsOf } from "./parts.js";
import { changeParts } from "./reads.js";

const REQUEST =
  "Summarise the beginning of a story in one paragraph, for a writer who goes on with it: who is there, " +
  "what has happened, and what is still open. Answer with the summary only.";
const drafts = new WeakMap(); // story → its draft, which stays when the panel is closed
const running = new WeakMap(); // story → the request that writes its draft
const TOKENS = 250; // of a draft
const CHARACTERS = 2; // of a token, at least, in most texts: so many of the text are sent

/** The messages that ask for a summary of the text that is cut; of a long one its end and the old summary. */
function messages() {
  const { reads, text, story } = session;
  const { summary } = partsOf(story);
  const before = summary.trim() ? `\n\nWhat happened before:\n${summary.trim()}` : "";
  const cut = unescaped(text.slice(0, reads?.at)).slice(-CHARACTERS * reads?.room);
  return [{ role: "user", content: `${REQUEST}${before}\n\nThe beginning:\n${cut}` }];
}

export function Summary() {
  useChanges("parts", "reads", "server", "draft");
  const { story } = session;
  const { summary } = partsOf(story);
  const draft = drafts.get(story) ?? null;
  const setDraft = (text) => {
    drafts.set(story, text);
    changed("draft");
  };
  const write = async () => {
    const abort = new AbortController();
    running.set(story, abort);
    let text = "";
    setDraft("");
    try {
      const body = { messages: messages(), n: 1, max_tokens: TOKENS, temperature: 0.5, ...modelField() };
      for await (const batch of events(body, abort.signal)) {
        for (const event of batch) {
          if (event.event === "error") throw new Error(event.message);
          text += event.event === "stream" ? event.text : "";
        }
        setDraft(text);
      }
    } catch (error) {
      if (error.name === "AbortError") return;
      fail(error);
    }
    running.delete(story);
    setDraft(text.trim() || null);
  };
  const use = () => {
    changeParts({ summary: draft });
    setDraft(null);
  };
  const discard = () => {
    running.get(story)?.abort();
    running.delete(story);
    setDraft(null);
  };
  return html`<fieldset><legend>Summary</legend>
    <textarea rows="4" aria-label="Summary" value=${summary}
      placeholder="What happened before the part that the model reads"
      onInput=${({ target }) => changeParts({ summary: target.value })}></textarea>
    ${
      draft === null
        ? canDraft() &&
          html`<${Button} label="Draft it" onClick=${write}
            about="The model writes a summary of the text that is cut; you edit it before it is used" />`
        : html`<textarea rows="6" aria-label="Draft of the summary" value=${draft}
            onInput=${({ target }) => setDraft(target.value)}></textarea>
          <div class="tools">
            <${Button} label="Use it" disabled=${running.has(story)} onClick=${use} />
            <${Button} label="Discard" onClick=${discard} /></div>`
    }</fieldset>`;
}

/** Only a model with a chat template can be told to summarise, and only text that is cut needs it. */
const canDraft = () => !!model()?.meta?.chat_template && (session.reads?.at ?? 0) > 0;
