// What the model reads besides the text of a story, as data: memory, lore, summary, author's note.
// The server makes the prompt of them; here nothing is put together.

import { newId } from "../story/tree.js";

/** @import { Story } from "../story/tree.js" */

/** What the model reads besides the text; null is the server's default.
    @typedef {object} Parts
    @property {string} memory
    @property {string} summary
    @property {Note} note
    @property {Entry[]} lore
    @property {number | null} budget tokens of all lore
    @property {number | null} search how many characters of the story's end are searched */

/** @typedef {{text: string, depth: number | null}} Note `depth`: tokens of the text behind it */

/** An entry of the lore.
    @typedef {object} Entry
    @property {string} id
    @property {string} name
    @property {string} text
    @property {string} keys one a line
    @property {string} also second keys, one a line
    @property {boolean} always
    @property {number | null} order
    @property {number | null} search characters of the story's end
    @property {number | null} budget tokens
    @property {number | null} meaning how near to the story's end, in hundredths */

/** @type {Parts} */
const NONE = {
  memory: "",
  summary: "",
  note: { text: "", depth: null },
  lore: [],
  budget: null,
  search: null,
};

/** @type {(story: {parts?: Partial<Parts>}) => Parts} */
export const partsOf = ({ parts }) => ({ ...NONE, ...parts });

/** An entry of the lore with these fields.
    @type {(fields?: Partial<Entry>) => Entry} */
export const newEntry = (fields = {}) => ({
  id: newId(),
  name: "",
  text: "",
  keys: "",
  also: "",
  always: false,
  order: null,
  search: null,
  budget: null,
  meaning: null,
  ...fields,
});

/** The entries that are sent, in the order in which the server counts them.
    @type {(story: Story) => Entry[]} */
export const loreOf = (story) => partsOf(story).lore.filter(({ text }) => text.trim());

/** @type {(lines: string) => string[]} */
const keysOf = (lines) => lines.split("\n").flatMap((line) => line.trim() || []);

/** @type {(value: any) => boolean} */
const isGiven = (value) => value !== "" && value !== null && value !== false && value?.length !== 0;

/** @type {(fields: object) => Record<string, any>} */
const given = (fields) => Object.fromEntries(Object.entries(fields).filter(([, value]) => isGiven(value)));

/** The field `story` of a request.
    @type {(story: Story) => Record<string, any>} */
export function storyField(story) {
  const { note, ...fields } = partsOf(story);
  const lore = loreOf(story).map(({ id: _, keys, also, meaning, ...entry }) =>
    given({ ...entry, keys: keysOf(keys), also: keysOf(also), meaning: meaning && meaning / 100 }),
  );
  return given({ ...fields, lore, note: note.text.trim() ? given(note) : null });
}

/** @type {(story: Story) => boolean} */
export const hasParts = (story) => Object.keys(storyField(story)).length > 0;

/** @type {(value: unknown) => boolean} */
const isNumber = (value) => typeof value === "number" && Number.isInteger(value) && value >= 0;

/** The fields of `form` as an object from elsewhere has them: of the same types, else as in the form.
    @type {<T extends object>(form: T, from: unknown) => T} */
function read(form, from) {
  const given = Object(from);
  /** @type {(own: unknown, value: unknown) => boolean} */
  const fits = (own, value) =>
    own === null ? isNumber(value) : typeof value === typeof own && typeof value !== "object";
  const fields = Object.entries(form).filter(([name, own]) => fits(own, given[name]));
  return { ...form, ...Object.fromEntries(fields.map(([name]) => [name, given[name]])) };
}

/** The parts of an imported story; a file cannot be trusted.
    @type {(from: any) => Parts} */
export function readParts(from) {
  /** @type {unknown[]} */
  const entries = Array.isArray(from.lore) ? from.lore : [];
  const lore = entries.map((entry) => read(newEntry(), entry));
  return { ...read(NONE, from), note: read(NONE.note, from.note), lore };
}
