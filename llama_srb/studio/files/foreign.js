// Lore and stories of other tools: NovelAI's lorebooks, SillyTavern's world info and characters, Agnai's
// memory books, KoboldAI Lite's saves. What has no place here is left out: conditions that forbid a key,
// chances, positions in the prompt.

import { newEntry } from "../background/parts.js";
import { addNode, newStory } from "../story/tree.js";
import { keysOf } from "./lorekeys.js";

/** @import { Entry } from "../background/parts.js" */
/** @import { Story } from "../story/tree.js" */
/** @import { Lore } from "./exchange.js" */

const ORDER = 100; // as in docs/stories.md
const AND_ANY = 0; // SillyTavern's logic of second keys that is also ours

/** @type {(value: any, least?: number) => number | null} */
const count = (value, least = 0) => (Number.isInteger(value) && value >= least ? value : null);

/** An entry of our lore; keys that are left out are warnings that name it.
    @type {(fields: any, warnings: string[]) => Entry} */
function entry({ name, text, keys, also, ...fields }, warnings) {
  const own = String(name ?? "");
  const words = String(text ?? "").replace(DECORATORS, "");
  const warn = (/** @type {string} */ about) =>
    void warnings.push(`“${own || words.trim().slice(0, 30)}”: ${about}`);
  const lines = { keys: keysOf(keys, warn), also: keysOf(also, warn) };
  return newEntry({ ...fields, ...lines, name: own, text: words });
}

const DECORATORS = /^(?:@@.*\n?)+/; // of cards of version 3: lines that say where an entry stands

/** @type {(one: any) => object} */
const ofNovelAi = ({ displayName, text, keys, forceActivation, searchRange, contextConfig }) => ({
  name: displayName,
  text,
  keys,
  always: forceActivation === true,
  order: Math.max(0, count(contextConfig?.budgetPriority) ?? ORDER),
  search: count(searchRange, 1),
  budget: count(contextConfig?.tokenBudget, 2), // 1 means all of the context
});

/** @type {(one: any) => object} */
const ofAgnai = ({ name, entry, keywords, priority }) => ({
  name,
  text: entry,
  keys: keywords,
  order: Math.max(0, count(priority) ?? ORDER),
});

/** @type {(one: any) => object} */
const ofTavern = ({ comment, name, content, key, keys, constant, order, insertion_order, ...others }) => ({
  name: comment || name,
  text: content,
  keys: key ?? keys,
  also: secondKeys(others),
  always: constant === true,
  order: count(order ?? insertion_order) ?? ORDER,
});

/** The book in a character's JSON has the logic among its extensions.
    @type {(one: any) => unknown} */
function secondKeys({ selective, selectiveLogic, extensions, keysecondary, secondary_keys }) {
  const logic = selectiveLogic ?? extensions?.selectiveLogic ?? AND_ANY;
  return selective && logic === AND_ANY ? (keysecondary ?? secondary_keys) : "";
}

/** @type {(one: any) => boolean} */
const isOff = ({ enabled, disable }) => enabled === false || disable === true;

/** @type {(data: any) => any} */
const bookOf = (data) =>
  data.data?.character_book ??
  data.character_book ??
  (data.spec === "lorebook_v3" && data.data ? data.data : data);

/** @type {[(data: any) => boolean, (one: any) => object][]} */
const FORMS = [
  [(data) => data.kind === "memory" && typeof data.entries === "object", ofAgnai],
  [(data) => data.lorebookVersion !== undefined, ofNovelAi],
  [(data) => typeof bookOf(data).entries === "object", ofTavern],
];

/** @type {(data: any) => boolean} */
export const isLore = (data) => FORMS.some(([knows]) => knows(data));

/** The entries of a lorebook or of world info.
    @type {(data: any, warnings?: string[]) => Lore} */
export function loreFrom(data, warnings = []) {
  const read = /** @type {(one: any) => object} */ (FORMS.find(([knows]) => knows(data))?.[1]);
  const all = /** @type {any[]} */ (Object.values(bookOf(data).entries ?? {})).filter(
    (one) => one && typeof one === "object",
  );
  const on = all.filter((one) => !isOff(one));
  const lore = on.map((one) => entry(read(one), warnings)).filter(({ text }) => text.trim());
  if (lore.length > MOST) warnings.push(`it has ${lore.length} entries; the first ${MOST} are used`);
  return { lore: withFewExpressions(lore.slice(0, MOST), warnings), off: all.length - on.length };
}

const MOST = 1000; // entries, as the server bounds them
const EXPRESSIONS = 500; // of all of them

/** @type {(lore: Entry[], warnings: string[]) => Entry[]} */
function withFewExpressions(lore, warnings) {
  let left = EXPRESSIONS;
  const kept = (/** @type {string} */ keys) =>
    keys
      .split("\n")
      .filter((key) => !/^\/.+\/[ims]*$/s.test(key) || left-- > 0)
      .join("\n");
  const all = lore.map((one) => ({ ...one, keys: kept(one.keys), also: kept(one.also) }));
  if (left < 0)
    warnings.push(`it has ${EXPRESSIONS - left} expressions as keys; the first ${EXPRESSIONS} are used`);
  return all;
}

// ---- characters --------------------------------------------------------------------------------------

const TEXTS = ["description", "personality", "scenario", "first_mes"];

