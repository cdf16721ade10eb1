// How long a candidate is: so many tokens, or to the end of a sentence or paragraph, which the server finds.

import { DEFAULTS, session, setting } from "../story/session.js";
import { Explained, NumberField } from "../ui/fields.js";
import { html } from "../ui/ui.js";

export const KINDS = { tokens: "tokens", sentences: "sentences", paragraphs: "paragraphs" };

const LENGTHS = {
  "tokens 0": "As many tokens as below",
  "sentences 1": "To the end of a sentence",
  "sentences 2": "Two sentences",
  "sentences 3": "Three sentences",
  "paragraphs 1": "To the end of a paragraph",
};
const TOKENS = { sentences: 100, paragraphs: 500 }; // at most, of each

/** The fields of a request that say where a text ends; `least`: tokens that it may have in any case. */
export const endOf = ({ kind, count }, least) =>
  kind === KINDS.tokens
    ? { max_tokens: least }
    : { max_tokens: Math.max(least, TOKENS[kind] * count), end: { [kind]: count } };

/** The same, as the settings say it. */
export function lengthFields() {
  const { length, max_tokens } = session.settings;
  return endOf(length, length.kind === KINDS.tokens ? max_tokens : 0);
}

export function Length() {
  const { length, max_tokens } = session.settings;
  const choose = ({ target }) => {
    const [kind, count] = target.value.split(" ");
    setting({ length: { kind, count: Number(count) } });
  };
  return html`<label class="field">Length
      <select value=${`${length.kind} ${length.count}`} onChange=${choose}>
        ${Object.entries(LENGTHS).map(
          ([key, label]) => html`<option key=${key} value=${key}>${label}</option>`,
        )}
      </select></label>
    ${
      length.kind === KINDS.tokens &&
      html`<${Explained} about="A token is a short word or a part of a long one.">
        <${NumberField} label="Tokens each" low=${1} value=${max_tokens}
        set=${(n) => setting({ max_tokens: n ?? DEFAULTS.max_tokens })} /><//>`
    }`;
}
