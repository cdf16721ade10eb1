// NovelAI's stories, SillyTavern's characters, and lore of several tools with keys that we may not have.

import assert from "node:assert/strict";
import { test } from "node:test";
import { fromFile } from "#studio/files/exchange.js";
import { unpacked } from "#studio/files/msgpack.js";
import { zipped } from "#studio/files/zip.js";
import { childrenOf, textOf } from "#studio/story/tree.js";
import { LOREBOOK } from "./samples.js";
import { assertTree } from "./trees.js";

/** What a file becomes, and the sentences about what is left out. */
async function read(content, name = "lamp.json") {
  const warnings = [];
  const file = content?.constructor === Object ? JSON.stringify(content) : content;
  const found = await fromFile(new File([file], name), warnings);
  return { found, warnings };
}

// ---- NovelAI -----------------------------------------------------------------------------------------

// A document that msgpackr has packed with NovelAI's options: two sections in order, and the last changes,
// which add a section, mend a word and remove a section.
const DOCUMENT =
  "1BQA1HJAldZiAAAAkMEIwQXBB8ENwQSDzGXUckGSwQTBBAHBEsxmQQHB7sxnQQHBBZPMZcxmzGfUHgDUckKTwQTBB8EFAACAg8xo1HJD" +
  "k8EEwQfBBQBBAcEIzGbMZtRyRJLBBMEEAdQoANQpANRyRZHBBZHUckaTwQTBBsEGCKJoZ6JnaMxn1HJHk8EEwQjBBQJBAcEFzGgDtU1h" +
  "cmEgbGF1aGdlZCDigJQgbsOpLtmfc2VjdGlvbnNvcmRlcmhpc3RvcnlkaXJ0eVNlY3Rpb25zc3RlcHR5cGV0ZXh0VGhlIGxhbXAgd2Vu" +
  "dCBvdXQuR29uZS5yb290Y3VycmVudG5vZGVzdHlwZXNlY3Rpb25hZnRlclRoZSBlbmQudHlwZWRpZmZwYXJ0c2Zyb21kZWxldGVpbnNl" +
  "cnR0eXBlcHJldmlvdXNhZnRlckdvbmUu";
const AROUND = {
  context: [{ text: "A dark house." }, { text: "Be slow." }],
  lorebook: LOREBOOK,
};
const FRAGMENTS = [
  { data: "The lamp", origin: "prompt" },
  { data: " went out.", origin: "ai" },
  { data: " Mara", origin: "ai" },
  { data: " laughed.", origin: "user" },
];
const container = (content) => ({
  storyContainerVersion: 1,
  metadata: { title: "The lamp" },
  content: { ...AROUND, ...content },
});
// biome-ignore-start lint/suspicious/noTemplateCurlyInString: NovelAI's placeholders
const PROMPT = "${2#Name[Mara]:Who is it?} sees the ${Thing[lamp]}. ${Name} laughs at $5 {x}.";
const SCENARIO = {
  ...{ scenarioVersion: 3, title: "The lamp" },
  prompt: "${1#Name[Mara]:who} calls ${2#Pet:which pet}.",
  context: [{ text: "${Name} is ten, ${Pet} two." }, { text: "Write of ${Name}." }],
  lorebook: { lorebookVersion: 5, entries: [{ text: "${Name} is a smith.", keys: ["${Name}"] }] },
};
const STORIES = {
  "a document in MessagePack": [
    container({ document: DOCUMENT }),
    "The lamp went out.\nMara laughed — né.\nThe end.",
  ],
  fragments: [container({ story: { fragments: FRAGMENTS } }), "The lamp went out. Mara laughed."],
  "a scenario": [
    { scenarioVersion: 3, title: "The lamp", prompt: PROMPT, ...AROUND },
    "Mara sees the lamp. Mara laughs at $5 {x}.",
  ],
};

