// What a request says: the prompt, the lengths, the settings of each candidate and of all of them together.

import "./page.js";
import assert from "node:assert/strict";
import { beforeEach, test } from "node:test";
import { newEntry, readParts, storyField } from "#studio/background/parts.js";
import { body, samplingOf } from "#studio/candidates/request.js";
import { passageIn, rewriteFields } from "#studio/candidates/rewrite.js";
import { stopAll } from "#studio/candidates/stopping.js";
import { DEFAULTS, session } from "#studio/story/session.js";
import { addNode, cutAt, hashed, heldBack, move, newStory, textOf } from "#studio/story/tree.js";
import { linesOf, textsOf } from "#studio/ui/fields.js";
import { eachSeed, retype } from "./trees.js";

const [BEFORE, PASSAGE] = ["Once upon a time, there was a little fox.", " He liked to play in the sun."];
const BEHIND = ' One day, he met a bird. The bird was sad. The fox said, "Do not cry." They became friends.';
const STORY = BEFORE + PASSAGE + BEHIND;

/** The fields as the server reads them: without those that are undefined. */
const sent = (fields) => JSON.parse(JSON.stringify(fields));

function storyOf(text) {
  const story = newStory();
  retype(story, text);
  return (session.story = story);
}

const settings = (fields) => Object.assign(session.settings, structuredClone(fields));

test("what is banned in the story or in all stories is banned in any case", () => {
  const story = storyOf("Once");
  assert.equal(body(story, story.current, 4).banned_strings, undefined);
  story.banned = "Suddenly\nÜber den Fluss\n";
  settings({ banned: "suddenly\na\\nb\n" });
  const { banned_strings } = body(story, story.current, 4);
  const ascii = ["suddenly", "a\nb"];
  const other = ["Über den fluss", "über den fluss", "ÜBER DEN FLUSS"].map((one) =>
    one.replace(/[A-Z]/g, (x) => x.toLowerCase()),
  );
  assert.deepEqual(new Set(banned_strings), new Set([...ascii, ...other]));
});

beforeEach(() => {
  settings(DEFAULTS);
  Object.assign(session, { story: null, models: [], reads: null });
});

test("no escape of the text reaches a prompt", () => {
  const [text, seen] = ["\\# One\n\\*a\\* C:\\b. ", "# One\n*a* C:\\b."];
  const story = storyOf(text);
  assert.equal(body(story, cutAt(story, heldBack(story, Infinity)).id, 1).prompt, `${seen} `);
  const all = `${text}A \\*b\\* c. Then \\*d\\* e.`;
  const rewrite = rewriting(all, text.length, all.indexOf(" Then"));
  assert.deepEqual([rewrite.prompt, rewrite.rank_by.following.text], [`${seen} `, " Then *d* e."]);
});

// ---- rewrites ----------------------------------------------------------------------------------------

/** The fields for n rewrites of the characters of a text that are selected. */
function rewriting(text, from, to, n = 2) {
  const [begin, end] = passageIn(text, from, to);
  const story = storyOf(text);
  return sent(rewriteFields(story, cutAt(story, begin).id, text.slice(begin, end), n));
}

const SENTENCES = {
  " “Run!” he said.": 1,
  " Well... maybe.": 1,
  " Mr. Fox met Dr. Hen.": 1,
  " He saw J.R. Fox, e.g. at home.": 1,
  " He ran to No. 5 of Main St. on Oct. 3.": 1,
  " She said no. 5 foxes ran.": 1, // as the server reads it
  " Was it No. 5? No. He ran.": 3,
  " “Run!” He ran. Where?!": 3,
  "\n\nThe bird\n\nIt sang.": 2,
  "「走れ。」と彼は言った。": 1,
  "走った。寝た。": 2,
};

for (const [passage, count] of Object.entries(SENTENCES))
  test(`a rewrite has as many sentences as the passage: ${JSON.stringify(passage)}`, () => {
    const to = (BEFORE + passage).length;
    const { prompt, end, token_healing } = rewriting(
      BEFORE + passage + BEHIND,
      to - passage.trimStart().length,
      to,
    );
    assert.deepEqual(end, { sentences: count });
    const gap = /^\s*/.exec(passage)[0];
    assert.equal(prompt, BEFORE + gap, "behind a space another word begins");
    assert.equal(token_healing, gap === " " ? true : undefined);
  });

