// The panel of what the model reads besides the text: memory, summary, author's note, lore; and what it
// reads of all this now, as the server says.

import { session } from "../story/session.js";
import { NumberField } from "../ui/fields.js";
import { Button, html, useChanges, useEffect, useState } from "../ui/ui.js";
import { Lore } from "./lore.js";
import { partsOf } from "./parts.js";
import { changeParts, look } from "./reads.js";
import { Summary } from "./summary.js";

const changeNote = (fields) => changeParts({ note: { ...partsOf(session.story).note, ...fields } });

export function Background() {
  useChanges("story", "parts", "reads");
  const { note, memory } = partsOf(session.story);
  useEffect(() => {
    session.watching = true;
    look();
    return () => (session.watching = false);
  }, [session.story.id]);
  const key = session.story.id;
  return html`
    <p class="hint">The model reads this besides your text. The server puts it together, so that it fits.</p>
    <${Reads} />
    ${session.refused && html`<p class="bad" role="alert">${session.refused}</p>`}
    <label class="field stacked" key=${`${key} memory`}>Memory
      <textarea rows="4" value=${memory} placeholder="What is always true: persons, place, style"
        onInput=${({ target }) => changeParts({ memory: target.value })}></textarea></label>
    <${Lore} />
    <${Summary} key=${`${key} summary`} />
    <fieldset><legend>Author's note</legend>
      <textarea rows="2" aria-label="Author's note" value=${note.text}
        placeholder="For the next lines: [ A storm comes up. ]"
        onInput=${({ target }) => changeNote({ text: target.value })}></textarea>
      <${NumberField} label="Tokens of the text behind it" low=${0} value=${note.depth} placeholder="100"
        set=${(depth) => changeNote({ depth })} /></fieldset>`;
}

const NAMES = { memory: "Memory", lore: "Lore", summary: "Summary", text: "Text", note: "Author's note" };

/** The parts that the model reads, in their order. */
function Reads() {
  const { reads, text } = session;
  const [isOpen, setOpen] = useState(false);
  const open = () => {
    if (!isOpen) look();
    setOpen(!isOpen);
  };
  if (!reads?.parts) return null;
  const tokens = reads.parts.reduce((sum, part) => sum + part.tokens, 0);
  const first = text.slice(reads.at, (reads.at ?? 0) + SHOWN).trim();
  return html`<fieldset class="reads"><legend>What the model reads</legend>
    <ol class="list">${reads.parts.map(
      (part, i) => html`<li key=${i}><span>${nameOf(part)}</span><span>${part.tokens} tokens</span></li>`,
    )}</ol>
    <p class="hint">${tokens} of ${reads.room} tokens.${" "}
      ${
        reads.at
          ? html`The text begins at “${first}…”; ${reads.cut_tokens} tokens before that are cut.`
          : "All of the text is read."
      }</p>
    <${Button} label="The exact prompt" pressed=${isOpen} onClick=${open} />
    ${isOpen && html`<pre class="text exact" tabindex="0" aria-label="Prompt">${session.exact}</pre>`}
  </fieldset>`;
}

const SHOWN = 40; // characters of the text

function nameOf({ name, entry }) {
  if (name !== "lore") return NAMES[name];
  const { name: own, text } = session.reads?.entries?.[entry] ?? {};
  return `Lore: ${own || text?.trim().slice(0, SHOWN)}`;
}
