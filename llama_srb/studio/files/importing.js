// Files become stories or lore: by the button Import, or dropped on the page. What an import did, and what it
// has left out, stands above the text until it is read, with a way back; after a reload, too.

import { partsOf } from "../background/parts.js";
import { changeParts } from "../background/reads.js";
import { leadToText } from "../candidates/walking.js";
import { addLore, adopt, createStory, list, openStory, removeForever } from "../story/library.js";
import { fail, say, session } from "../story/session.js";
import * as store from "../story/store.js";
import { countOfWords, textOf } from "../story/tree.js";
import { Button, changed, html, useChanges, useState } from "../ui/ui.js";
import { bringBack } from "./backup.js";
import { fromFile } from "./exchange.js";

/** @import { Lore } from "./exchange.js" */
/** @import { Story } from "../story/tree.js" */

/** What an import did. `stories`: those that are new, as they were; `lore`: ids of entries that are new;
    `before`: the story that was open. Of an export they are empty.
    @typedef {object} Report
    @property {string} text
    @property {string[]} warnings the first ones
    @property {number} more how many others there are
    @property {string} before
    @property {{id: string, at: number}[]} stories
    @property {string[]} lore */

const SHOWN = 8; // warnings of one file
const REPORTS = "studio.imports";

/** @type {Report[]} */
let reports = store.read(REPORTS, []);
let isReading = "";

/** @type {(next: Report[], name?: string) => void} */
function show(next, name = "") {
  reports = next;
  isReading = name;
  store.save(REPORTS, reports);
  changed("imported");
}

let last = Promise.resolve();

/** An import and what takes one back are done one after the other: each opens a story.
    @type {(act: () => Promise<void>) => Promise<void>} */
const inTurn = (act) => (last = last.then(act, act));

/** Opens the stories of files, or adds what else they have; files of other kinds are reported.
    @type {(files: File[]) => Promise<void>} */
export const importFiles = (files) => inTurn(() => take(files));

/** @type {(files: File[]) => Promise<void>} */
async function take(files) {
  fail(null); // an old error is none of this file
  const unread = reports;
  const errors = [];
  /** @type {Report[]} */
  const done = [];
  for (const file of files) {
    show([...done, ...unread], file.name);
    try {
      /** @type {string[]} */
      const warnings = [];
      const did = await took(file.name, await fromFile(file, warnings));
      done.unshift({ ...did, ...shown(warnings) });
    } catch (error) {
      errors.push(error.message);
    }
  }
  show([...done, ...unread]);
  if (errors.length) fail({ message: errors.join("\n") });
}

/** Says what is no footnote in a file that is exported, instead of what was said of it before.
    @type {(file: string, warnings: string[]) => void} */
export function tellExport(file, warnings) {
  const text = `${file} is exported. What is no footnote stays as it is in the text:`;
  const others = reports.filter((one) => one.text !== text);
  const report = { text, ...shown(warnings), before: "", stories: [], lore: [] };
  show(warnings.length ? [report, ...others] : others);
}

/** @type {(warnings: string[]) => Pick<Report, "warnings" | "more">} */
const shown = (warnings) => ({
  warnings: warnings.slice(0, SHOWN),
  more: Math.max(0, warnings.length - SHOWN),
});

/** @type {(name: string, found: Story | Story[] | Lore) => Promise<Omit<Report, "warnings" | "more">>} */
async function took(name, found) {
  const before = session.story.id;
  if (Array.isArray(found)) {
    const missing = await bringBack(found);
    const text = `${name}: ${missing.length} of ${found.length} stories brought back.`;
    return { text, before, stories: missing.map(asItIs), lore: [] };
  }
  if ("lore" in found) {
    await addLore(found);
    return { text: `${name}: ${session.said}.`, before, stories: [], lore: found.lore.map(({ id }) => id) };
  }
  await adopt(found);
  say(`“${found.name}” is imported`);
  const text = `${name} is open as a new story, “${found.name}”: ${factsOf(found)}.`;
  return { text, before, stories: [asItIs(found)], lore: [] };
}

