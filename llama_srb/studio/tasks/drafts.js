// A task as a draft, which is what its form has: made from an entry of /v1/tasks, written as the TOML of a
// table. Fields that the form has no place for stand in `other`, as TOML. Pure.

import { linesOf, STRUCTURES, structureField, textsOf } from "../ui/fields.js";

const NUMBERS = ["n", "max_tokens"]; // beside the samplers
const TEXTS = ["about", "model", "prelude", "prefix", "postfix"];
const LISTS = ["stop", "locked", "private_tokens"];
const KINDS = Object.keys(STRUCTURES).filter((kind) => kind !== "none");
const NO_RECALL = {
  memory: "",
  retrieve: null,
  retrieve_prompts: null,
  store_prompts: false,
  position: "turn",
  search: null,
  headings: false,
  around: 0,
  per_document: null,
  diversity: 0,
};

/** The draft of a configured task. samplers: the names of fields that the form has, beside NUMBERS. */
export function draftOf(entry, samplers) {
  const fields = { ...entry.fields };
  const take = (name) => {
    const value = fields[name];
    delete fields[name];
    return value;
  };
  const numbers = [...NUMBERS, ...samplers].filter((name) =>
    ["number", "boolean"].includes(typeof fields[name]),
  );
  const values = Object.fromEntries(numbers.map((name) => [name, take(name)]));
  const stop = isLines(fields.stop) ? listOf(take("stop")) : [];
  const second = isBias(fields) ? take("then") : null;
  const kind = kindIn(second ?? fields) ?? "none";
  const structure = { kind, text: second ? textOf(kind, second[kind]) : textOf(kind, take(kind)) };
  const { pre_filter, post_filter, ...recall } = { ...NO_RECALL, ...entry.recall };
  return {
    name: entry.id,
    ...Object.fromEntries(TEXTS.map((name) => [name, entry[name]])),
    model: entry.named_model ?? "",
    values,
    stop: linesOf(stop),
    locked: linesOf(entry.locked),
    private_tokens: linesOf(entry.private_tokens),
    bias_prompt: second?.text ?? "",
    structure,
    recall: { ...recall, pre_filter: filterOf(pre_filter), post_filter: filterOf(post_filter) },
    other: pairsOf(fields).join("\n"),
  };
}

const listOf = (texts) => [texts ?? []].flat();

/** Whether a list can be written one a line. */
const isLines = (texts) => listOf(texts).every((text) => text && !text.includes("\r"));

const kindIn = (fields) =>
  KINDS.find((kind) => fields[kind] !== undefined && (kind !== "choice" || isLines(fields.choice)));

/** Whether `then` is what bias_prompt makes of a task's structure. */
function isBias({ then, ...fields }) {
  const { text, ...structure } = Object(then);
  return !!text && !!kindIn(structure) && Object.keys(structure).length === 1 && !kindIn(fields);
}

function textOf(kind, value = "") {
  if (kind === "choice") return linesOf(listOf(value));
  return typeof value === "string" ? value : JSON.stringify(value, null, 2);
}

const filterOf = (filter) => (Object.keys(filter ?? {}).length ? JSON.stringify(filter) : "");

/** The filters of a draft, as a search takes them; those that are no JSON are left out. */
export const filtersOf = ({ pre_filter, post_filter }) => ({
  filter: parsed(pre_filter),
  post_filter: parsed(post_filter),
});

function parsed(text) {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

// ---- TOML --------------------------------------------------------------------------------------------

/** The table of a draft. */
export function tomlOf(draft) {
  const lists = LISTS.map((name) => [name, textsOf(draft[name])]);
  const fields = {
    ...Object.fromEntries(TEXTS.map((name) => [name, draft[name]])),
    ...Object.fromEntries(NUMBERS.map((name) => [name, draft.values[name]])),
    ...draft.values,
    ...Object.fromEntries(lists),
    bias_prompt: draft.bias_prompt,
    ...structureField(draft.structure),
  };
  const given = Object.fromEntries(Object.entries(fields).filter(([, value]) => isGiven(value)));
  const head = `[tasks.${keyOf(draft.name)}]`;
  const parts = [head, ...pairsOf(given), recallOf(draft.recall), draft.other.trim()];
  return `${parts.filter(Boolean).join("\n")}\n`;
}

const isGiven = (value) => !["", null, undefined].includes(value) && value.length !== 0;

function recallOf(recall) {
  const { memory, retrieve, retrieve_prompts, store_prompts, position, search, headings } = recall;
  const { around, per_document, diversity } = recall;
  if (!memory) return "";
  const numbers = Object.entries({ retrieve, retrieve_prompts }).filter(([, value]) => value !== null);
  const pairs = [
    ...pairsOf({ memory, ...Object.fromEntries(numbers), ...(store_prompts && { store_prompts }) }),
    ...(position === NO_RECALL.position ? [] : pairsOf({ position })),
    ...pairsOf({ ...(search && { search }), ...(headings && { headings }), ...(around && { around }) }),
    ...pairsOf({ ...(per_document && { per_document }), ...(diversity && { diversity }) }),
    ...filterPair("pre_filter", recall.pre_filter),
    ...filterPair("post_filter", recall.post_filter),
  ];
  return `recall = { ${pairs.join(", ")} }`;
}

/** A filter that is no JSON stays as it is, so that the server says what is wrong. */
function filterPair(name, text) {
  if (!text.trim()) return [];
  const filter = parsed(text);
  return [`${name} = ${filter === undefined ? text.trim() : tomlValue(filter)}`];
}

const pairsOf = (table) => Object.entries(table).map(([key, value]) => `${keyOf(key)} = ${tomlValue(value)}`);

const keyOf = (key) => (/^[\w-]+$/.test(key) ? key : quoted(key.toWellFormed()));

function tomlValue(value) {
  if (typeof value === "string") return textValue(value.toWellFormed());
  if (Array.isArray(value)) return `[${value.map(tomlValue).join(", ")}]`;
  if (Object(value) === value) return `{ ${pairsOf(value).join(", ")} }`;
  return String(value);
}

/** A string of TOML: on several lines if the text has some; as it is if quotation marks would be escaped. */
function textValue(text) {
  if (!text.trim().includes("\n")) return quoted(text);
  if (/["\\]/.test(text) && !NOT_LITERAL.test(text)) return `'''\n${text}'''`;
  const lines = text.split("\n").map((line) => quoted(line).slice(1, -1));
  return `"""\n${lines.join("\n")}"""`;
}

// biome-ignore lint/suspicious/noControlCharactersInRegex: TOML allows none of them in a literal string
const NOT_LITERAL = /'''|'$|[\0-\x08\x0b-\x1f\x7f]/;

/** A basic string of TOML, whose escapes are those of JSON, and DEL. */
const quoted = (text) => JSON.stringify(text).replaceAll("\x7f", "\\u007f");