test("a part of a sentence is rewritten without an end, with the text behind it", () => {
  const begin = STORY.indexOf("sun");
  const { prompt, end, rank_by } = rewriting(STORY, begin, begin + "sun".length);
  assert.deepEqual([prompt, end], [STORY.slice(0, begin), undefined]);
  assert.ok(rank_by.following.text.startsWith(". One day,"));
});

test("one rewrite has no order", () => {
  settings({ length: { kind: "sentences", count: 2 } });
  const begin = STORY.indexOf("sun");
  const fields = rewriting(STORY, begin, begin + "sun".length, 1);
  assert.deepEqual([fields.end, fields.rank_by], [undefined, undefined]);
});

const SELECTED = [
  ["a b c", 2, 3, [1, 3]],
  ["a b c", 1, 4, [1, 3]],
  ["a b c", 0, 5, [0, 5]],
  ["a \n b c", 2, 5, [3, 5]],
  ["a   c", 1, 3, null],
];

test("a passage has the spaces before its first word, and none behind it", () => {
  for (const [text, from, to, found] of SELECTED) assert.deepEqual(passageIn(text, from, to), found, text);
});

// ---- candidates --------------------------------------------------------------------------------------

const HELD_BACK = {
  "a girl named": "a girl named",
  "a girl named\t ": "a girl named ",
  "The end.\n\n": "The end.\n\n",
  "The end.\n\n  ": "The end.\n\n",
  "  ": "  ",
};

test("of spaces and tabs behind a word the prompt has one space, of line breaks all", () => {
  for (const [text, prompt] of Object.entries(HELD_BACK)) {
    const story = storyOf(text);
    const { id } = cutAt(story, heldBack(story, Infinity));
    assert.equal(body(story, id, 2).prompt, prompt);
  }
});

test("the prompt of a caret within the text ends there", () => {
  const story = storyOf("One.\nTwo.\nThree.");
  assert.equal(body(story, cutAt(story, 9).id, 2).prompt, "One.\nTwo.");
});

const TOGETHER = { prune: { at: [4], keep: 2 }, finish: { first: 2 }, rank_by: "certainty" };

test("fields about several candidates are sent when there are enough", () => {
  settings({ values: { ...TOGETHER, temperature: 0.5 } });
  for (const [n, fields] of [
    [1, []],
    [2, ["rank_by"]],
    [3, ["finish", "prune", "rank_by"]],
  ]) {
    const said = body(storyOf("Once"), session.story.current, n);
    assert.deepEqual(
      Object.keys(TOGETHER)
        .filter((name) => name in said)
        .sort(),
      fields,
      `n = ${n}`,
    );
    assert.deepEqual([said.n, said.temperature], [n, 0.5]);
  }
});

test("a spread gives each candidate its own value", () => {
  settings({ spreads: { temperature: [0.5, 1.1] }, values: { min_p: 0.1, ...TOGETHER } });
  assert.deepEqual(body(storyOf("Once"), session.story.current, 4).temperature, [0.5, 0.7, 0.9, 1.1]);
  assert.deepEqual(samplingOf(3, 4), { min_p: 0.1, temperature: 1.1 });
  assert.equal(samplingOf(0, 1).temperature, 0.5);
});

test("a chat says who has said what", () => {
  const story = Object.assign(newStory("Chat", "chat"), { system: "Be slow." });
  session.story = story;
  for (const [source, text] of [
    ["user", "Hello"],
    ["model", "Hi"],
    ["edit", ""],
    ["user", "Go on"],
  ])
    story.current = addNode(story, story.current, { source, text }).id;
  assert.deepEqual(body(story, story.current, 2).messages, [
    { role: "system", content: "Be slow." },
    { role: "user", content: "Hello" },
    { role: "assistant", content: "Hi" },
    { role: "user", content: "Go on" },
  ]);
});

test("a candidate that the server has is continued by its name, unless the model reads more", () => {
  const story = storyOf("Once");
  const ref = { id: "r1", index: 2, from: 0, whole: true, before: hashed("Once") };
  const { id } = addNode(story, story.current, { text: " upon", ref });
  const said = sent(body(story, id, 2));
  assert.deepEqual(said.continue, { id: "r1", index: 2 });
  assert.deepEqual([said.prompt, said.token_healing], [undefined, undefined]);
  story.parts = { memory: "It rains." };
  const whole = sent(body(story, id, 2));
  assert.deepEqual([whole.prompt, whole.continue], ["Once upon", undefined]);
  assert.deepEqual(whole.story, { memory: "It rains." });
  assert.deepEqual(sent(body(story, story.root, 2)).token_healing, true, "the writer's word may go on");
});

