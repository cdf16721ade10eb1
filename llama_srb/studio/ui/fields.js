// The fields of forms, for the settings of stories and for tasks: numbers with bounds, rows of the server's
// table, structures, lists of texts.

import { html, useEffect, useRef } from "./ui.js";

const SIMPLE = ["temperature", "min_p", "top_p", "repeat_penalty", "seed"];
const TYPES = new Set(["int", "float", "bool"]);

/** The groups of the server's table in a writer's words. @type {Record<string, string>} */
const GROUPS = {
  "": "sampling",
  temperature: "how daring",
  truncation: "which words may follow",
  repetition: "against repetition",
  diversity: "how much the texts differ",
  adaptive: "steady odds",
  mirostat: "constant surprise",
  structure: "form",
  request: "the request",
  other: "other",
};

/** Rows of the server's table in their groups, each drawn by One; `more` are names that are always shown. */
export function Samplers({ rows = [], full, setFull, more = [], One }) {
  const all = (rows ?? []).filter(({ type }) => TYPES.has(type));
  const few = [...new Set([...SIMPLE, ...more])].map((name) => all.find((row) => row.name === name));
  const shown = full ? all : few.filter(Boolean);
  const groups = Object.entries(Object.groupBy?.(shown, (row) => row.group) ?? { "": shown });
  return html`<label class="check"><input type="checkbox" checked=${full}
      onChange=${(event) => setFull(event.target.checked)} /> show every setting</label>
    ${groups.map(
      ([group, rows]) => html`<fieldset key=${group}><legend>${GROUPS[group] ?? group}</legend>
      ${rows?.map((row) => html`<${One} key=${row.name} row=${row} />`)}</fieldset>`,
    )}`;
}

/** A number or nothing, with its bounds. */
export function NumberField({ label, low, high, step = 1, value, placeholder, set, about }) {
  const field = useRef();
  const typing = field.current && field.current === document.activeElement;
  const take = (event) =>
    event.target.reportValidity() && set(event.target.value === "" ? null : event.target.valueAsNumber);
  return html`<label class="field number">${label}
    <input type="number" ref=${field} min=${low} max=${high} step=${step} placeholder=${placeholder}
      value=${typing ? field.current.value : (value ?? "")} title=${about} onChange=${take} /></label>`;
}

/** A field with what it does below it, which a finger cannot hover for. */
export const Explained = ({ about, children }) =>
  html`<div class="row explained">${children}<small>${about}</small></div>`;

/** A field's name for writers, and the server's behind it. */
export const labelOf = ({ title, name }) => (title ? `${title} (${name})` : name);

/** What a field does, in a writer's words if the server has some. */
export const aboutOf = ({ about, meaning }) => about || meaning;

/** A row of the server's table: a switch, or a number with its bounds. null is the default. */
export function RowField({ row, value, put }) {
  const { type, low, high } = row;
  if (type === "bool")
    return html`<label class="check" title=${aboutOf(row)}><input type="checkbox"
      checked=${value ?? row.default}
      onChange=${({ target: { checked } }) => put(checked === row.default ? null : checked)} />
      ${" "}${labelOf(row)}</label>`;
  return html`<${NumberField} label=${labelOf(row)} low=${low} high=${high} step=${type === "int" ? 1 : "any"}
    value=${value} placeholder=${String(row.default)} set=${put} about=${aboutOf(row)} />`;
}

/** The fields without this one, or with another value of it. */
export function without(fields, name, value) {
  const { [name]: _, ...rest } = fields;
  return value === null ? rest : { ...rest, [name]: value };
}

// ---- lists of texts, one a line ----------------------------------------------------------------------

/** The texts of lines, in which \n is a line break and \\ a backslash. */
export const textsOf = (lines) =>
  lines
    .split("\n")
    .filter(Boolean)
    .map((line) => line.replaceAll(/\\([n\\])/g, (_, letter) => (letter === "n" ? "\n" : letter)));

export const linesOf = (texts) =>
  texts.map((text) => text.replaceAll("\\", "\\\\").replaceAll("\n", "\\n")).join("\n");

// ---- grammar and schema ------------------------------------------------------------------------------

export const STRUCTURES = {
  none: "No limit",
  choice: "List",
  regex: "Regular expression",
  json_schema: "JSON schema",
  grammar: "Grammar",
  structural_tag: "Structural tag",
};

/** The field of a request that has this structure; none, if its text is empty. */
export const structureField = ({ kind, text }) =>
  kind === "none" || !text.trim() ? {} : { [kind]: kind === "choice" ? textsOf(text) : text };

/** Shows the server's error below the field, and marks its place in the text. */
export function Structure({ structure, put, error }) {
  const field = useRef();
  useEffect(() => error && field.current && select(field.current, error), [error]);
  return html`<div class="format">
    <${Explained} about="What candidates look like: one of some texts, JSON, or what a grammar allows.">
      <label class="field">Output format <select value=${structure.kind}
      onChange=${(event) => put({ ...structure, kind: event.target.value })}>
      ${Object.entries(STRUCTURES).map(
        ([kind, label]) => html`<option key=${kind} value=${kind}>${label}</option>`,
      )}
    </select></label><//>
    ${
      structure.kind !== "none" &&
      html`<textarea class="code" rows="6" ref=${field} spellcheck=${false}
      placeholder=${structure.kind === "choice" ? "One a line" : ""}
      aria-label=${STRUCTURES[structure.kind]} aria-invalid=${String(!!error)} value=${structure.text}
      onInput=${(event) => put({ ...structure, text: event.target.value })}></textarea>`
    }
    ${error && html`<p class="bad" role="alert">${error}</p>`}</div>`;
}

function select(field, message) {
  const [, line, column] = /line (\d+), column (\d+)/.exec(message) ?? [];
  if (!line) return;
  const before =
    field.value
      .split("\n")
      .slice(0, Number(line) - 1)
      .join("\n").length + (Number(line) > 1 ? 1 : 0);
  const at = before + Number(column) - 1;
  field.focus();
  field.setSelectionRange(at, at + 1);
}
