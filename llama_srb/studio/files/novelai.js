// NovelAI's stories (.story) and scenarios (.scenario): text, memory, author's note and lorebook. A story has
// its text as fragments, or since version 6 of its content as a document in MessagePack; retries are left
// out.

import { addNode, newStory } from "../story/tree.js";
import { loreFrom } from "./foreign.js";
import { unpacked } from "./msgpack.js";

/** @import { Story } from "../story/tree.js" */

const CONTAINER = 1; // the version of the file that is known

/** @type {(data: any) => boolean} */
export const isNovelAi = (data) =>
  data.storyContainerVersion !== undefined || data.scenarioVersion !== undefined;

/** @type {(data: any, name: string, warnings: string[]) => Story} */
export function novelAi(data, name, warnings) {
  const { storyContainerVersion: version, metadata } = data;
  if (version !== undefined && version !== CONTAINER)
    throw new Error(`it is a NovelAI story of version ${version}; version ${CONTAINER} can be read`);
  const isScenario = version === undefined;
  const content = isScenario ? filled(data, warnings) : data.content;
  const story = newStory(String((metadata ?? data).title || name));
  const pieces = isScenario ? [pieceOf(content.prompt)] : piecesOf(content);
  for (const { text, source } of pieces)
    if (text) story.current = addNode(story, story.current, { text, source, state: "stop", seen: true }).id;
  const [memory, note] = Array.isArray(content.context) ? content.context : [];
  story.parts = {
    memory: String(memory?.text ?? ""),
    note: { text: String(note?.text ?? ""), depth: null },
    lore: content.lorebook ? loreFrom(content.lorebook, warnings).lore : [],
  };
  return story;
}

/** @typedef {{text: string, source: string}} Piece */

/** @type {(prompt: unknown) => Piece} */
const pieceOf = (prompt) => ({ text: String(prompt ?? "").replaceAll("\r", ""), source: "user" });

const PLACEHOLDER = /\$\{(?:\d+#)?([^}[\]:]*)(?:\[([^\]]*)\])?(?::([^}]*))?\}/g;

/** A scenario with the default of each placeholder in all its texts: ${1#Name[Mara]:who it is about} in one
    of them, ${Name} in others. One without a default stays as ${Name}, with a warning.
    @type {(data: any, warnings: string[]) => any} */
function filled({ prompt, context, lorebook }, warnings) {
  /** @type {Map<string, string>} */
  const values = new Map();
  /** @type {Map<string, string>} */
  const bare = new Map(); // those without a default, and what they stand for
  const texts = { prompt, context, lorebook };
  inTexts(texts, (text) => {
    for (const [, name, value] of text.matchAll(PLACEHOLDER)) if (value) values.set(name, value);
    return text;
  });
  const all = inTexts(texts, (text) =>
    text.replace(PLACEHOLDER, (_, name, __, about = "") => {
      const value = values.get(name);
      if (value === undefined) bare.set(name, bare.get(name) || about);
      return value ?? `\${${name}}`;
    }),
  );
  for (const [name, about] of bare)
    warnings.push(`\${${name}}${about && ` (${about})`} has no default; replace it where it stands`);
  return all;
}

/** Data with its texts changed.
    @type {(data: any, change: (text: string) => string) => any} */
function inTexts(data, change) {
  if (typeof data === "string") return change(data);
  if (Array.isArray(data)) return data.map((one) => inTexts(one, change));
  if (Object(data) !== data) return data;
  return Object.fromEntries(Object.entries(data).map(([key, one]) => [key, inTexts(one, change)]));
}

/** @type {(content: any) => Piece[]} */
function piecesOf({ document, story }) {
  if (typeof document === "string" && document) return [{ text: documentText(document), source: "user" }];
  if (!Array.isArray(story?.fragments))
    throw new Error("it has no text that can be read: neither a document nor fragments");
  /** @type {Piece[]} */
  const pieces = [];
  for (const { data, origin } of story.fragments) {
    const source = origin === "ai" ? "model" : "user";
    const last = pieces.at(-1);
    const text = String(data ?? "").replaceAll("\r", "");
    if (last?.source === source) last.text += text;
    else pieces.push({ text, source });
  }
  return pieces;
}

/** @type {(base64: string) => string} */
function documentText(base64) {
  const document = unpacked(Uint8Array.from(atob(base64), (sign) => sign.charCodeAt(0)));
  const sections = document?.get?.("sections");
  if (!(sections instanceof Map)) throw new Error("its document has no sections");
  /** @type {Map<any, string>} */
  const texts = new Map([...sections].map(([id, section]) => [id, textOf(section)]));
  const order = document.get("order");
  const dirty = document.get("dirtySections");
  const ids = changed(
    texts,
    Array.isArray(order) ? [...order] : [...texts.keys()],
    dirty instanceof Map ? dirty : new Map(),
  );
  return ids
    .flatMap((id) => texts.get(id) ?? [])
    .join("\n")
    .replaceAll("\r", "");
}

/** A section is a paragraph.
    @type {(section: any) => string} */
const textOf = (section) => String(section?.get?.("text") ?? "");

const [ADDED, EDITED, REMOVED] = [0, 1, 2];

/** The order of sections after the last changes, which the document has beside the sections.
    @type {(texts: Map<any, string>, order: any[], dirty: Map<any, any>) => any[]} */
function changed(texts, order, dirty) {
  const removed = new Set();
  let waiting = [...dirty];
  for (let before = -1; waiting.length && waiting.length !== before; ) {
    before = waiting.length;
    waiting = waiting.filter(([id, step]) => {
      const type = step?.get?.("type");
      if (type === ADDED) return !insert(texts, order, id, step);
      if (type === EDITED) texts.set(id, edited(texts.get(id) ?? "", step.get("diff")));
      if (type === REMOVED) removed.add(id);
      return false;
    });
  }
  return order.filter((id) => !removed.has(id));
}

/** Adds a section behind the one that the step names; false if that is not there yet.
    @type {(texts: Map<any, string>, order: any[], id: any, step: Map<string, any>) => boolean} */
function insert(texts, order, id, step) {
  const after = step.get("after");
  const at =
    after === undefined || after === null ? order.length : after === 0 ? 0 : order.indexOf(after) + 1;
  if (after && !at) return false;
  texts.set(id, textOf(step.get("section")));
  order.splice(at, 0, id);
  return true;
}

/** @type {(text: string, diff: any) => string} */
function edited(text, diff) {
  const parts = diff?.get?.("parts") ?? diff?.get?.("diff")?.get?.("parts");
  if (!Array.isArray(parts)) return text;
  let made = text;
  for (const part of parts) {
    const from = Number(part.get("from"));
    made =
      made.slice(0, from) + (part.get("insert") ?? "") + made.slice(from + (part.get("delete") ?? "").length);
  }
  return made;
}
