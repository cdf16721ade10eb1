// What the model reads besides the text of a story, as data: memory, lore, summary, author's note.
// The server makes the prompt of them; here nothing is put together.

import { newId } from "../story/tree.js";

const NONE = {
  memory: "",
  summary: "",
  note: { text: "", depth: null }, // tokens of the text behind it
  lore: [],
  budget: null, // tokens of all lore
  search: null, // how many characters of the story's end are searched
};

export const partsOf = ({ parts }) => ({ ...NONE, ...parts });

/** An entry of the lore; `keys` and `also` have a key a line. null is the server's default. */
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
  meaning: null, // how near to the story's end, in hundredths
  ...fields,
});

/** The entries that are sent, in the order in which the server counts them. */
export const loreOf = (story) => partsOf(story).lore.filter(({ text }) => text.trim());

const keysOf = (lines) => lines.split("\n").flatMap((line) => line.trim() || []);

const isGiven = (value) => value !== "" && value !== null && value !== false && value?.length !== 0;

const given = (fields) => Object.fromEntries(Object.entries(fields).filter(([, value]) => isGiven(value)));

/** The field `story` of a request. */
export function storyField(story) {
  const { note, ...fields } = partsOf(story);
  const lore = loreOf(story).map(({ id: _, keys, also, meaning, ...entry }) =>
    given({ ...entry, keys: keysOf(keys), also: keysOf(also), meaning: meaning && meaning / 100 }),
  );
  return given({ ...fields, lore, note: note.text.trim() ? given(note) : null });
}

export const hasParts = (story) => Object.keys(storyField(story)).length > 0;

const isNumber = (value) => Number.isInteger(value) && value >= 0;

/** The fields of `form` as an object from elsewhere has them: of the same types, else as in the form. */
function read(form, from) {
  const fits = (name, value) =>
    form[name] === null ? isNumber(value) : typeof value === typeof form[name] && typeof value !== "object";
  const fields = Object.keys(form).filter((name) => fits(name, Object(from)[name]));
  return { ...form, ...Object.fromEntries(fields.map((name) => [name, from[name]])) };
}

/** The parts of an imported story; a file cannot be trusted. */
export function readParts(from) {
  const entries = Array.isArray(from.lore) ? from.lore : [];
  const lore = entries.map((entry) => read(newEntry(), entry));
  return { ...read(NONE, from), note: read(NONE.note, from.note), lore };
}