test("a story of NovelAI becomes a story with memory, note and lore", async () => {
  for (const [what, [file, text]] of Object.entries(STORIES))
    for (const name of ["a.story", "a.scenario", "a.json"]) {
      const { found } = await read(file, name);
      assertTree(found);
      assert.deepEqual([found.name, textOf(found)], ["The lamp", text], what);
      assert.deepEqual([found.parts.memory, found.parts.note.text], ["A dark house.", "Be slow."]);
      assert.deepEqual(
        found.parts.lore.map((one) => one.name),
        ["Harbour", "Mara"],
      );
    }
  const { found } = await read(STORIES.fragments[0]);
  const pieces = Object.values(found.nodes).flatMap(({ text, source }) => (text ? [[text, source]] : []));
  assert.deepEqual(pieces, [
    ["The lamp", "user"],
    [" went out. Mara", "model"],
    [" laughed.", "user"],
  ]);
});

test("the defaults of a scenario's placeholders stand in all its texts, others are told", async () => {
  const { found, warnings } = await read(SCENARIO, "a.scenario");
  assert.equal(textOf(found), "Mara calls ${Pet}.");
  const { memory, note, lore } = found.parts;
  assert.deepEqual([memory, note.text], ["Mara is ten, ${Pet} two.", "Write of Mara."]);
  assert.deepEqual([lore[0].text, lore[0].keys], ["Mara is a smith.", "Mara"]);
  assert.deepEqual(warnings, ["${Pet} (which pet) has no default; replace it where it stands"]);
});
// biome-ignore-end lint/suspicious/noTemplateCurlyInString: NovelAI's placeholders

test("a story of a NovelAI that is not known yet, and a damaged one, are refused", async () => {
  const wrong = [
    [{ ...container({}), storyContainerVersion: 2 }, /version 2; version 1 can be read/],
    [container({}), /no text that can be read/],
    [container({ document: DOCUMENT.slice(0, 80) }), /damaged/],
    [container({ document: "%" }), /./],
  ];
  for (const [file, message] of wrong) await assert.rejects(read(file, "a.story"), { message });
});

test("a document with any byte changed is read or refused as damaged", () => {
  const bytes = Uint8Array.from(atob(DOCUMENT), (sign) => sign.charCodeAt(0));
  for (let at = 0; at < bytes.length; at++)
    for (const bits of [1, 16, 0x80, 0xff]) {
      const changed = bytes.slice();
      changed[at] ^= bits;
      try {
        unpacked(changed);
      } catch ({ message }) {
        assert.equal(message, "its document is damaged", `byte ${at}`);
      }
    }
});

// ---- characters --------------------------------------------------------------------------------------

const BOOK = {
  entries: [{ keys: ["tower"], content: "{{char}} has no door.", enabled: true, insertion_order: 90 }],
};
const CARD = {
  name: "Mara",
  description: "{{char}} is a smith.",
  personality: "slow",
  scenario: "A harbour. {{user}} is there, {{user}}’s boat, too.",
  first_mes: "“Hello, {{user}},” says {{char}}.",
  mes_example: "<START>",
  alternate_greetings: ["“Go.”"],
};
const V1 = { ...CARD, alternate_greetings: undefined };
const UNUSED = {
  ...{ system_prompt: "Be brief.", post_history_instructions: "Go on.", creator_notes: "Hot." },
  ...{ extensions: { depth_prompt: { prompt: "She limps.", depth: 4 } }, group_only_greetings: ["Hi"] },
};
const V3 = { spec: "chara_card_v3", data: { ...CARD, character_book: BOOK } };

/** A picture with these texts in it. */
function png(texts) {
  const chunk = (type, data) => {
    const made = Buffer.alloc(12 + data.length);
    made.writeUInt32BE(data.length);
    made.write(type, 4, "latin1");
    data.copy(made, 8);
    return made;
  };
  const parts = Object.entries(texts).map(([key, text]) =>
    chunk("tEXt", Buffer.from(`${key}\0${Buffer.from(text).toString("base64")}`)),
  );
  const head = Buffer.from("\x89PNG\r\n\x1a\n", "latin1");
  return Buffer.concat([head, chunk("IHDR", Buffer.alloc(13)), ...parts, chunk("IEND", Buffer.alloc(0))]);
}