test("a candidate is continued by its name only behind the text that it was made for", () => {
  const story = storyOf("Once there was a fox.");
  const [text, before] = [" It ran fast and far.", hashed("Once there was a fox.")];
  const tokens = text.match(/ \S+/g).map((one) => ({ text: one }));
  const ref = { id: "r1", index: 0, from: 0, whole: true, before };
  story.current = addNode(story, story.current, { text, tokens, ref }).id;
  const end = story.current;
  retype(story, `${textOf(story)} The end.`);
  const said = () => {
    const { prompt, continue: name } = sent(body(story, story.current, 2));
    return [prompt, name];
  };
  const name = { id: "r1", index: 0 };
  assert.deepEqual(said(), [" The end.", name]);
  const { moves } = retype(story, "Once there was an owl. It ran fast and far. The end.");
  assert.equal(story.nodes[end].parent === story.root, false, "the tail has moved");
  assert.deepEqual(said(), ["Once there was an owl. It ran fast and far. The end.", undefined]);
  for (const [id, to] of moves) move(story, id, to);
  assert.deepEqual(said(), [" The end.", name], "the old piece has its tail again");
  retype(story, "Once there was a fox. It ran! The end.");
  assert.deepEqual(said(), ["! The end.", { id: "r1", index: 0, at: 2 }], "up to the change");
});

test("a request is stopped only while a candidate of it is written", () => {
  const abort = new AbortController();
  const run = { id: null, over: false, nodes: [{ state: "length" }, { state: "stop" }], abort };
  session.runs.add(run);
  stopAll();
  assert.equal(abort.signal.aborted, false, "its end is on its way");
  run.nodes.push({ state: "running" });
  stopAll();
  session.runs.delete(run);
  assert.equal(abort.signal.aborted, true);
});

test("stop strings are lines, in which \\n is a line break", () => {
  settings({ stop: "The end\n\n\\n\\n\na\\\\n" });
  assert.deepEqual(body(storyOf("Once"), session.story.current, 1).stop, ["The end", "\n\n", "a\\n"]);
  eachSeed((random) => {
    const texts = Array.from({ length: 3 }, () => random.words(2) + random.pick(["\\", "\\n", "\\\\n", ""]));
    assert.deepEqual(textsOf(linesOf(texts)), texts);
  });
});

// ---- what else the model reads ---------------------------------------------------------------------------

test("the parts of a story are sent as far as there are some", () => {
  const lore = [
    newEntry({ name: "Fox", text: "A fox.", keys: " fox \n\nvixen", meaning: 60, order: 0 }),
    newEntry({ text: " " }),
    newEntry({ text: "Owl.", always: true }),
  ];
  const parts = { memory: "It rains.", note: { text: "Be slow.", depth: 30 }, lore, budget: 100 };
  assert.deepEqual(storyField({ parts }), {
    memory: "It rains.",
    note: { text: "Be slow.", depth: 30 },
    lore: [
      { name: "Fox", text: "A fox.", keys: ["fox", "vixen"], meaning: 0.6, order: 0 },
      { text: "Owl.", always: true },
    ],
    budget: 100,
  });
  for (const empty of [{}, { parts: {} }, { parts: { note: { text: " ", depth: 3 } } }])
    assert.deepEqual(storyField(empty), {});
});

test("of parts from elsewhere only those of the right types are read", () => {
  const lore = [{ text: "A fox.", keys: ["fox"], order: -1, search: 10, always: "yes", other: 1 }, null];
  const {
    memory,
    summary,
    note,
    budget,
    lore: entries,
  } = readParts({
    memory: {},
    summary: "Once.",
    note: { text: "Be slow.", depth: "3" },
    budget: 1.5,
    lore,
  });
  assert.deepEqual([memory, summary, note, budget], ["", "Once.", { text: "Be slow.", depth: null }, null]);
  const [fox, none] = entries.map(({ id: _, ...entry }) => entry);
  const { id: _, ...usual } = newEntry();
  assert.deepEqual(fox, { ...usual, text: "A fox.", search: 10 });
  assert.deepEqual(none, usual);
});
