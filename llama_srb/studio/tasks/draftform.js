// The form of a task's draft. What differs from the configured task is marked.

import { isTask, session } from "../story/session.js";
import { NumberField, RowField, Samplers, Structure, without } from "../ui/fields.js";
import { html, useChanges } from "../ui/ui.js";
import { edit, input, tuning } from "./trials.js";

const MOST_TOKENS = 2 ** 31 - 1;
const MOST_CHUNKS = 100;
const ABOUT = {
  stop: "\\n is a line break",
  bias_prompt: "Each text is first a free answer; behind this text it goes on, with the structure",
  other: 'Fields that have no place above, as samplers = ["top_k"]',
};
const SEARCHES = { "": "as the memory says", words: "words", meaning: "meaning", hybrid: "both" };
const POSITIONS = { turn: "before the user's text", prelude: "behind the prelude" };

export function DraftForm() {
  useChanges("tuning", "server");
  const { draft, fields, input: kept } = tuning;
  const texts = (name, label, rows = 1, hint) =>
    html`<${TextField} name=${name} label=${label} rows=${rows} hint=${hint} />`;
  return html`<form class="draft" aria-label="Draft" onSubmit=${(event) => event.preventDefault()}>
    ${texts("name", "Name")}
    ${texts("about", "About")}
    <${ModelField} />
    <fieldset><legend>The texts around each prompt</legend>
      ${texts("prelude", "Prelude", 4)}
      ${texts("prefix", "Prefix", 2)}
      ${texts("postfix", "Postfix", 2)}
      <p class="hint">Names of control tokens in these three are these tokens; in prompts they stay text.</p>
    </fieldset>
    <fieldset><legend>How much</legend>
      <${Value} name="n" label="Candidates" low=${1} />
      <${Value} name="max_tokens" label="Tokens each" low=${-1} high=${MOST_TOKENS} />
      ${texts("stop", "Stop strings, one a line", 2, ABOUT.stop)}
    </fieldset>
    <${Samplers} rows=${fields.samplers} full=${kept.full} setFull=${(full) => input({ full })}
      more=${Object.keys(draft.values)}
      One=${Row} />
    <div class=${marked("structure", "")}>
    <${Structure} structure=${draft.structure} put=${(structure) => edit({ structure })}
      error=${structureError()} /></div>
    ${texts("bias_prompt", "Bias prompt", 1, ABOUT.bias_prompt)}
    <${Recall} />
    <fieldset><legend>Rules for clients</legend>
      ${texts("locked", "Locked fields, one a line", 2)}
      ${texts("private_tokens", "Private tokens, one a line", 2)}
    </fieldset>
    ${texts("other", "Other fields, as TOML", 2, ABOUT.other)}
  </form>`;
}

const isEdited = (name) => JSON.stringify(tuning.draft[name]) !== JSON.stringify(tuning.before[name]);
const isValueEdited = (name) => tuning.draft.values[name] !== tuning.before.values[name];

/** The class of what shows the draft's field. */
const marked = (name, kind = "field") => (isEdited(name) ? `${kind} edited` : kind);

/** A text of the draft; `rows` of 1 is a line. */
function TextField({ name, label, rows, hint }) {
  const put = (event) => edit({ [name]: event.target.value });
  const value = tuning.draft[name];
  return html`<label class=${marked(name)} title=${hint}><span>${label}</span>
    ${
      rows === 1
        ? html`<input value=${value} onInput=${put} />`
        : html`<textarea class="code" rows=${rows} spellcheck=${false} value=${value}
          onInput=${put}></textarea>`
    }</label>`;
}

function ModelField() {
  const { model } = tuning.draft;
  const names = session.models.map(({ id }) => id).filter((id) => !isTask(id));
  const all = !model || names.includes(model) ? names : [...names, model];
  return html`<label class=${marked("model")}><span>Model</span>
    <select value=${model} onChange=${(event) => edit({ model: event.target.value })}>
      <option value="">the server's default</option>
      ${all.map((name) => html`<option key=${name}>${name}</option>`)}</select></label>`;
}

const putValue = (name) => (value) => edit({ values: without(tuning.draft.values, name, value) });

function Value({ name, label, low, high }) {
  const row = tuning.fields.request.find((row) => row.name === name);
  return html`<div class=${isValueEdited(name) ? "edited" : ""}>
    <${NumberField} label=${label} low=${low} high=${high} value=${tuning.draft.values[name]}
      placeholder=${String(row?.default ?? "")} set=${putValue(name)} about=${row?.meaning} /></div>`;
}

const Row = ({ row }) =>
  html`<div class=${isValueEdited(row.name) ? "row edited" : "row"}>
    <${RowField} row=${row} value=${tuning.draft.values[row.name]} put=${putValue(row.name)} />
    <small>${row.meaning}</small></div>`;

/** The server's error about the structure, of the last trial. */
function structureError() {
  const { kind } = tuning.draft.structure;
  const sides = tuning.trials.map(({ sides }) => sides.edited);
  return sides.find(({ param }) => param?.split(".").at(-1) === kind)?.error;
}

function Recall() {
  const { recall } = tuning.draft;
  const put = (name, value) => edit({ recall: { ...tuning.draft.recall, [name]: value } });
  const names = tuning.memories.map(({ id }) => id);
  const all = !recall.memory || names.includes(recall.memory) ? names : [...names, recall.memory];
  if (!all.length) return null;
  return html`<fieldset class=${marked("recall", "")}><legend>What it recalls</legend>
    <label class="field"><span>Memory</span>
      <select value=${recall.memory} onChange=${(event) => put("memory", event.target.value)}>
      <option value="">none</option>
      ${all.map((name) => html`<option key=${name}>${name}</option>`)}</select></label>
    ${
      recall.memory &&
      html`<${NumberField} label="Chunks" low=${1} high=${MOST_CHUNKS} value=${recall.retrieve}
        placeholder="2" set=${(value) => put("retrieve", value)} />
      <${NumberField} label="Stored prompts" low=${0} high=${MOST_CHUNKS} value=${recall.retrieve_prompts}
        placeholder=${recall.store_prompts ? "1" : "0"} set=${(value) => put("retrieve_prompts", value)} />
      <label class="field"><span>They stand</span>
        <select value=${recall.position} onChange=${(event) => put("position", event.target.value)}>
        ${Object.entries(POSITIONS).map(([name, label]) => html`<option value=${name}>${label}</option>`)}
        </select></label>
      <label class="field"><span>They are found by</span>
        <select value=${recall.search ?? ""} onChange=${(event) => put("search", event.target.value || null)}>
        ${Object.entries(SEARCHES).map(([name, label]) => html`<option value=${name}>${label}</option>`)}
        </select></label>
      <label class="check"><input type="checkbox" checked=${recall.headings}
        onChange=${(event) => put("headings", event.target.checked)} />${" "}
        with the headings above them</label>
      <label class="check"><input type="checkbox" checked=${recall.store_prompts}
        onChange=${(event) => put("store_prompts", event.target.checked)} />${" "}
        store prompts (not those of trials)</label>
      ${["pre_filter", "post_filter"].map(
        (name) => html`<label class="field" key=${name}><span>${name}, as JSON</span>
        <input class="code" spellcheck=${false} value=${recall[name]}
          onInput=${(event) => put(name, event.target.value)} /></label>`,
      )}`
    }</fieldset>`;
}