const OLD = JSON.stringify({ spec: "chara_card_v2", data: { ...CARD, name: "Old" } });
const CARDS = {
  "a card of version 1": [V1, "mara.json"],
  "a card of version 3": [V3, "mara.json"],
  "a picture": [png({ chara: OLD, ccv3: JSON.stringify(V3) }), "mara.png"],
  "a picture that is called otherwise": [png({ Chara: JSON.stringify(V3) }), "mara.txt"],
};

const YOU = {
  "{{user}} is late, {{user}} has time.": "You are late, You have time.",
  "{{user}} waits; <USER> carries it.": "You wait; You carry it.",
  "{{User}} watches, goes and says no.": "You watch, goes and says no.",
  "{{user}} uses it and {{user}} passes.": "You use it and You pass.",
  "{{user}} always knows; {{user}} sits.": "You always knows; You sit.",
  "Behind {{user}} stands a wall.": "Behind You stands a wall.",
  "{{user}}’s bus, {{user}} thus": "Your bus, You thus",
};

test("a sentence about the user is one about you", async () => {
  for (const [text, made] of Object.entries(YOU)) {
    const { found } = await read({ ...CARD, description: text, personality: "", scenario: "" }, "a.json");
    assert.equal(found.parts.memory, made);
  }
});

test("a character becomes a story with its memory, its opening and its lore", async () => {
  for (const [what, [file, name]] of Object.entries(CARDS)) {
    const { found, warnings } = await read(file, name);
    assertTree(found);
    assert.deepEqual([found.name, textOf(found)], ["Mara", "“Hello, You,” says Mara."], what);
    assert.equal(
      found.parts.memory,
      "Mara is a smith.\nPersonality: slow\nScenario: A harbour. You are there, Your boat, too.",
    );
    const others = childrenOf(found, found.root).map(({ text }) => text);
    const lore = found.parts.lore.map(({ text, keys, order }) => [text, keys, order]);
    const isBare = what.endsWith("1");
    assert.deepEqual(others.slice(1), isBare ? [] : ["“Go.”"], what);
    assert.deepEqual(lore, isBare ? [] : [["Mara has no door.", "tower", 90]], what);
    assert.equal(warnings.includes("the character has no lorebook"), isBare, what);
    assert.ok(warnings.includes("its examples of messages are left out"));
  }
});

test("a character has its nickname, and what has no place is told", async () => {
  const data = { ...CARD, mes_example: "", nickname: "Nib", ...UNUSED, character_book: BOOK };
  const { found, warnings } = await read({ spec: "chara_card_v3", data });
  assert.deepEqual([found.name, textOf(found)], ["Mara", "“Hello, You,” says Nib."]);
  const left = ["system prompt is", "instructions behind the messages are", "note at a depth is"];
  const told = [...left, "author's notes are", "greetings for groups are"];
  assert.deepEqual(
    warnings,
    told.map((what) => `its ${what} left out`),
  );
  const empty = { system_prompt: " ", extensions: { depth_prompt: { prompt: "", depth: 4 } } };
  const bare = await read({ spec: "chara_card_v2", data: { ...CARD, ...empty, mes_example: "" } });
  assert.deepEqual(bare.warnings, ["the character has no lorebook"]);
});

test("a picture without a character is refused, and a damaged one", async () => {
  await assert.rejects(read(png({ Title: "x" }), "a.png"), { message: /without a character in it/ });
  const whole = png({ chara: JSON.stringify(V3) });
  for (let end = 8; end < whole.length; end += 7)
    await read(whole.subarray(0, end), "a.png").catch(({ message }) => assert.match(message, /^a.png/));
});

// ---- rich text ---------------------------------------------------------------------------------------

