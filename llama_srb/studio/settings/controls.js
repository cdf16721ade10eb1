// Settings, built from the server's own table of fields.

import { Banned } from "../candidates/banning.js";
import { ModelChoice } from "../server/models.js";
import { DEFAULTS, session, setting } from "../story/session.js";
import {
  aboutOf,
  Explained,
  labelOf,
  NumberField,
  RowField,
  Samplers,
  Structure,
  without,
} from "../ui/fields.js";
import { html, useChanges } from "../ui/ui.js";
import { Away } from "./away.js";
import { Best } from "./best.js";
import { Length } from "./lengths.js";
import { Presets } from "./presets.js";

export function Controls() {
  useChanges("settings", "fields", "error");
  const { settings, fields, error } = session;
  return html`
    <${ModelChoice} />
    <${Presets} />
    <fieldset><legend>How much</legend>
      <${NumberField} label="Candidates" low=${1} high=${64} value=${settings.n}
        set=${(n) => setting({ n: n ?? DEFAULTS.n })} />
      <${Length} />
      <${Explained} about="Other words that could stand in the place of each, to look at and to choose.">
        <${NumberField} label="Alternatives per token" low=${0} high=${20} value=${settings.alternatives}
        set=${(n) => setting({ alternatives: n ?? DEFAULTS.alternatives })} /><//>
    </fieldset>
    <${Best} />
    <${Banned} />
    <${Away} />
    <${Explained} about="A candidate ends before the first of them.">
      <label class="field">Stop strings, one a line
      <textarea rows="2" value=${settings.stop}
        onInput=${(event) => setting({ stop: event.target.value })}></textarea></label><//>
    <${Samplers} rows=${fields?.samplers} full=${settings.full} setFull=${(full) => setting({ full })}
      One=${Field} />
    <${Structure} structure=${settings.structure} put=${(structure) => setting({ structure })}
      error=${error?.param === settings.structure.kind ? error.message : null} />`;
}

function Field({ row }) {
  const { name, type, low, high, per_choice } = row;
  const { values, spreads } = session.settings;
  const spread = spreads[name];
  const step = type === "int" ? 1 : "any";
  const put = (value) => setting({ values: without(session.settings.values, name, value) });
  const wrong = session.error?.param === name;
  const one = html`<${RowField} row=${row} value=${values[name]} put=${put} />`;
  if (type === "bool") return one;
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
        ? html`<${NumberField} label=${labelOf(row)} low=${low} high=${high} step=${step} value=${spread[0]}
        set=${(value) => give(0, value)} about=${aboutOf(row)} />
      <${NumberField} label="to" low=${low} high=${high} step=${step} value=${spread[1]}
        set=${(value) => give(1, value)} />`
        : one
    }
    ${
      per_choice &&
      name !== "seed" &&
      html`<button type="button" class="act" aria-pressed=${String(!!spread)}
      title=${`Another value of ${name} for each candidate`} onClick=${toggle}>vary</button>`
    }
    <small>${aboutOf(row)}</small></div>`;
}
