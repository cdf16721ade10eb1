// Files become stories or lore: by the button Import, or dropped on the page. What an import did, and what it
// has left out, stands above the text until it is read, with a way back.

import { partsOf } from "../background/parts.js";
import { changeParts } from "../background/reads.js";
import { addLore, adopt, createStory, list, openStory, removeForever } from "../story/library.js";
import { fail, say, session } from "../story/session.js";
import * as store from "../story/store.js";
import { textOf } from "../story/tree.js";
import { Button, changed, html, useChanges } from "../ui/ui.js";
import { bringBack } from "./backup.js";
import { fromFile } from "./exchange.js";

/** @import { Lore } from "./exchange.js" */
/** @import { Story } from "../story/tree.js" */

/** What an import did. `undo`: takes it back.
    @typedef {{text: string, warnings: string[], undo: () => Promise<unknown>}} Report */

const SHOWN = 8; // warnings of one file

/** @type {Report[]} */
let reports = [];
let isReading = "";

/** @type {(next: Report[], name?: string) => void} */
function show(next, name = "") {
  reports = next;
  isReading = name;
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
      done.unshift({ ...(await took(file.name, await fromFile(file, warnings))), warnings });
    } catch (error) {
      errors.push(error.message);
    }
  }
  show([...done, ...unread]);
  if (errors.length) fail({ message: errors.join("\n") });
}

/** @type {(name: string, found: Story | Story[] | Lore) => Promise<Omit<Report, "warnings">>} */
async function took(name, found) {
  const before = session.story.id;
  if (Array.isArray(found)) {
    const missing = await bringBack(found);
    const text = `${name}: ${missing.length} of ${found.length} stories brought back.`;
    return { text, undo: removal(missing, before) };
  }
  if ("lore" in found) {
    await addLore(found);
    return { text: `${name}: ${session.said}.`, undo: () => withoutLore(before, found) };
  }
  await adopt(found);
  say(`“${found.name}” is imported`);
  return {
    text: `${name} is open as a new story, “${found.name}”: ${factsOf(found)}.`,
    undo: removal([found], before),
  };
}

/** @type {(count: number, one: string, many?: string) => string} */
const counted = (count, one, many = `${one}s`) => `${count} ${count === 1 ? one : many}`;

/** @type {(story: Story) => string} */
function factsOf(story) {
  const { memory, lore } = partsOf(story);
  const text = textOf(story);
  const words = text.match(/\S+/g)?.length ?? 0;
  const chapters = text.match(/^# /gm)?.length ?? 0;
  const facts = [
    counted(words, "word"),
    chapters && counted(chapters, "chapter"),
    memory.trim() && "a memory",
    lore.length && `${counted(lore.length, "entry", "entries")} of lore`,
  ];
  return facts.filter(Boolean).join(", ");
}

/** Removes imported stories, and opens the one that was open before. One that was changed since goes into the
    trash.
    @type {(stories: Story[], before: string) => () => Promise<void>} */
function removal(stories, before) {
  const imported = stories.map(({ id, changed: at }) => ({ id, at })); // what is open changes
  return async () => {
    const isThere = session.stories.some(({ id }) => id === before);
    if (imported.some(({ id }) => id === session.story.id))
      await (isThere ? openStory(before) : createStory());
    for (const { id, at } of imported) {
      const head = (await store.stories()).find((one) => one.id === id);
      if (head?.changed === at) await removeForever([head]);
      else if (head) store.keep({ ...head, trashed: Date.now() });
    }
    await store.flush();
    await list();
  };
}

/** @type {(id: string, found: Lore) => Promise<void>} */
async function withoutLore(id, { lore }) {
  if (id !== session.story.id) await openStory(id); // which may be gone
  if (id !== session.story.id) return;
  const added = new Set(lore.map((one) => one.id));
  changeParts({ lore: partsOf(session.story).lore.filter((one) => !added.has(one.id)) });
}

/** How many warnings are not shown. */
const more = ({ warnings }) => warnings.length - SHOWN;

/** What the last imports did. */
export function Imported() {
  useChanges("imported");
  const undo = ({ undo }) =>
    inTurn(async () => {
      if (!reports.some((one) => one.undo === undo)) return; // a second click
      show(reports.filter((one) => one.undo !== undo));
      await undo();
      say("the import is undone");
    });
  const read = (report) => show(reports.filter((one) => one !== report));
  return html`
    ${isReading && html`<p class="notice" role="status">Reading ${isReading}…</p>`}
    ${reports.map(
      (report, i) => html`<div class="notice imported" role="status" key=${reports.length - i}>
      <div><p>${report.text}</p>${
        report.warnings.length > 0 &&
        html`<ul>${report.warnings.slice(0, SHOWN).map((one) => html`<li key=${one}>${one}</li>`)}
          ${more(report) > 0 && html`<li>… and ${more(report)} more</li>`}</ul>`
      }</div>
      <${Button} label="Undo the import" onClick=${() => undo(report)} />
      <${Button} label="Dismiss" icon="✕" onClick=${() => read(report)} /></div>`,
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
