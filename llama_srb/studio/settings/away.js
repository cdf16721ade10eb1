// What candidates are led away from, and how far: the fields negative_prompt and guidance_scale.

import { session, setting } from "../story/session.js";
import { aboutOf, Explained, labelOf, NumberField, without } from "../ui/fields.js";
import { html } from "../ui/ui.js";

const TEXT = "negative_prompt";
const SCALE = "guidance_scale";
const USUAL = 1.5;

/** The settings with this text: the first one makes the scale the usual one, and without a text it is off. */
export function led(text) {
  const { values, spreads } = session.settings;
  const scale = values[SCALE] ?? (SCALE in spreads ? null : USUAL);
  const texts = without(values, TEXT, text || null);
  return {
    values: without(texts, SCALE, text ? scale : null),
    spreads: text ? spreads : without(spreads, SCALE, null),
  };
}

export function Away() {
  const row = session.fields?.request.find(({ name }) => name === TEXT);
  const scale = session.fields?.samplers.find(({ name }) => name === SCALE);
  const { values, spreads, full } = session.settings;
  if (!row || !scale) return null;
  return html`<${Explained} about="Candidates stay away from how this would go on. It takes longer.">
      <label class="field">${row.title}<textarea rows="2" value=${values[TEXT] ?? ""}
      onInput=${({ target }) => setting(led(target.value))}></textarea></label><//>
    ${
      !full &&
      values[TEXT] &&
      !(SCALE in spreads) &&
      html`<${NumberField} label=${labelOf(scale)} low=${scale.low} high=${scale.high} step="any"
      value=${values[SCALE]} placeholder=${String(scale.default)} about=${aboutOf(scale)}
      set=${(value) => setting({ values: without(session.settings.values, SCALE, value) })} />`
    }`;
}
