// Stories as files: what is exported is read again, other tools' files become stories or lore, and no others.

import assert from "node:assert/strict";
import { test } from "node:test";
import { readParts } from "#studio/background/parts.js";
import { fromFile, toBackup, toJson, toMarkdown } from "#studio/files/exchange.js";
import { kindOf } from "#studio/files/kinds.js";
import { childrenOf, newStory, textOf } from "#studio/story/tree.js";
import { CHARACTER, KOBOLD, LOOM, LOREBOOK, MIKUPAD, WORLD } from "./samples.js";
import { assertTree, lived, randomOf, randomStory, retype, SEEDS } from "./trees.js";

const read = (content, name = "lamp.json") =>
  fromFile(new File([content?.constructor === Object ? JSON.stringify(content) : content], name));

const ours = (story) => ({ format: "llama-srb studio", version: 1, story });
const told = ({ id: _, ...entry }) => entry;
const entry = (fields) => ({
  name: "",
  text: "",
  keys: "",
  also: "",
  always: false,
  order: 100,
  search: null,
  budget: null,
  meaning: null,
  ...fields,
});

// ---- ours --------------------------------------------------------------------------------------------

/** A story with every field that a file has. */
function whole(random) {
  const story = lived(randomStory(random), random);
  const note = { text: random.words(2), depth: random.pick([null, 30]) };
  const lore = [{ ...entry({ text: random.words(2), keys: "fox\nowl", always: true }), id: "one" }];
  const parts = readParts({ memory: random.words(2), summary: "", note, lore, budget: 100, search: null });
  const kind = random.pick(["story", "chat"]);
  Object.assign(story, {
    name: random.words(2),
    kind,
    tags: "a, b",
    lang: "en-GB",
    banned: "a\nb",
    system: "Be slow.",
  });
  const origins = [
    [
      ["user", " "],
      ["model", "b"],
    ],
  ];
  Object.assign(story, {
    scraps: [random.words(2), " b"],
    origins,
    parts,
    model: random.pick([null, "fox-7b"]),
  });
  const marks = { bookmark: true, aside: true, folded: true, seed: 7, seen: true };
  for (const node of Object.values(story.nodes)) if (!random.below(3)) Object.assign(node, marks);
  for (const node of Object.values(story.nodes)) node.born ??= 1; // a root has none; an imported one has
  const ends = { replaces: " He ran.", ends: { sentences: 1 }, length: 20 };
  for (const node of Object.values(story.nodes)) if (!random.below(5)) Object.assign(node, ends);
  return story;
}

/** A story as texts within texts: without ids, and without what no file keeps. */
function content({ id, root, current, created, changed, nodes, trashed: _, ...story }) {
  const of = (one) => {
    const { id: __, parent: ___, ref: ____, children, tail, ...fields } = nodes[one];
    const own = nodes[tail] && textOf({ nodes }, tail); // it has another id now
    const given = Object.entries({ ...fields, tail: own }).filter(
      ([, value]) => value !== null && value !== undefined,
    );
    return [Object.fromEntries(given), one === current, children.map(of)];
  };
  return { ...story, tree: of(root) };
}

const SIGNS = [
  "*",
  "**",
  "_",
  "#",
  "# ",
  "> ",
  "\\",
  " ",
  "\n",
  "\t",
  "a",
  "🦊",
  "\u2028",
  "\u0085",
  "\u00a0",
];
const signs = (random) => Array.from({ length: random.below(30) }, () => random.pick(SIGNS)).join("");

const seeds = (count = SEEDS) => Array.from({ length: count }, (_, i) => randomOf(i + 1));

test("a story that is exported as JSON and imported is the same", async () => {
  for (const random of seeds()) {
    const story = whole(random);
    const found = await read(toJson(story));
    assertTree(found);
    assert.deepEqual(content(found), content(story));
    assert.notEqual(found.id, story.id);
    assert.equal(await read(toJson(found)).then(textOf), textOf(story));
  }
});

