// Lore and stories of other tools: NovelAI's lorebooks, SillyTavern's world info, KoboldAI Lite's saves. What
// has no place here is left out: conditions that forbid a key, chances, positions in the prompt.

import { newEntry } from "../background/parts.js";
import { addNode, newStory } from "../story/tree.js";

/** @import { Entry } from "../background/parts.js" */
/** @import { Story } from "../story/tree.js" */
/** @import { Lore } from "./exchange.js" */

const ORDER = 100; // as in docs/stories.md
const AND_ANY = 0; // SillyTavern's logic of second keys that is also ours

/** @type {(value: unknown) => string[]} */
const listOf = (value) =>
  (Array.isArray(value) ? value : String(value ?? "").split(",")).map((key) => String(key).trim());
/** @type {(value: unknown) => string} */
const lines = (value) => listOf(value).filter(Boolean).join("\n");
/** @type {(value: any, least?: number) => number | null} */
const count = (value, least = 0) => (Number.isInteger(value) && value >= least ? value : null);

/** An entry of our lore.
    @type {(fields: any) => Entry} */
const entry = ({ name, text, ...fields }) =>
  newEntry({ ...fields, name: String(name ?? ""), text: String(text ?? "") });

/** @type {(one: any) => Entry} */
const ofNovelAi = ({ displayName, text, keys, forceActivation, searchRange, contextConfig }) =>
  entry({
    name: displayName,
    text,
    keys: lines(keys),
    always: forceActivation === true,
    order: Math.max(0, count(contextConfig?.budgetPriority) ?? ORDER),
    search: count(searchRange, 1),
    budget: count(contextConfig?.tokenBudget, 2), // 1 means all of the context
  });

/** @type {(one: any) => Entry} */
const ofTavern = ({ comment, name, content, key, keys, constant, order, insertion_order, ...others }) =>
  entry({
    name: comment || name,
    text: content,
    keys: lines(key ?? keys),
    also: secondKeys(others),
    always: constant === true,
    order: count(order ?? insertion_order) ?? ORDER,
  });

/** The book in a character's JSON has the logic among its extensions.
    @type {(one: any) => string} */
function secondKeys({ selective, selectiveLogic, extensions, keysecondary, secondary_keys }) {
  const logic = selectiveLogic ?? extensions?.selectiveLogic ?? AND_ANY;
  return selective && logic === AND_ANY ? lines(keysecondary ?? secondary_keys) : "";
}

/** @type {(one: any) => boolean} */
const isOff = ({ enabled, disable }) => enabled === false || disable === true;

/** @type {(data: any) => any} */
const bookOf = (data) => data.data?.character_book ?? data.character_book ?? data;

/** @type {[(data: any) => boolean, (one: any) => Entry][]} */
const FORMS = [
  [(data) => data.lorebookVersion !== undefined, ofNovelAi],
  [(data) => typeof bookOf(data).entries === "object", ofTavern],
];

/** @type {(data: any) => boolean} */
export const isLore = (data) => FORMS.some(([knows]) => knows(data));

/** The entries of a lorebook or of world info.
    @type {(data: any) => Lore} */
export function loreFrom(data) {
  const read = /** @type {(one: any) => Entry} */ (FORMS.find(([knows]) => knows(data))?.[1]);
  const all = /** @type {any[]} */ (Object.values(bookOf(data).entries ?? {})).filter(
    (one) => one && typeof one === "object",
  );
  const on = all.filter((one) => !isOff(one));
  return { lore: on.map(read).filter(({ text }) => text.trim()), off: all.length - on.length };
}

/** @type {(data: any) => boolean} */
export const isKobold = (data) => Array.isArray(data.actions) && data.prompt !== undefined;

const TURNS = /\{\{\[(?:INPUT|OUTPUT)(?:_END)?\]\}\}/g; // marks between the writer's and the model's turns

/** A save of KoboldAI Lite: its prompt is the writer's, its actions follow each other.
    @type {(data: any, name: string) => Story} */
export function kobold({ story_name, prompt, actions, memory, authorsnote, worldinfo }, name) {
  const story = newStory(String(story_name || name));
  for (const [i, text] of [prompt, ...actions].entries()) {
    const said = String(text ?? "").replace(TURNS, "\n");
    if (!said) continue;
    const source = i === 0 ? "user" : "model";
    story.current = addNode(story, story.current, { text: said, source, state: "stop", seen: true }).id;
  }
  const entries = Array.isArray(worldinfo) ? worldinfo : [];
  const { lore } = loreFrom({ entries });
  story.parts = {
    memory: String(memory ?? ""),
    note: { text: String(authorsnote ?? ""), depth: null },
    lore,
  };
  return story;
}
