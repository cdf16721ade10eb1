// Stories as files: Markdown (the text), our JSON (the tree), documents, and those of other tools.

import { readParts } from "../background/parts.js";
import { addNode, checkFormat, FORMAT, newStory, textOf } from "../story/tree.js";
import { fromDocx } from "./docx.js";
import { blockOf } from "./emphasis.js";
import { fromEpub } from "./epub.js";
import { character, isCharacter, isKobold, isLore, kobold, loreFrom } from "./foreign.js";
import { fromHtml } from "./html.js";
import { kindOf } from "./kinds.js";
import { isNovelAi, novelAi } from "./novelai.js";
import { fromOdt } from "./odt.js";
import { plainOf } from "./paragraphs.js";
import { jsonInPng } from "./png.js";
import { fromRtf } from "./rtf.js";

/** @import { Entry } from "../background/parts.js" */
/** @import { Story, Token, TreeNode } from "../story/tree.js" */

/** Entries of a lorebook, and how many are left out, being off.
    @typedef {{lore: Entry[], off: number}} Lore */

const STORY = "llama-srb studio";
const BACKUP = "llama-srb studio backup";

/** The text, which is Markdown already. A file ends with a line break, which a story's text need not have;
    what would be read as the file's byte order mark stands behind one.
    @type {(story: Story) => string} */
export const toMarkdown = (story) => `${textOf(story).replace(/^\ufeff/, "\ufeff\ufeff")}\n`;
/** @type {(story: Story) => string} */
export const toJson = (story) => JSON.stringify({ format: STORY, version: FORMAT, story }, null, 1);

/** All stories as the parts of one file.
    @type {(stories: Story[]) => string[]} */
export const toBackup = (stories) => [
  `{"format": "${BACKUP}", "version": ${FORMAT}, "stories": [`,
  ...stories.flatMap((story, i) => [i ? ",\n" : "\n", JSON.stringify(story)]),
  "\n]}\n",
];

/** @type {(from: {id: any}) => string | null} */
const idOf = ({ id }) => (/^[a-z0-9_-]{1,100}$/.test(id) ? id : null);

/** By the byte order mark.
    @type {Record<string, string>} */
const CHARSETS = { "255,254": "utf-16le", "254,255": "utf-16be" };

/** A text in UTF-16 that says so by its byte order mark, as UTF-8; other bytes as they are.
    @type {(bytes: ArrayBuffer) => ArrayBuffer} */
function inUtf8(bytes) {
  const [first, second] = new Uint8Array(bytes);
  const charset = CHARSETS[`${first},${second}`];
  return charset ? new TextEncoder().encode(new TextDecoder(charset).decode(bytes)).buffer : bytes;
}

/** The text in UTF-8; Error when it is none: a program, a text of another charset.
    @type {(name: string, bytes: ArrayBuffer) => string} */
function textOfBytes(name, bytes) {
  try {
    const text = new TextDecoder("utf-8", { fatal: true }).decode(bytes);
    if (!text.includes("\0")) return text.replace(/\r\n?/g, "\n"); // as the text field has line breaks
  } catch {}
  throw new Error(
    `${name} is no text in UTF-8; if it is a text, save it as UTF-8 and import that, or import Word, ` +
      "EPUB, OpenDocument, RTF or JSON",
  );
}

/** A file's story, under new ids; the stories of a backup as a list; the entries of a lorebook. `warnings`
    gets a sentence for each thing that is left out. Error when it is none of them.
    @type {(file: File, warnings?: string[]) => Promise<Story | Story[] | Lore>} */
export async function fromFile(file, warnings = []) {
  const { name } = file;
  const bytes = inUtf8(await file.arrayBuffer());
  if (!bytes.byteLength) throw new Error(`${name} is empty`);
  const kind = await told(name, () => kindOf(name, bytes));
  if (kind === "png") return fromData(name, await told(name, () => jsonInPng(bytes)), warnings);
  if (kind in DOCUMENTS) return fromDocument(name, withTitle(await told(name, () => DOCUMENTS[kind](bytes))));
  const text = textOfBytes(name, bytes);
  if (kind === "html") return fromDocument(name, withTitle({ title: "", text: fromHtml(text) }));
  return kind === "json" || isJson(text) ? fromData(name, text, warnings) : fromText(name, text);
}

/** @type {Record<string, (bytes: ArrayBuffer) => Promise<{title: string, text: string}>>} */
const DOCUMENTS = {
  docx: fromDocx,
  odt: fromOdt,
  rtf: fromRtf,
  epub: fromEpub,
};

/** An error names the file.
    @type {<T>(name: string, work: () => T | Promise<T>) => Promise<T>} */
async function told(name, work) {
  try {
    return await work();
  } catch (error) {
    throw new Error(`${name} is no story: ${error.message}`);
  }
}

/** Whether a text is data, whatever its file is called.
    @type {(text: string) => boolean} */