const FLAT = "{\\fonttbl\\f0\\fswiss\\fcharset0 Helvetica;\\f1\\fnil\\fcharset129 Gothic;\\f2\\fcharset1 X;}";
const GROUPS = "{\\fonttbl{\\f0\\fcharset0 Times;}{\\f1\\fcharset204 Cyr;}{\\f2\\fcharset77 Mac;}}";
const SAID = "\\f0 \\'93Hello\\'94 \\'97 it\\'92s";
const RICH = [
  [`\\ansicpg949${FLAT}${SAID} \\f1\\'bc\\'b3 \\f2\\'bc\\'b3`, "“Hello” — it’s 설 설"],
  [`\\ansicpg1252${GROUPS}\\f1\\'cf\\'f0 \\f0\\'e9\\f2\\'8e`, "Пр éé"],
  [`\\ansicpg1252\\deff1${GROUPS}\\'cf{\\f0\\'e9}\\f0\\plain\\'f0`, "Пéр"],
];

test("the characters of rich text are those of its fonts, with or without braces", async () => {
  for (const [source, text] of RICH) {
    const { found } = await read(`{\\rtf1\\ansi${source}}`, "a.rtf");
    assert.equal(textOf(found), text, source);
  }
});

// ---- lore --------------------------------------------------------------------------------------------

const V3_BOOK = {
  spec: "lorebook_v3",
  data: {
    entries: [{ name: "Tower", keys: ["/to+wer/giu", "keep"], content: "@@depth 4\n@@role x\nNo door." }],
  },
};
const AGNAI = {
  kind: "memory",
  name: "Town",
  entries: [
    {
      name: "Tower",
      entry: "No door.",
      keywords: ["/to+wer/i", "keep"],
      priority: 100,
      weight: 1,
      enabled: true,
    },
    { name: "Off", entry: "x", keywords: [], enabled: false },
  ],
};

test("lore of a card editor and of Agnai becomes ours", async () => {
  for (const [file, off] of [
    [V3_BOOK, 0],
    [AGNAI, 1],
  ]) {
    const { found, warnings } = await read(file);
    const told = found.lore.map(({ name, text, keys, order }) => [name, text, keys, order]);
    assert.deepEqual([told, found.off, warnings], [[["Tower", "No door.", "/to+wer/i\nkeep", 100]], off, []]);
  }
});

const world = (keys) => ({ entries: { 0: { key: keys, comment: "Door", content: "Text." } } });

const KEYS = {
  "/a b/gimsuy": "/a b/ims",
  "/é\\u00e9\\u{1F98A}/u": "/é\\x{00e9}\\x{1F98A}/",
  "/a\\/b/": "/a\\/b/",
  "/a/b/": "/\\/a\\/b\\//i", // no expression for SillyTavern, since a slash in it is not escaped
  "a, b": "a, b",
  "/[^]/": "/[\\s\\S]/",
  "/\\p{Script=Greek}/u": "/\\p{Greek}/",
  "two\nlines": "two lines",
};
const LEFT = [
  "/(?=a)b/",
  "/(?<!a)b/i",
  "/(a)\\1/",
  "/a{1001}/",
  "/(/",
  "/a/gg",
  "/[]/",
  `/${"a".repeat(500)}/`,
];

test("a lorebook in a picture is lore", async () => {
  const { found } = await read(png({ naidata: JSON.stringify(LOREBOOK) }), "town.png");
  assert.deepEqual([found.lore.map(({ name }) => name), found.off], [["Harbour", "Mara"], 1]);
});

test("keys are ours, and what we do not have is left out with a warning of its entry", async () => {
  const { found, warnings } = await read(world(Object.keys(KEYS)));
  assert.deepEqual(found.lore[0].keys.split("\n"), Object.values(KEYS));
  assert.deepEqual(warnings, []);
  const wrong = await read(world([...LEFT, "kept"]));
  assert.equal(wrong.found.lore[0].keys, "kept");
  assert.equal(wrong.warnings.length, LEFT.length);
  for (const warning of wrong.warnings) assert.match(warning, /^“Door”: its key \/.+ is left out: it /s);
  const many = await read(world(Array.from({ length: 120 }, (_, i) => `key ${i}`)));
  assert.deepEqual(many.warnings, ["“Door”: it has 120 keys; the first 100 are used"]);
});

test("keys in one text are apart at commas, but not within an expression", async () => {
  const { found } = await read(world("Mara, /a{1,2}/i ,smith, /x,y/"));
  assert.equal(found.lore[0].keys, "Mara\n/a{1,2}/i\nsmith\n/x,y/");
});

