// Stories as files: Markdown (the text), our JSON (the tree), .docx, and those of other tools.

import { readParts } from "../background/parts.js";
import { addNode, newStory, textOf } from "../story/tree.js";
import { fromDocx } from "./docx.js";
import { isKobold, isLore, kobold, loreFrom } from "./foreign.js";

const FORMAT = "llama-srb studio";
const BACKUP = "llama-srb studio backup";

export const toMarkdown = (story) => `# ${story.name}\n\n${textOf(story)}\n`;
export const toJson = (story) => JSON.stringify({ format: FORMAT, version: 1, story }, null, 1);

/** All stories as the parts of one file. */
export const toBackup = (stories) => [
  `{"format": "${BACKUP}", "version": 1, "stories": [`,
  ...stories.flatMap((story, i) => [i ? ",\n" : "\n", JSON.stringify(story)]),
  "\n]}\n",
];

const idOf = ({ id }) => (/^[a-z0-9_-]{1,100}$/.test(id) ? id : null);

/** The text of a file; Error when it is none: an image, a program, a text that is not UTF-8. */
async function textOfFile(file) {
  const bytes = await file.arrayBuffer();
  try {
    const text = new TextDecoder("utf-8", { fatal: true }).decode(bytes);
    if (!text.includes("\0")) return text.replace(/\r\n?/g, "\n"); // as the text field has line breaks
  } catch {}
  throw new Error(`${file.name} is no text in UTF-8; import a text, Markdown, JSON or Word file`);
}

/** A file's story, under new ids; the stories of a backup as a list; {lore, off} of a lorebook. Error when it
    is none of them. */
export async function fromFile(file) {
  const { name } = file;
  if (/\.docx$/i.test(name)) return fromWord(file);
  const text = await textOfFile(file);
  if (!/\.(json|lorebook)$/i.test(name)) return fromText(name, text);
  const data = Object(asJson(text));
  const read = READERS.find(([knows]) => knows(data))?.[1];
  if (!read) throw new Error(`${name}: expected ${EXPECTED}`);
  try {
    return read(data, name.replace(/\.json$/i, ""));
  } catch (error) {
    if (!(error instanceof TypeError)) throw error;
    throw new Error(`${name} is damaged: a part of it is missing or of another type`);
  }
}

const EXPECTED =
  "a story of the studio, of Obsidian Loom, mikupad or KoboldAI Lite, a lorebook of NovelAI, or world info " +
  "of SillyTavern";

async function fromWord(file) {
  const text = await fromDocx(await file.arrayBuffer()).catch((error) => {
    throw new Error(`${file.name} is no story: ${error.message}`);
  });
  const story = newStory(file.name.replace(/\.docx$/i, ""));
  story.current = addNode(story, story.root, { text, source: "user" }).id;
  return story;
}

function fromText(name, text) {
  const [, title, rest] = /^# (.*)\n\n?([\s\S]*)$/.exec(text) ?? [null, name.replace(/\.\w+$/, ""), text];
  const story = newStory(title);
  story.current = addNode(story, story.root, { text: rest.replace(/\n$/, ""), source: "user" }).id;
  return story;
}

const READERS = [
  [(data) => data.format === FORMAT, (data) => ours(data.story)],
  [(data) => data.format === BACKUP, (data) => data.stories.map((story) => ours(story, idOf(story)))],
  [(data) => data.nodes && (data.current !== undefined || data.hoisted), loom],
  [isKobold, kobold],
  [(data) => data.prompt !== undefined, mikupad],
  [isLore, loreFrom],
];

/** Copies only the known fields of a story and checks their types: a file cannot be trusted. With an `id` the
    story gets it, and its nodes keep theirs. */
export function ours(
  { name, kind, system, tags, scraps, parts, model, root, current, nodes, created, changed, trashed },
  id = null,
) {
  const story = newStory(String(name), kind === "chat" ? "chat" : "story");
  Object.assign(story, { system: String(system ?? ""), tags: String(tags ?? "") });
  story.scraps = [...(scraps ?? [])].map(String);
  if (parts) story.parts = readParts(parts);
  if (model && isText(model)) story.model = model;
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

const one =
  (...values) =>
  (value) =>
    values.includes(value);
const isFlag = (value) => typeof value === "boolean";
const isText = (value) => typeof value === "string";
const isToken = (token) => isText(token?.text) && (token.top ?? []).every(({ text }) => isText(text));
const KEPT = {
  source: one("user", "model", "edit"),
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
  replaces: isText,
  sampling: (values) => Object.values(Object(values)).every((value) => Object(value) !== value),
  tokens: (tokens) => Array.isArray(tokens) && tokens.every(isToken),
};

function graft(story, parent, nodes, id, current, keepsIds = false) {
  const work = [[parent, id]];
  const known = new Set();
  while (work.length) {
    const [under, from] = work.pop();
    const found = nodes[from];
    if (!found || known.has(from)) continue; // a circle ends here
    known.add(from);
    const kept = Object.entries(KEPT).filter(([field, fits]) => field in found && fits(found[field]));
    const own = keepsIds && idOf({ id: from }) && !story.nodes[from] ? { id: from } : {};
    const node = addNode(story, under, { ...own, text: String(found.text ?? "") });
    for (const [field] of kept) node[field] = found[field];
    if (node.state === "running") node.state = "interrupted";
    if (from === current) story.current = node.id;
    for (const child of [...(found.children ?? [])].reverse()) work.push([node.id, child]);
  }
}

/** The state of a note: a flat table of nodes that name their parents. */
function loom(data, name) {
  const children = {};
  for (const [id, { parentId }] of Object.entries(data.nodes)) (children[parentId ?? ""] ??= []).push(id);
  const story = newStory(name);
  const nodes = Object.fromEntries(
    Object.entries(data.nodes).map(([id, { text, bookmarked, unread, collapsed, parentId }]) => [
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

/** A session: each property is JSON within the JSON; a piece of the prompt is the writer's or one token. */
function mikupad(data, name) {
  const property = (value) => (typeof value === "string" ? asJson(value) : value);
  const story = newStory(String(property(data.name) ?? name));
  const said = property(data.prompt) ?? [];
  let node = null;
  for (const chunk of typeof said === "string" ? [{ type: "user", content: said }] : said) {
    const source = chunk.type === "user" ? "user" : "model";
    if (node?.source !== source) node = addNode(story, story.current, { source, seen: true });
    story.current = node.id;
    node.text += String(chunk.content ?? "");
    if (source === "model") (node.tokens ??= []).push(tokenOf(chunk));
  }
  for (const { tokens, ...one } of Object.values(story.nodes))
    if (!tokens?.every(Boolean)) delete story.nodes[one.id].tokens;
  return story;
}

/** The value of a JSON text, without carriage returns; the text itself when it is none. */
function asJson(text) {
  try {
    return JSON.parse(text, /\\r|\\u000d/i.test(text) ? withoutReturn : undefined);
  } catch {
    return text;
  }
}

const withoutReturn = (_, value) => (typeof value === "string" ? value.replaceAll("\r", "") : value);

/** A token with its probabilities in our form; null when it has none. */
function tokenOf({ content, prob, completion_probabilities }) {
  const [{ probs } = {}] = completion_probabilities ?? [];
  if (!Array.isArray(probs) || completion_probabilities.length !== 1) return null;
  const top = probs.map(({ tok_str, prob }) => ({ text: String(tok_str), logprob: Math.log(prob) }));
  const own = prob ?? probs.find(({ tok_str }) => tok_str === content)?.prob ?? 0;
  return { text: String(content), logprob: Math.log(Math.max(own, 1e-9)), top };
}
