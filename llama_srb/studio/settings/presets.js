// Presets: the server's (/v1/presets), and beside them the writer's own. The active one has the same settings
// as the page.

import { call } from "../server/api.js";
import { session, setting } from "../story/session.js";
import { read, save } from "../story/store.js";
import { linesOf, without } from "../ui/fields.js";
import { Button, changed, html, useChanges } from "../ui/ui.js";

const OWN = "studio.presets"; // by name: {values, spreads}
const SERVERS = "server:"; // before a preset's name; it keeps those of the server apart from the writer's
const WRITERS = "own:";
const NOTHING = "";

/** Reads the server's presets. */
export async function learnPresets() {
  session.presets = (await call("GET", "v1/presets")).data;
  changed("settings");
}

const own = () => read(OWN, {});

function keepOwn(presets) {
  save(OWN, presets);
  changed("settings");
}

const isSpread = (value) => Object(value) === value && "from" in value;

/** @import { Settings } from "../story/session.js" */

/** A preset's fields as settings of the page.
    @type {(fields: Record<string, any>) => Partial<Settings>} */
function settingsOf({ n, max_tokens, stop, ...fields }) {
  const entries = Object.entries(fields);
  const spreads = entries.filter(([, value]) => isSpread(value));
  return {
    values: Object.fromEntries(entries.filter(([, value]) => !isSpread(value))),
    spreads: Object.fromEntries(spreads.map(([name, { from, to }]) => [name, [from, to]])),
    ...(n && { n }),
    ...(max_tokens && { max_tokens }),
    ...(stop && { stop: linesOf([stop].flat()) }),
  };
}

/** All presets by their keys, as {title, about, settings}. */
function presets() {
  /** @type {[string, any][]} */
  const servers = session.presets.map(({ name, title, about, fields }) => [
    SERVERS + name,
    { title, about, settings: settingsOf(fields) },
  ]);
  /** @type {[string, any][]} */
  const writers = Object.entries(own()).map(([name, settings]) => [
    WRITERS + name,
    { title: name, about: "", settings },
  ]);
  const nothing = { title: "Server's defaults", about: "", settings: { values: {}, spreads: {} } };
  return new Map([[NOTHING, nothing], ...servers, ...writers]);
}

const sorted = (table) => JSON.stringify(Object.entries(table).sort());

/** Whether the page's settings are those of a preset. */
const isActive = ({ settings: { values, spreads, ...others } }) =>
  sorted(values) === sorted(session.settings.values) &&
  sorted(spreads) === sorted(session.settings.spreads) &&
  Object.entries(others).every(([name, value]) => session.settings[name] === value);

/** The key of the preset that was chosen last, if it is still active, else of one that is; null: of none. */
function activeOf(all) {
  const chosen = session.settings.preset;
  if (all.has(chosen) && isActive(all.get(chosen))) return chosen;
  return [...all.keys()].find((key) => isActive(all.get(key))) ?? null;
}

// ---- the writer's own --------------------------------------------------------------------------------

function saveAs(suggestion) {
  const name = prompt("A name for these settings", suggestion)?.trim();
  if (!name) return;
  const { values, spreads } = session.settings;
  keepOwn({ ...own(), [name]: { values, spreads } });
  setting({ preset: WRITERS + name });
}

function rename(name) {
  const other = prompt("Another name", name)?.trim();
  if (!other || other === name) return;
  keepOwn({ ...without(own(), name, null), [other]: own()[name] });
  setting({ preset: WRITERS + other });
}

function remove(name) {
  if (!confirm(`Delete the preset “${name}”? The settings stay as they are.`)) return;
  keepOwn(without(own(), name, null));
}

// ---- the view ----------------------------------------------------------------------------------------

export function Presets() {
  useChanges("settings");
  const all = presets();
  const active = activeOf(all);
  const chosen = all.get(session.settings.preset);
  const mine = active?.startsWith(WRITERS) ? active.slice(WRITERS.length) : null;
  const choose = ({ target: { value: key } }) =>
    setting({ ...structuredClone(all.get(key).settings), preset: key });
  const options = (prefix) =>
    [...all]
      .filter(([key]) => key.startsWith(prefix) && key !== NOTHING)
      .map(
        ([key, { title, about }]) => html`<option key=${key} value=${key} title=${about}>${title}</option>`,
      );
  return html`<label class="field">Preset
      <select value=${active ?? "changed"} onChange=${choose}>
        ${active === null && html`<option value="changed" disabled>${told(chosen)}</option>`}
        <option value=${NOTHING}>${all.get(NOTHING).title}</option>
        <optgroup label="The server's">${options(SERVERS)}</optgroup>
        <optgroup label="Yours">${options(WRITERS)}</optgroup>
      </select></label>
    ${active && html`<p class="hint">${all.get(active).about}</p>`}
    <div class="tools"><${Button} label="Save as preset" onClick=${() => saveAs(mine ?? "")} />
      ${
        mine !== null &&
        html`<${Button} label="Rename" about="Renames this preset" onClick=${() => rename(mine)} />
        <${Button} label="Delete" about="Deletes this preset" kind="danger" onClick=${() => remove(mine)} />`
      }</div>`;
}

/** What is shown when no preset is active. */
const told = (chosen) => (session.settings.preset && chosen ? `${chosen.title}, changed` : "Your settings");
