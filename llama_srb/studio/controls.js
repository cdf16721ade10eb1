// Settings, built from the server's own table of fields.

import { ModelChoice } from "./models.js";
import { DEFAULTS, session, setting } from "./session.js";
import { read, save } from "./store.js";
import { Button, html, useChanges, useEffect, useRef, useState } from "./ui.js";

const SIMPLE = ["temperature", "min_p", "top_p", "repeat_penalty", "seed"];
const NUMBERS = new Set(["int", "float"]);
const PRESETS = {
  "Server's defaults": { values: {}, spreads: {} },
  "Sober to wild": { values: {}, spreads: { temperature: [0.6, 1.2] } },
  "Against the obvious": { values: { xtc_probability: 0.5, min_p: 0.02 }, spreads: {} },
  "No repetition": { values: { dry_multiplier: 0.8, temperature: 0.9 }, spreads: {} },
};

export function Controls() {
  useChanges("settings", "fields");
  const { settings, fields } = session;
  const rows = (fields?.samplers ?? []).filter(({ type, name }) => usable(type, name));
  const shown = settings.full
    ? rows
    : SIMPLE.map((name) => rows.find((row) => row.name === name)).filter(Boolean);
  const groups = Object.entries(Object.groupBy?.(shown, (row) => row.group) ?? { "": shown });
  return html`
    <${ModelChoice} />
    <${Presets} />
    <fieldset><legend>How much</legend>
      <${Number_} label="Candidates" low=${1} high=${64} value=${settings.n}
        set=${(n) => setting({ n: n ?? DEFAULTS.n })} />
      <${Number_} label="Beside the branches" low=${1} high=${64} value=${settings.n_branches}
        set=${(n) => setting({ n_branches: n ?? DEFAULTS.n_branches })} />
      <${Number_} label="Tokens each" low=${1} value=${settings.max_tokens}
        set=${(n) => setting({ max_tokens: n ?? DEFAULTS.max_tokens })} />
      <${Number_} label="Alternatives per token" low=${0} high=${20} value=${settings.alternatives}
        set=${(n) => setting({ alternatives: n ?? DEFAULTS.alternatives })} />
    </fieldset>
    <label class="field">Stop strings, one a line
      <textarea rows="2" value=${settings.stop}
        onInput=${(event) => setting({ stop: event.target.value })}></textarea></label>
    <label class="check"><input type="checkbox" checked=${settings.full}
      onChange=${(event) => setting({ full: event.target.checked })} /> show every setting</label>
    ${groups.map(
      ([group, rows]) => html`<fieldset key=${group}><legend>${group || "Sampling"}</legend>
      ${rows.map((row) => html`<${Field} key=${row.name} row=${row} />`)}</fieldset>`,
    )}
    <${Structure} />`;
}

const usable = (type, name) => NUMBERS.has(type) || type === "bool" || name === "diversity";

function Presets() {
  const [own, setOwn] = useState(read("studio.presets", {}));
  const all = { ...PRESETS, ...own };
  const keep = () => {
    const name = prompt("A name for these settings");
    if (!name) return;
    const { values, spreads } = session.settings;
    const presets = { ...own, [name]: { values, spreads } };
    save("studio.presets", presets);
    setOwn(presets);
  };
  return html`<div class="tools"><label class="field">Preset
    <select onChange=${(event) => setting(structuredClone(all[event.target.value] ?? {}))}>
      <option value="">choose…</option>
      ${Object.keys(all).map((name) => html`<option key=${name}>${name}</option>`)}</select></label>
    <${Button} label="Save as preset" onClick=${keep} /></div>`;
}

/** A number or nothing, with its bounds. */
function Number_({ label, low, high, step = 1, value, placeholder, set, about }) {
  const field = useRef();
  const typing = field.current && field.current === document.activeElement;
  const take = (event) =>
    event.target.reportValidity() && set(event.target.value === "" ? null : event.target.valueAsNumber);
  return html`<label class="field number">${label}
    <input type="number" ref=${field} min=${low} max=${high} step=${step} placeholder=${placeholder}
      value=${typing ? field.current.value : (value ?? "")} title=${about} onChange=${take} /></label>`;
}

