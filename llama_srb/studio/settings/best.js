// Fields about several candidates together: their order, and which of them are written to their end. They are
// among the writer's values, but no candidate has one of its own. It does not know how texts are compared.

import { session, setting } from "../story/session.js";
import { labelOf, NumberField, without } from "../ui/fields.js";
import { html } from "../ui/ui.js";

const MOST = 64; // candidates
const MARK = 16; // tokens, until the writer says when candidates are compared

/** The fields, each with whether n candidates are enough for its value. */
const TOGETHER = {
  rank_by: (_, n) => n > 1,
  prune: ({ keep }, n) => keep < n,
  finish: ({ first = 1 }, n) => first < n,
};

/** The values without those about several candidates. */
export const apart = (values) =>
  Object.fromEntries(Object.entries(values).filter(([name]) => !(name in TOGETHER)));

/** The values about several candidates that a request for n of them has. */
export const together = (values, n) =>
  Object.fromEntries(
    Object.entries(values).filter(([name, value]) => name in TOGETHER && TOGETHER[name](value, n)),
  );

const put = (name, value) => setting({ values: without(session.settings.values, name, value) });

const ABOUT = {
  rank_by: "The cards take this order when all have ended.",
  prune: "Of all that are begun only the best go on. Longer writes on any of the others.",
  finish: "When so many have ended, the others stop.",
};

/** One of them as the writer sets it. */
const Part = ({ row: { name }, children }) => {
  const wrong = session.error?.param?.split(".")[0] === name;
  return html`<div class=${wrong ? "row bad" : "row"}>${children}
    <small>${ABOUT[name]}</small></div>`;
};

export function Best() {
  const rows = new Map(session.fields?.request.map((row) => [row.name, row]));
  if (!rows.size) return null;
  const [rankBy, prune, finish] = Object.keys(TOGETHER).map((name) => rows.get(name));
  return html`<fieldset><legend>Which ones</legend>
    <${Part} row=${rankBy}><${Order} row=${rankBy} /><//>
    <${Part} row=${prune}><${Marks} row=${prune} /><//>
    <${Part} row=${finish}><${First} row=${finish} /><//>
  </fieldset>`;
}

/** A list of the server's orders; one that it has no name for, as that of a preset, is shown as it is. */
function Order({ row }) {
  const value = session.settings.values.rank_by ?? "";
  const other = value !== "" && !(value in row.values);
  const choose = ({ target }) => put("rank_by", target.value || null);
  return html`<label class="field">${labelOf(row)} <select value=${other ? "other" : value}
    onChange=${choose}>
    <option value="">as they come</option>
    ${Object.entries(row.values).map(([one, name]) => html`<option key=${one} value=${one}>${name}</option>`)}
    ${other && html`<option value="other" disabled>${JSON.stringify(value)}</option>`}
  </select></label>`;
}

function Marks({ row }) {
  const { prune } = session.settings.values;
  const keep = (count) => put("prune", count && { at: [MARK], ...prune, keep: count });
  const at = (mark) => put("prune", { ...prune, at: [mark ?? MARK] });
  return html`<${NumberField} label=${labelOf(row)} low=${1} high=${MOST} value=${prune?.keep}
      placeholder="all" set=${keep} />
    ${
      prune &&
      html`<${NumberField} label="compared after so many tokens" low=${1} value=${prune.at[0]} set=${at} />`
    }`;
}

function First({ row }) {
  const { finish } = session.settings.values;
  const first = (count) => put("finish", count && { ...finish, first: count });
  return html`<${NumberField} label=${labelOf(row)} low=${1} high=${MOST} value=${finish?.first}
    placeholder="all" set=${first} />`;
}