test("stories of a backup come back with their ids and times", async () => {
  for (const random of seeds(30)) {
    const stories = [1, 2].map(() => whole(random));
    const found = await read(new Blob(toBackup(stories)));
    assert.deepEqual(found.map(content), stories.map(content));
    const facts = ({ id, created, changed, nodes }) => [id, created, changed, Object.keys(nodes).sort()];
    assert.deepEqual(found.map(facts), stories.map(facts));
  }
});

test("a text that is exported as Markdown and imported is the same, whatever its signs", async () => {
  for (const random of seeds()) {
    const story = randomStory(random);
    retype(story, textOf(story) + signs(random));
    const found = await read(toMarkdown(story), "fox.md");
    assert.equal(textOf(found), textOf(story));
  }
});

const FILES = [
  "# The *fox*\n\nOnce.\n",
  "# A\nB\n",
  "## Two\n",
  "Once.\n\n",
  "\n",
  "# \n",
  "a \\* b _c_ #d\n",
];

test("a Markdown file that is imported and exported is the same, but for line ends", async () => {
  for (const file of FILES) {
    const [plain, marked, returns] = [file, `\ufeff${file}`, file.replaceAll("\n", "\r\n")];
    for (const one of [plain, marked, returns]) assert.equal(toMarkdown(await read(one, "x.md")), file);
  }
  assert.equal((await read(FILES[0], "x.md")).name, "The fox");
  assert.equal((await read(FILES[3], "x.md")).name, "x");
});

test("a text is named after its heading, without marks, escapes and calls of notes", async () => {
  assert.equal((await read("## The *Good* \\*Fox\\*[^1]\n", "x.md")).name, "The Good *Fox*");
});

test("a text without a heading is named after its file", async () => {
  const story = await read("Once\n", "The fox.txt");
  assert.deepEqual([story.name, textOf(story)], ["The fox", "Once"]);
});

const LINES = "One.\r\nTwo.\r\nThree.";
const WITH_RETURNS = {
  "a text of the writer's": ["x.md", LINES, "user"],
  "a story": [
    "x.json",
    ours({ root: "r", current: "a", nodes: { r: { children: ["a"] }, a: { text: LINES, source: "model" } } }),
    "model",
  ],
  "a save of KoboldAI Lite": ["x.json", { prompt: "", actions: [LINES] }, "model"],
  "a session of mikupad": ["x.json", { prompt: JSON.stringify(LINES) }, "user"],
};

for (const [what, [name, file, source]] of Object.entries(WITH_RETURNS))
  test(`the line breaks of ${what} are those of the text field`, async () => {
    const story = await read(file, name);
    assert.equal(textOf(story), "One.\nTwo.\nThree.");
    assert.equal(story.nodes[story.current].source, source);
  });

test("line breaks are those of the text field in all that a story has", async () => {
  const token = { text: "a\r\n", top: [{ text: "a\r\n" }] };
  const lore = [{ text: "a\r\nb", keys: "a\r\nb" }];
  const parts = { memory: "a\r\nb", note: { text: "a\r\nb" }, lore };
  const fields = { scraps: ["a\r\nb"], system: "a\r\nb", parts };
  const nodes = { r: { text: "a\r\n", tokens: [token], replaces: "a\r\nb" } };
  const story = await read(ours({ root: "r", current: "r", nodes, ...fields }));
  assert.ok(!JSON.stringify(story).includes("\\r"), JSON.stringify(story));
  assert.deepEqual(story.scraps, ["a\nb"]);
});

// ---- files of other tools ----------------------------------------------------------------------------

test("a tree of Obsidian Loom is imported", async () => {
  const story = await read(LOOM);
  assertTree(story);
  assert.equal(textOf(story), "The lamp went out. Mara laughed.");
  assert.deepEqual(
    childrenOf(story, story.current).map(({ text }) => text),
    [" Then the door"],
  );
  const facts = Object.values(story.nodes)
    .filter(({ text }) => text)
    .map(({ text, source, bookmark, seen, folded }) => [text, source, bookmark, seen, folded]);
  assert.deepEqual(facts, [
    ["The lamp went out.", "user", false, true, false],
    [" Nobody spoke.", "model", false, false, false],
    [" Mara laughed.", "model", true, true, false],
    [" Then the door", "model", false, false, true],
  ]);
});