/** @type {(story: Story) => {id: string, at: number}} */
const asItIs = ({ id, changed: at }) => ({ id, at });

/** @type {(count: number, one: string, many?: string) => string} */
const counted = (count, one, many = `${one}s`) => `${count} ${count === 1 ? one : many}`;

/** @type {(story: Story) => string} */
function factsOf(story) {
  const { memory, lore } = partsOf(story);
  const text = textOf(story);
  const words = countOfWords(text);
  const chapters = text.match(/^# /gm)?.length ?? 0;
  const facts = [
    counted(words, "word"),
    chapters && counted(chapters, "chapter"),
    memory.trim() && "a memory",
    lore.length && `${counted(lore.length, "entry", "entries")} of lore`,
  ];
  return facts.filter(Boolean).join(", ");
}

/** Takes an import back: removes its stories, and opens the one that was open before. One that was changed
    since goes into the trash; returns their names.
    @type {(report: Report) => Promise<string[]>} */
async function takeBack({ before, stories, lore }) {
  const trashed = [];
  if (lore.length) {
    await withoutLore(before, new Set(lore));
    return [];
  }
  const isThere = session.stories.some(({ id }) => id === before);
  if (stories.some(({ id }) => id === session.story.id)) await (isThere ? openStory(before) : createStory());
  for (const { id, at } of stories) {
    const head = (await store.stories()).find((one) => one.id === id);
    if (head?.changed === at) await removeForever([head]);
    else if (head) {
      store.keep({ ...head, trashed: Date.now() });
      trashed.push(head.name);
    }
  }
  await store.flush();
  await list();
  return trashed;
}

/** @type {(id: string, added: Set<string>) => Promise<void>} */
async function withoutLore(id, added) {
  if (id !== session.story.id) await openStory(id); // which may be gone
  if (id !== session.story.id) return;
  changeParts({ lore: partsOf(session.story).lore.filter((one) => !added.has(one.id)) });
}

/** What the last imports did: the newest one, and the others behind a button. */
export function Imported() {
  useChanges("imported");
  const [isAll, setAll] = useState(false);
  const undo = (report) => (event) =>
    inTurn(async () => {
      if (!reports.includes(report)) return; // a second click
      show(reports.filter((one) => one !== report));
      const trashed = await takeBack(report);
      const names = trashed.map((name) => `“${name}”`).join(", ");
      say(`the import is undone${names && `; in the trash, being changed since: ${names}`}`);
      leadToText(event);
    });
  const read = (report) => (event) => {
    show(reports.filter((one) => one !== report));
    leadToText(event);
  };
  return html`
    ${isReading && html`<p class="notice" role="status">Reading ${isReading}…</p>`}
    ${reports.slice(0, isAll ? undefined : 1).map(
      (report, i) => html`<div class="notice imported" role="status" key=${reports.length - i}>
      <div><p>${report.text}</p>${
        report.warnings.length > 0 &&
        html`<ul>${report.warnings.map((one) => html`<li key=${one}>${one}</li>`)}
          ${report.more > 0 && html`<li>… and ${report.more} more</li>`}</ul>`
      }</div>
      ${
        i === 0 &&
        reports.length > 1 &&
        html`<${Button} label=${`${reports.length - 1} more`} about="What was said before"
          pressed=${isAll} onClick=${() => setAll(!isAll)} />`
      }
      ${
        report.stories.length + report.lore.length > 0 &&
        html`<${Button} label="Undo the import" onClick=${undo(report)} />`
      }
      <${Button} label="Dismiss" icon="✕" onClick=${read(report)} /></div>`,
    )}`;
}

const hasFiles = ({ dataTransfer }) => dataTransfer?.types.includes("Files");

/** Imports what is dropped anywhere on the page. Browsers by themselves do nothing, or leave the page for the
    file. */
export function takeDrops() {
  addEventListener("dragover", (event) => hasFiles(event) && event.preventDefault());
  addEventListener("drop", (event) => {
    if (!hasFiles(event)) return;
    event.preventDefault();
    importFiles([...(event.dataTransfer?.files ?? [])]);
  });
}
