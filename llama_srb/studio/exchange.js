// Stories as files: Markdown (the text), our JSON (the tree), and the trees of Obsidian Loom and mikupad.

import { addNode, newStory, textOf } from "./tree.js";

const FORMAT = "llama-srb studio";

export const toMarkdown = (story) => `# ${story.name}\n\n${textOf(story)}\n`;
export const toJson = (story) => JSON.stringify({ format: FORMAT, version: 1, story }, null, 1);

/** A file's story, under new ids; Error when it is none. */
export function fromFile(name, text) {
  if (!/\.json$/i.test(name)) return fromText(name, text);
  const data = JSON.parse(text);
  const read = READERS.find(([knows]) => knows(data))?.[1];
  if (!read) throw new Error(`${name}: a story of the studio, of Obsidian Loom or of mikupad was expected`);
  return read(data, name.replace(/\.json$/i, ""));
}

function fromText(name, text) {
  const [, title, rest] = /^# (.*)\n\n?([^]*)$/.exec(text) ?? [null, name.replace(/\.\w+$/, ""), text];
  const story = newStory(title);
  story.current = addNode(story, story.root, { text: rest.replace(/\n$/, ""), source: "user" }).id;
  return story;
}

const READERS = [
  [(data) => data.format === FORMAT, (data) => ours(data.story)],
  [(data) => data.nodes && (data.current !== undefined || data.hoisted), loom],
  [(data) => data.prompt !== undefined || data.sessions, mikupad],
];

/** Only what a story has, each text as a text: a file is not to be trusted. */
function ours({ name, kind, system, scraps, root, current, nodes }) {
  const story = newStory(String(name), kind === "chat" ? "chat" : "story");
  story.system = String(system ?? "");
  story.scraps = [...(scraps ?? [])].map(String);
  graft(story, story.root, nodes, root, current);
  const [top] = story.nodes[story.root].children;
  if (!top) throw new Error("the story has no beginning");
  delete story.nodes[story.root];
  if (story.current === story.root) story.current = top;
  Object.assign(story, { root: top });
  story.nodes[top].parent = null;
  return story;
}

const KEPT = [
  "source",
  "pinned",
  "aside",
  "bookmark",
  "seed",
  "length",
  "sampling",
  "tokens",
  "born",
  "seen",
];

function graft(story, parent, nodes, id, current) {
  const work = [[parent, id]];
  const known = new Set();
  while (work.length) {
    const [under, from] = work.pop();
    const found = nodes[from];
    if (!found || known.has(from)) continue; // a circle ends here
    known.add(from);
    const kept = Object.fromEntries(
      KEPT.filter((field) => field in found).map((field) => [field, found[field]]),
    );
    const state =
      found.state === undefined ? {} : { state: found.state === "running" ? "interrupted" : found.state };
    const node = addNode(story, under, { ...kept, ...state, text: String(found.text ?? "") });
    if (from === current) story.current = node.id;
    for (const child of [...(found.children ?? [])].reverse()) work.push([node.id, child]);
  }
}

function loom(data, name) {
  const children = {};
  for (const [id, { parentId }] of Object.entries(data.nodes)) (children[parentId ?? ""] ??= []).push(id);
  const story = newStory(name);
  const nodes = Object.fromEntries(
    Object.entries(data.nodes).map(([id, { text, bookmarked, unread }]) => {
      return [id, { text, source: "model", bookmark: !!bookmarked, seen: !unread, children: children[id] }];
    }),
  );
  for (const id of children[""] ?? []) graft(story, story.root, nodes, id, data.current);
  return story;
}

function mikupad(data, name) {
  const story = newStory(data.name ?? name);
  const chunks =
    typeof data.prompt === "string" ? [{ type: "user", content: data.prompt }] : (data.prompt ?? []);
  for (const { type, content } of chunks) {
    const source = type === "user" ? "user" : "model";
    story.current = addNode(story, story.current, { text: String(content ?? ""), source }).id;
  }
  return story;
}