test("a session of mikupad is imported with the alternatives of its tokens", async () => {
  const story = await read(MIKUPAD);
  assertTree(story);
  assert.deepEqual([story.name, textOf(story)], ["The lamp", "The lamp went out. Mara"]);
  const [, user, model, last] = Object.values(story.nodes);
  assert.deepEqual(
    [user, model, last].map(({ source, text }) => [source, text]),
    [
      ["user", "The lamp went"],
      ["model", " out."],
      ["user", " Mara"],
    ],
  );
  assert.deepEqual(
    model.tokens.map(({ text }) => text),
    [" out", "."],
  );
  const likely = model.tokens[0].top.map(({ text, logprob }) => [text, Math.exp(logprob).toFixed(3)]);
  assert.deepEqual(likely, [
    [" out", "0.900"],
    [" dim", "0.050"],
  ]);
});

test("a save of KoboldAI Lite becomes a story", async () => {
  const story = await read(KOBOLD, "house.json");
  assertTree(story);
  assert.equal(story.name, "house");
  assert.equal(textOf(story), "The lamp went out. Mara laughed.\nNobody spoke.");
  const texts = (source) =>
    Object.values(story.nodes)
      .filter((node) => node.text && node.source === source)
      .map(({ text }) => text);
  assert.deepEqual(texts("user"), ["The lamp went out."]);
  assert.deepEqual(texts("model"), [" Mara laughed.", "\nNobody spoke."]);
  const mara = entry({ name: "Mara", text: "Mara is a smith.", keys: "Mara\nsmith" });
  assert.deepEqual(story.parts.lore.map(told), [mara]);
  assert.deepEqual([story.parts.memory, story.parts.note.text], ["A dark house.", "Be slow."]);
});

test("a lorebook of NovelAI becomes lore", async () => {
  const { lore, off } = await read(LOREBOOK, "town.lorebook");
  assert.equal(off, 1);
  const harbour = { name: "Harbour", text: "The harbour is closed in winter.", keys: "harbour\n/doc?ks/i" };
  assert.deepEqual(lore.map(told), [
    entry({ ...harbour, order: 400, search: 2000, budget: 300 }),
    entry({ name: "Mara", text: "Mara is a smith.", always: true }),
  ]);
});

const TAVERN = [
  { name: "The tower", text: "The tower has no door.", keys: "tower\nkeep", also: "night", order: 120 },
  { name: "The king", text: "The king never sleeps.", keys: "king", always: true, order: 90 },
  { name: "The well", text: "The well is dry.", keys: "well", order: 80 }, // "NOT ANY" has no place here
];

for (const [what, file] of Object.entries({ "a world": WORLD, "a character's book": CHARACTER }))
  test(`${what} of SillyTavern becomes lore`, async () => {
    const { lore, off } = await read(file);
    assert.equal(off, 1);
    assert.deepEqual(lore.map(told), TAVERN.map(entry));
  });

// ---- files that cannot be trusted ----------------------------------------------------------------------

const EXPECTED = /^lamp.json: expected a story of the studio/;
const NO_TEXT = /^story.md is no text in UTF-8; if it is a text, save it as UTF-8/;
const WRONG = {
  "no JSON": ["{nodes", "lamp.json", /^lamp.json is no whole JSON: it is incomplete, damaged or/],
  "another's JSON": ['{"a": 1}', "lamp.json", EXPECTED],
  null: ["null", "lamp.json", EXPECTED],
  "no beginning": [ours({ nodes: {}, root: "r" }), "lamp.json", /the story has no beginning/],
  "no story": [{ format: "llama-srb studio" }, "lamp.json", /^lamp.json is damaged/],
  "no stories": [{ format: "llama-srb studio backup", stories: 5 }, "lamp.json", /^lamp.json is damaged/],
  "a Word file that is text": ["no zip", "a.docx", /^a.docx is no story: it is no zip file$/],
  "a Word file that is cut": [
    new Uint8Array([0x50, 0x4b, 3, 4, ...Array(30).fill(0)]),
    "a.docx",
    /^a.docx is no story: it is incomplete: its end is missing$/,
  ],
  "an empty Word file": ["", "a.docx", /^a.docx is empty$/],
  "a picture": [
    new Uint8Array([0x89, 0x50, 0x4e, 0x47, 13, 10, 26, 10, 0, 0, 0, 13]),
    "story.md",
    /^story.md is no story: it is a picture \(PNG\)/,
  ],
  "a null character": ["Once\0upon", "story.md", NO_TEXT],
  "latin-1": [Buffer.from("Es wäre", "latin1"), "story.md", NO_TEXT],
  "utf-16 without a mark": [Buffer.from("Once", "utf16le"), "story.md", NO_TEXT],
};

