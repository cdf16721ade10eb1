// The lore: entries with their rules, and why each one is in the prompt or not.

import { session } from "../story/session.js";
import { NumberField } from "../ui/fields.js";
import { Button, html, useChanges, useState } from "../ui/ui.js";
import { newEntry, partsOf } from "./parts.js";
import { changeParts } from "./reads.js";

/** Changes the entries as they are now, which may not be drawn yet. */
const changeLore = (change) => changeParts({ lore: change(partsOf(session.story).lore) });

const put = (id, fields) =>
  changeLore((lore) => lore.map((entry) => (entry.id === id ? { ...entry, ...fields } : entry)));
const remove = (id) => changeLore((lore) => lore.filter((entry) => entry.id !== id));
const add = () => changeLore((lore) => [...lore, newEntry()]);

/** @import { Reads } from "../story/session.js" */

export function Lore() {
  useChanges("parts", "reads");
  const { lore, budget, search } = partsOf(session.story);
  return html`<fieldset class="lore"><legend>Lore</legend>
    <p class="hint">An entry comes into the prompt when the end of the story has one of its keys.</p>
    ${lore.map((entry) => html`<${Entry} key=${entry.id} entry=${entry} />`)}
    <${Button} label="Add an entry" onClick=${add} />
    <${NumberField} label="Tokens of all lore, at most" low=${0} value=${budget}
      placeholder="a quarter" set=${(value) => changeParts({ budget: value })} />
    <${NumberField} label="Characters to search" low=${0} value=${search} placeholder="1000"
      set=${(value) => changeParts({ search: value })} /></fieldset>`;
}

const NUMBERS = {
  order: ["Order", "100", "Of a higher order an entry stays longer, and stands nearer to the end"],
  search: ["Characters searched", "as below", "Of the story's end, for the keys of this entry"],
  budget: ["Tokens, at most", "all", "A longer text is cut at a sentence"],
  meaning: ["Near in meaning, %", "off", "Without a key it comes when its text is so near to the story"],
};

function Entry({ entry }) {
  const [isOpen, setOpen] = useState(!entry.text);
  const set = (fields) => put(entry.id, fields);
  const lines = (name, label, about) =>
    html`<label class="field stacked" title=${about}>${label}
      <textarea rows="2" value=${entry[name]}
        onInput=${({ target }) => set({ [name]: target.value })}></textarea></label>`;
  const name = entry.name || entry.text.trim().slice(0, 30) || "New entry";
  return html`<details class="entry" open=${isOpen}
    onToggle=${({ currentTarget }) => setOpen(currentTarget.open)}>
    <summary>${name} <small>${why(entry)}</small></summary>
    <label class="field">Entry's name
      <input value=${entry.name} onInput=${({ target }) => set({ name: target.value })} /></label>
    ${lines("text", "Text", "What comes into the prompt")}
    ${lines("keys", "Keys, one a line", "Whole words in any case, or /expressions/")}
    ${lines("also", "Second keys, one a line", "One of these must be there, too")}
    <label class="check"><input type="checkbox" checked=${entry.always}
      onChange=${({ target }) => set({ always: target.checked })} /> always there</label>
    ${Object.entries(NUMBERS).map(
      ([field, [label, placeholder, about]]) => html`<${NumberField} key=${field} label=${label} low=${0}
      value=${entry[field]} placeholder=${placeholder} about=${about}
      set=${(value) => set({ [field]: value })} />`,
    )}
    <${Button} label="Remove" onClick=${() => remove(entry.id)} /></details>`;
}

const percent = (nearness) => `${Math.round(nearness * 100)} %`;

const WHY = {
  always: () => "always there",
  key: ({ key }) => `there: “${key}” was found`,
  meaning: ({ nearness }) => `there: ${percent(nearness)} near in meaning`,
  no_key: ({ nearness }) =>
    nearness === undefined
      ? "not there: none of its keys was found"
      : `not there: none of its keys was found, ${percent(nearness)} near in meaning`,
  no_second_key: () => "not there: no second key was found",
  budget: () => "not there: no tokens are left for it",
};

/** Why an entry is in the prompt or not, as the server says. */
function why({ id }) {
  const { entries = [], lore = [] } = /** @type {Partial<Reads>} */ (session.reads ?? {});
  const at = entries.findIndex((entry) => entry.id === id);
  const report = lore.find(({ entry }) => entry === at);
  return report ? WHY[report.why](report) : "";
}