// ---- files of no such kind ---------------------------------------------------------------------------

const bundle = (...paths) => new Blob(zipped(Object.fromEntries(paths.map((path) => [path, "x"]))));
const bytes = (text) => Buffer.from(text, "latin1");
const REFUSED = {
  "book.pdf": [bytes("%PDF-1.7\n"), /a PDF/],
  "book.md": [bytes("%PDF-1.7\n"), /a PDF/],
  "old.doc": [bytes("\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"), /an old Word file/],
  "secret.docx": [bytes("\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"), /with a password/],
  "book.mobi": [Buffer.concat([Buffer.alloc(60), bytes("BOOKMOBI")]), /Kindle/],
  "photo.txt": [bytes("\xff\xd8\xff\xe0\0\x10JFIF"), /a picture/],
  "a.bmp": [bytes("BM\x36\0\0\0\0\0"), /a picture \(BMP\)/],
  "a.gif": [bytes("GIF89a\x10\0\x10\0"), /a picture \(GIF\)/],
  "a.wav": [bytes("RIFF\x24\0\0\0WAVEfmt "), /a recording/],
  "a.mp4": [bytes("\0\0\0\x20ftypisom"), /a film/],
  "a.otf": [bytes("OTTO\0\x0b"), /a font/],
  "a.svg": ["<!-- x -->\n<svg viewBox='0 0 1 1'><path/></svg>", /a picture \(SVG\)/],
  "a.rss": ["<rss xmlns:a='b' version='2.0'></rss>", /an XML file/],
  "a.gz": [bytes("\x1f\x8b\x08"), /gzip/],
  "model.gguf": [bytes("GGUF\x03"), /a model/],
  "feed.xml": ["<?xml version='1.0'?><rss/>", /an XML file/],
  "book.pages": [bundle("Index/Document.iwa", "Metadata/Properties.plist"), /a Pages document/],
  "book.docx": [bundle("Index/Document.iwa"), /a Pages document/],
  "sums.xlsx": [bundle("[Content_Types].xml", "xl/workbook.xml"), /a spreadsheet/],
  "mara.charx": [bundle("card.json"), /a character \(CHARX\)/],
  "all.zip": [bundle("a.txt"), /a zip file of a kind/],
  "data.md": ['{"a": 1}', /expected/],
  "list.txt": ["[1, 2]", /expected/],
  "chat.jsonl": ['{"user_name": "x"}\n{"mes": "y"}', /expected/],
  "cut.txt": ['[{"name": "a", "text', /expected/],
};

test("a file that is no text for a story is refused by what it is, whatever its name", async () => {
  for (const [name, [content, message]] of Object.entries(REFUSED))
    await assert.rejects(read(content, name), (error) => {
      assert.match(error.message, message);
      assert.ok(error.message.startsWith(name), error.message);
      return true;
    });
});

test("data never becomes a story's text", () => {
  const values = [1, "a", null, true, [], {}, [1], { a: [] }, { text: "Once" }];
  return Promise.all(
    values.map(async (value, i) => {
      if (Object(value) !== value) return;
      for (const space of [0, 2]) await assert.rejects(read(JSON.stringify(value, null, space), `${i}.md`));
    }),
  );
});

const PROSE = ["[ A storm comes up. ]", "{ he said", '"Hello."', "[", "12", "null", "<b>x</b>", "{\\rtfm}"];
const SIGNS = [
  "%PDF-",
  "TPZ",
  "GIF8",
  "BM",
  "Rar!",
  "ID3",
  "OggS",
  "fLaC",
  "SQLite format 3",
  "OTTO",
  "GGUF",
];
const WITHIN = ["# GREAT WAVE OVER KYOTO", "A SPIDERWEBP", "The ftyp", `${"a".repeat(60)}BOOKMOBI`];

test("prose that begins like data, a picture or a font is a text", async () => {
  for (const text of [...PROSE, ...SIGNS.map((sign) => `${sign}s were late.`), ...WITHIN]) {
    const { found } = await read(text, "a.txt");
    assert.equal(textOf(found), text);
  }
});