function Field({ row }) {
  const { name, type, low, high, meaning, per_choice } = row;
  const { values, spreads } = session.settings;
  const spread = spreads[name];
  const step = type === "int" ? 1 : "any";
  const put = (value) => setting({ values: without(session.settings.values, name, value) });
  const wrong = session.error?.param === name;
  if (type === "bool")
    return html`<label class="check" title=${meaning}><input type="checkbox"
      checked=${values[name] ?? row.default}
      onChange=${({ target: { checked } }) => put(checked === row.default ? null : checked)} />
      ${" "}${name}</label>`;
  const give = (place, value) => {
    const { spreads } = session.settings; // as they are now, which may not be drawn yet
    setting({ spreads: { ...spreads, [name]: spreads[name].with(place, value ?? spreads[name][place]) } });
  };
  const toggle = () => {
    const start = values[name] ?? row.default;
    setting({
      spreads: without(spreads, name, spread ? null : [start, start]),
      values: without(values, name, null),
    });
  };
  return html`<div class=${wrong ? "row bad" : "row"}>
    ${
      spread
        ? html`<${Number_} label=${name} low=${low} high=${high} step=${step} value=${spread[0]}
        set=${(value) => give(0, value)} about=${meaning} />
      <${Number_} label="to" low=${low} high=${high} step=${step} value=${spread[1]}
        set=${(value) => give(1, value)} />`
        : html`<${Number_} label=${name} low=${low} high=${high} step=${step} value=${values[name]}
        placeholder=${String(row.default)} set=${put} about=${meaning} />`
    }
    ${
      per_choice &&
      name !== "seed" &&
      html`<button type="button" class="act" aria-pressed=${String(!!spread)}
      title=${`Another value of ${name} for each candidate`} onClick=${toggle}>spread</button>`
    }
    <small>${meaning}</small></div>`;
}

function without(fields, name, value) {
  const { [name]: _, ...rest } = fields;
  return value === null ? rest : { ...rest, [name]: value };
}

// ---- grammar and schema ------------------------------------------------------------------------------

const STRUCTURES = {
  none: "Anything",
  grammar: "Grammar (GBNF)",
  json_schema: "JSON schema",
  regex: "Expression",
};

/** Shows the server's error below the field, and marks its place in the text. */
function Structure() {
  useChanges("error");
  const { structure } = session.settings;
  const field = useRef();
  const error = session.error?.param === structure.kind ? session.error.message : null;
  useEffect(() => error && field.current && select(field.current, error), [error]);
  const put = (fields) => setting({ structure: { ...structure, ...fields } });
  return html`<fieldset><legend>What each text must be</legend>
    <label class="field">Kind <select value=${structure.kind}
      onChange=${(event) => put({ kind: event.target.value })}>
      ${Object.entries(STRUCTURES).map(
        ([kind, label]) => html`<option key=${kind} value=${kind}>${label}</option>`,
      )}
    </select></label>
    ${
      structure.kind !== "none" &&
      html`<textarea class="code" rows="6" ref=${field} spellcheck="false"
      aria-label=${STRUCTURES[structure.kind]} aria-invalid=${String(!!error)} value=${structure.text}
      onInput=${(event) => put({ text: event.target.value })}></textarea>`
    }
    ${error && html`<p class="bad" role="alert">${error}</p>`}</fieldset>`;
}

function select(field, message) {
  const [, line, column] = /line (\d+), column (\d+)/.exec(message) ?? [];
  if (!line) return;
  const before =
    field.value
      .split("\n")
      .slice(0, line - 1)
      .join("\n").length + (line > 1 ? 1 : 0);
  const at = before + Number(column) - 1;
  field.focus();
  field.setSelectionRange(at, at + 1);
}