const PAGES = [
  ["a.txt", "<!DOCTYPE html><p>a", "html"],
  ["a.txt", "<title>A</title><p>a", "html"],
  ["a.html", "<!-- 1 --><p class=x>a", "html"],
  ["a.md", "<p align=center>a</p>", "text"],
  ["a.html", "Once <b>upon</b>", "text"],
  ["a.htm", "<3 you", "text"],
];

test("a page is told by how it begins, and a part of one by its name, too", async () => {
  for (const [name, text, kind] of PAGES)
    assert.equal(await kindOf(name, new TextEncoder().encode(text).buffer), kind, text);
});

test("a text in UTF-16 with its mark is read", async () => {
  const little = Buffer.from("\ufeffEs wäre „gut“.\r\n🦊\n", "utf16le");
  for (const [file, name] of [
    [little, "a.txt"],
    [Buffer.from(little).swap16(), "a.txt"],
    [Buffer.from(`\ufeff${JSON.stringify(ours({ root: "r", nodes: { r: NODE } }))}`, "utf16le"), "a.json"],
  ])
    assert.equal(textOf(await read(file, name)), "Es wäre „gut“.\n🦊", name);
});
const NODE = { text: "Es wäre „gut“.\n🦊" };

for (const [what, [file, name, message]] of Object.entries(WRONG))
  test(`a file is refused: ${what}`, () => assert.rejects(read(file, name), { message }));

test("a story with invalid fields is imported without them", async () => {
  const wrong = { source: "x", tokens: ["no"], sampling: { a: {} }, seed: "1", children: ["r"] };
  const nodes = { r: { text: "<b>Hm</b>", ...wrong } };
  const story = await read(ours({ name: {}, root: "r", current: "r", nodes }));
  assertTree(story);
  assert.equal(textOf(story), "<b>Hm</b>");
  const { source, tokens, sampling, seed } = story.nodes[story.root];
  assert.deepEqual([source, tokens, sampling, seed], ["model", undefined, undefined, undefined]);
});

const OTHERS = [null, 5, "x", true, [], {}, [null], { x: [] }];

/** Each way to put another value into one place of some data. */
function* changed(data) {
  if (Object(data) !== data) return;
  for (const key of Object.keys(data)) {
    for (const other of OTHERS) yield Object.assign(structuredClone(data), { [key]: other });
    for (const one of changed(data[key])) yield Object.assign(structuredClone(data), { [key]: one });
  }
}

test("a file with a wrong value anywhere becomes a sound story, or lore, or is refused", async () => {
  const story = newStory("Fox");
  retype(story, "Once");
  const files = { LOOM, MIKUPAD, KOBOLD, LOREBOOK, CHARACTER, ours: ours(whole(randomOf(3))) };
  for (const [kind, file] of Object.entries({ ...files, backup: JSON.parse(toBackup([story]).join("")) }))
    for (const data of changed(file)) {
      const name = `${kind}: ${JSON.stringify(data).slice(0, 300)}`;
      const refused = ({ message }) => assert.match(message, /lamp.json|no beginning/, name);
      const found = await read(data).catch(refused);
      if (!found) continue;
      for (const one of found.lore ?? []) assert.equal(typeof one.text, "string", name);
      for (const one of found.lore ? [] : [found].flat()) assertTree(one);
    }
});