const isJson = (text) => /^\s*[[{]/.test(text) && typeof asJson(text) === "object";

/** @type {(name: string, text: string, warnings: string[]) => Story | Story[] | Lore} */
function fromData(name, text, warnings) {
  const found = asJson(text);
  if (found === text) throw new Error(`${name} ${NOT_WHOLE}; expected ${EXPECTED}`);
  const data = Object(found);
  const read = READERS.find(([knows]) => knows(data))?.[1];
  if (!read) throw new Error(`${name}: expected ${EXPECTED}`);
  if ([STORY, BACKUP].includes(data.format)) checkFormat({ format: data.version, name });
  try {
    return read(data, name.replace(/\.(json|story|scenario|png)$/i, ""), warnings);
  } catch (error) {
    if (!(error instanceof TypeError)) throw error;
    throw new Error(`${name} is damaged: a part of it is missing or of another type`);
  }
}

const NOT_WHOLE = "is no whole JSON: it is incomplete, damaged or of another kind";
const EXPECTED =
  "a story of the studio, of NovelAI, Obsidian Loom, mikupad or KoboldAI Lite, a lorebook of NovelAI or " +
  "Agnai, or a character or world info of SillyTavern";

/** A document without a title has the words of its first heading.
    @type {(found: {title: string, text: string}) => {title: string, text: string}} */
const withTitle = ({ title, text }) => ({
  title: title.trim() || plainOf(/^#{1,6} .*/m.exec(text)?.[0] ?? ""),
  text,
});

/** @type {(name: string, found: {title: string, text: string}) => Story} */
function fromDocument(name, { title, text }) {
  const story = newStory(title.trim().replaceAll(/\s+/g, " ") || name.replace(/\.\w+$/, ""));
  story.current = addNode(story, story.root, { text, source: "user" }).id;
  return story;
}

/** @type {(name: string, text: string) => Story} */
const fromText = (name, text) => fromDocument(name, { title: titleOf(text), text: text.replace(/\n$/, "") });

/** The words of the heading that a text begins with, which stays in the text; "" for none.
    @type {(text: string) => string} */
function titleOf(text) {
  const line = /^.*/.exec(text)?.[0] ?? "";
  return blockOf(line).kind === "heading" ? plainOf(line) : "";
}

/** @typedef {(data: any, name: string, warnings: string[]) => Story | Story[] | Lore} ReaderOfData */
/** @type {[(data: any) => unknown, ReaderOfData][]} */
const READERS = [
  [(data) => data.format === STORY, (data) => ours(data.story)],
  [
    (data) => data.format === BACKUP,
    (data) => data.stories.map((/** @type {any} */ story) => ours(story, idOf(story))),
  ],
  [(data) => data.nodes && (data.current !== undefined || data.hoisted), loom],
  [isNovelAi, novelAi],
  [isCharacter, character],
  [isKobold, kobold],
  [(data) => data.prompt !== undefined, mikupad],
  [isLore, (data, _, warnings) => loreFrom(data, warnings)],
];

/** Copies only the known fields of a story and checks their types: a file cannot be trusted. With an `id` the
    story gets it, and its nodes keep theirs.
    @type {(from: any, id?: string | null) => Story} */
export function ours(
  { name, kind, system, tags, lang, banned, scraps, origins, parts, model, root, current, nodes, ...head },
  id = null,
) {
  const { created, changed, trashed, format } = head;
  checkFormat({ format, name });
  /** @type {Story} */
  const story = newStory(String(name), kind === "chat" ? "chat" : "story");
  Object.assign(story, { system: String(system ?? ""), tags: String(tags ?? "") });
  story.scraps = [...(scraps ?? [])].map(String);
  if (Array.isArray(origins)) story.origins = origins.filter(isPassage);
  if (parts) story.parts = readParts(parts);
  if (model && isText(model)) story.model = model;
  if (isText(banned)) story.banned = banned;
  if (isText(lang) && LANGUAGE.test(lang)) story.lang = lang;
  if (id) Object.assign(story, { id, trashed: Number.isFinite(trashed) ? trashed : null });
  if (id && Number.isFinite(created) && Number.isFinite(changed)) Object.assign(story, { created, changed });
  graft(story, story.root, nodes, root, current, !!id);
  const [top] = story.nodes[story.root].children;
  if (!top) throw new Error("the story has no beginning");
  delete story.nodes[story.root];
  if (story.current === story.root) story.current = top;
  Object.assign(story, { root: top });
  story.nodes[top].parent = null;
  return story;
}

const LANGUAGE = /^[a-z]{2,8}(?:-[a-z0-9]{1,8})*$/i; // as HTML names it

/** @type {(...values: string[]) => (value: any) => boolean} */
const one =
  (...values) =>
  (value) =>
    values.includes(value);
/** @type {(value: unknown) => boolean} */
const isFlag = (value) => typeof value === "boolean";
/** @type {(value: unknown) => boolean} */
const isText = (value) => typeof value === "string";
/** @type {(token: any) => boolean} */
const isToken = (token) =>
  isText(token?.text) && (token.top ?? []).every((/** @type {any} */ one) => isText(one.text));
const isSource = one("user", "model", "edit");
/** @type {(pieces: any) => boolean} */
const isPassage = (pieces) =>
  Array.isArray(pieces) && pieces.every((piece) => isSource(piece?.[0]) && isText(piece?.[1]));
/** @type {Record<string, (value: any) => boolean>} */
const KEPT = {
  source: isSource,
  state: one("stop", "length", "cancelled", "timeout", "interrupted", "error", "running"),
  pinned: isFlag,
  aside: isFlag,
  bookmark: isFlag,
  folded: isFlag,
  seen: isFlag,
  seed: Number.isFinite,
  length: Number.isFinite,
  thoughts: isText,
  ends: (ends) => Object.values(Object(ends)).every(Number.isFinite),
  born: Number.isFinite,
  moved: Number.isFinite,
  tail: isText,
  replaces: isText,
  sampling: (values) => Object.values(Object(values)).every((value) => Object(value) !== value),
  tokens: (tokens) => Array.isArray(tokens) && tokens.every(isToken),
};

/** Adds a tree of a file's nodes under a node.
    @type {(story: Story, parent: string, nodes: any, id: string, current: string,
      keepsIds?: boolean) => void} */
function graft(story, parent, nodes, id, current, keepsIds = false) {
  const work = [[parent, id]];
  /** @type {Map<string, TreeNode>} */
  const known = new Map();
  while (work.length) {
    const [under, from] = /** @type {[string, string]} */ (work.pop());
    const found = nodes[from];
    if (!found || known.has(from)) continue; // a circle ends here
    const kept = Object.entries(KEPT).filter(([field, fits]) => field in found && fits(found[field]));
    const own = keepsIds && idOf({ id: from }) && !story.nodes[from] ? { id: from } : {};
    const node = addNode(story, under, { ...own, text: String(found.text ?? "") });
    known.set(from, node);
    Object.assign(node, Object.fromEntries(kept.map(([field]) => [field, found[field]])));
    if (node.state === "running") node.state = "interrupted";
    if (from === current) story.current = node.id;
    for (const child of [...(found.children ?? [])].reverse()) work.push([node.id, child]);
  }
  for (const node of known.values()) if (node.tail) node.tail = known.get(node.tail)?.id;
}

/** The state of a note: a flat table of nodes that name their parents.
    @type {(data: any, name: string) => Story} */
function loom(data, name) {
  /** @type {Record<string, string[]>} */
  const children = {};
  /** @type {[string, any][]} */
  const entries = Object.entries(data.nodes);
  for (const [id, { parentId }] of entries) (children[parentId ?? ""] ??= []).push(id);
  const story = newStory(name);
  const nodes = Object.fromEntries(
    entries.map(([id, { text, bookmarked, unread, collapsed, parentId }]) => [
      id,
      {
        text,
        source: parentId ? "model" : "user",
        bookmark: !!bookmarked,
        folded: !!collapsed,
        seen: !unread,
        children: children[id],
      },
    ]),
  );
  for (const id of children[""] ?? []) graft(story, story.root, nodes, id, data.current);
  return story;
}

/** A session: each property is JSON within the JSON; a piece of the prompt is the writer's or one token.
    @type {(data: any, name: string) => Story} */
function mikupad(data, name) {
  /** @type {(value: any) => any} */
  const property = (value) => (typeof value === "string" ? asJson(value) : value);
  const story = newStory(String(property(data.name) ?? name));
  const said = property(data.prompt) ?? [];
  /** @type {TreeNode | null} */
  let node = null;
  for (const chunk of typeof said === "string" ? [{ type: "user", content: said }] : said) {
    const source = chunk.type === "user" ? "user" : "model";
    if (!node || node.source !== source) node = addNode(story, story.current, { source, seen: true });
    story.current = node.id;
    node.text += String(chunk.content ?? "");
    if (source === "model") (node.tokens ??= []).push(/** @type {Token} */ (tokenOf(chunk)));
  }
  for (const { tokens, ...one } of Object.values(story.nodes))
    if (!tokens?.every(Boolean)) delete story.nodes[one.id].tokens;
  return story;
}

/** The value of a JSON text, without carriage returns; the text itself when it is none.
    @type {(text: string) => any} */
function asJson(text) {
  try {
    return JSON.parse(text, /\\r|\\u000d/i.test(text) ? withoutReturn : undefined);
  } catch {
    return text;
  }
}

/** @type {(key: string, value: any) => any} */
const withoutReturn = (_, value) => (typeof value === "string" ? value.replaceAll("\r", "") : value);

/** A token with its probabilities in our form; null when it has none.
    @type {(chunk: any) => Token | null} */
function tokenOf({ content, prob, completion_probabilities }) {
  const [{ probs } = {}] = completion_probabilities ?? [];
  if (!Array.isArray(probs) || completion_probabilities.length !== 1) return null;
  const top = probs.map(({ tok_str, prob }) => ({ text: String(tok_str), logprob: Math.log(prob) }));
  const own = prob ?? probs.find(({ tok_str }) => tok_str === content)?.prob ?? 0;
  return { text: String(content), logprob: Math.log(Math.max(own, 1e-9)), top };
}