/** Whether this is a character with more than a book.
    @type {(data: any) => boolean} */
export function isCharacter(data) {
  const card = data.spec && data.data ? data.data : data;
  const isCard = typeof card.name === "string" && typeof card.first_mes === "string";
  return isCard && TEXTS.some((name) => String(card[name] ?? "").trim());
}

/** What of a character has no place in a story.
    @type {Record<string, string>} */
const UNUSED = {
  mes_example: "examples of messages are",
  system_prompt: "system prompt is",
  post_history_instructions: "instructions behind the messages are",
  note: "note at a depth is",
  creator_notes: "author's notes are",
  group_only_greetings: "greetings for groups are",
};

/** A character becomes a story that begins with its first message; others of them are branches.
    @type {(data: any, name: string, warnings: string[]) => Story} */
export function character(data, name, warnings) {
  const card = data.spec && data.data ? data.data : data;
  const own = String(card.nickname || card.name || name);
  const read = (/** @type {unknown} */ text) =>
    withNames(String(text ?? "").replaceAll("\r", ""), own).trim();
  const story = newStory(String(card.name || name));
  const others = Array.isArray(card.alternate_greetings) ? card.alternate_greetings : [];
  for (const text of [card.first_mes, ...others].map(read).filter(Boolean)) {
    const node = addNode(story, story.root, { text, source: "user", seen: true });
    if (story.current === story.root) story.current = node.id;
  }
  const about = [
    read(card.description),
    read(card.personality) && `Personality: ${read(card.personality)}`,
    read(card.scenario) && `Scenario: ${read(card.scenario)}`,
  ];
  const book = typeof bookOf(data).entries === "object";
  const { lore, off } = book ? loreFrom(data, warnings) : { lore: [], off: 0 };
  if (!book) warnings.push("the character has no lorebook");
  if (off)
    warnings.push(`${off} ${off === 1 ? "entry of its lorebook is" : "entries of its lorebook are"} ${OFF}`);
  const note = card.extensions?.depth_prompt?.prompt;
  for (const [field, what] of Object.entries(UNUSED))
    if (read({ ...card, note }[field])) warnings.push(`its ${what} left out`);
  const named = (/** @type {Entry} */ one) => ({ ...one, text: withNames(one.text, own) });
  story.parts = { memory: about.filter(Boolean).join("\n"), lore: lore.map(named) };
  return story;
}

const OFF = "off and left out";

/** Verbs behind the user's name, for “You”, that do more than lose their end.
    @type {Record<string, string>} */
const OF_YOU = { is: "are", was: "were", has: "have", does: "do" };
const ENDS = /** @type {[RegExp, string][]} */ ([
  [/(?<=..)ies$/, "y"],
  [/(?<=ss|sh|ch|x|zz|o)es$/, ""],
  [/(?<=[^siu])s$/, ""],
]);
const NO_VERBS = /^(?:always|as|besides|afterwards|its|less|perhaps|sometimes|towards|upwards|yes)$/;
const PREPOSITIONS = // behind which the name is no subject
  "above after against at before behind below beside between by for from in into like near of on onto over " +
  "past than through to toward towards under upon with without";
const BEHIND = new RegExp(`(?<!\\p{L})(?:${PREPOSITIONS.replaceAll(" ", "|")})\\s$`, "iu");

/** @type {(verb: string) => string} */
function ofYou(verb) {
  if (NO_VERBS.test(verb)) return verb;
  const [end, by] = ENDS.find(([end]) => end.test(verb)) ?? [/$/, ""];
  return OF_YOU[verb] ?? verb.replace(end, by);
}

/** @type {(text: string, name: string) => string} */
const withNames = (text, name) =>
  text
    .replaceAll(/\{\{char\}\}|<BOT>/gi, () => name)
    .replaceAll(/(?:\{\{user\}\}|<USER>)(?:(['’]s\b)|( )([a-z]+s)\b)?/gi, (_, own, space, verb, at, all) => {
      if (own) return "Your";
      const isSubject = verb && !BEHIND.test(all.slice(Math.max(0, at - 20), at));
      return `You${space ?? ""}${isSubject ? ofYou(verb) : (verb ?? "")}`;
    });

/** @type {(data: any) => boolean} */
export const isKobold = (data) => Array.isArray(data.actions) && data.prompt !== undefined;

const TURNS = /\{\{\[(?:INPUT|OUTPUT)(?:_END)?\]\}\}/g; // marks between the writer's and the model's turns

/** A save of KoboldAI Lite: its prompt is the writer's, its actions follow each other.
    @type {(data: any, name: string, warnings?: string[]) => Story} */
export function kobold({ story_name, prompt, actions, memory, authorsnote, worldinfo }, name, warnings = []) {
  const story = newStory(String(story_name || name));
  for (const [i, text] of [prompt, ...actions].entries()) {
    const said = String(text ?? "").replace(TURNS, "\n");
    if (!said) continue;
    const source = i === 0 ? "user" : "model";
    story.current = addNode(story, story.current, { text: said, source, state: "stop", seen: true }).id;
  }
  const entries = Array.isArray(worldinfo) ? worldinfo : [];
  const { lore } = loreFrom({ entries }, warnings);
  story.parts = {
    memory: String(memory ?? ""),
    note: { text: String(authorsnote ?? ""), depth: null },
    lore,
  };
  return story;
}
