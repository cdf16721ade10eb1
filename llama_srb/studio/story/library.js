// The stories of this browser: opening, making, finding and deleting them, one tab at a time.

import { partsOf } from "../background/parts.js";
import { changeParts } from "../background/reads.js";
import { finished, leaveAll, stopAll } from "../candidates/stopping.js";
import { endBeforeNotes } from "../files/paragraphs.js";
import { followModel } from "../server/models.js";
import { commit, keepSteps, placeOfCaret, recall } from "../text/history.js";
import { changed } from "../ui/ui.js";
import { caretOf, keepCaret } from "./carets.js";
import { fail, nameByItsWords, nameStory, refresh, say, session, setPoint } from "./session.js";
import * as store from "./store.js";
import { hold, take, watchTabs } from "./tabs.js";
import { newStory, pathTo, placeAfter, shownName, textOf, withoutReturns } from "./tree.js";

/** @import { Lore } from "../files/exchange.js" */
/** @import { Shown } from "./session.js" */
/** @import { Head, Story } from "./tree.js" */

export async function begin() {
  await store.open();
  await list();
  const last = store.read("studio.story", null);
  const found = session.stories.filter(({ id }) => id === last);
  /** @type {Shown | null} */
  let refusal = null; // of a story that cannot be opened; another one is
  for (const { id } of [...found, ...session.stories]) {
    if (session.story) break;
    await openStory(id);
    refusal ??= session.error;
  }
  if (!session.story) await createStory();
  if (refusal) fail(refusal);
}

/** Reads the list of stories again. */
export async function list() {
  const all = await store.stories();
  session.stories = all.filter(({ trashed }) => !trashed);
  session.trash = all.filter(({ trashed }) => trashed);
  changed("stories");
}

let opening = 0; // of several stories that are opened at once the last one counts

/** @type {(id: string) => Promise<void>} */
export async function openStory(id) {
  const turn = ++opening;
  if (id === session.story?.id) await finished(leaveAll);
  commit();
  keepSteps();
  const at = session.story?.changed;
  if (!(await store.flush())) return; // what is stored is older than what is here
  const story = await store.load(id).catch(fail);
  if (!story) return;
  for (const node of Object.values(story.nodes)) {
    if (node.state === "running") node.state = "interrupted";
    Object.assign(node, withoutReturns(node)); // an older version has stored some
  }
  const steps = await store.historyOf(id);
  commit(); // what was typed meanwhile
  if (turn !== opening) return;
  if (id === session.story?.id && at !== session.story.changed) await openStory(id);
  else show(story, steps);
}

watchTabs({
  lost() {
    session.elsewhere = true;
    changed("story", "server");
  },
  async give() {
    await finished();
    commit();
    keepPlace(); // with which the other tab shows the candidates there
    await keepSteps();
    return store.flush();
  },
  reopen: () => openStory(session.story.id),
});

/** Takes the story over from another tab that has it, once that has stored its text. */
export async function writeHere() {
  if (!session.elsewhere) return;
  await take();
  await openStory(session.story.id);
}

/** Notes where the caret of the open story is. */
function keepPlace() {
  const { story, at, text, elsewhere } = session;
  if (story && !elsewhere) keepCaret(story.id, at < text.length ? at : null);
}
store.leaving.push(keepPlace);
globalThis.document?.addEventListener("visibilitychange", keepPlace); // a phone may end a hidden page

/** @type {(story: Story, steps?: any) => void} */
function show(story, steps = null) {
  stopAll();
  keepPlace();
  keepSteps();
  session.elsewhere = false;
  hold(story.id);
  Object.assign(session, { story, error: null, compare: null, prompt: null, reads: null });
  setPoint(null);
  session.conflict = null; // the next exchange finds it again
  recall(steps);
  store.save("studio.story", story.id);
  const caret = caretOf(story.id) ?? (story.kind === "chat" ? null : endBeforeNotes(textOf(story)));
  refresh(caret);
  if (caret !== null) setPoint(placeOfCaret());
  followModel();
}

/** @type {(name?: string, kind?: string) => Promise<void>} */
export async function createStory(name = "Untitled", kind = "story") {
  const story = newStory(name, kind);
  await adopt(story);
}

/** Opens a new or imported story and stores it. It opens at once, so that what is typed next goes into it.
    @type {(story: Story) => Promise<void>} */
export async function adopt(story) {
  opening++;
  commit();
  store.keep(story, Object.values(story.nodes));
  show(story);
  await store.flush();
  await list();
}

/** Puts another device's version in place of the open story as it was at its time `was`; the caret stays
    between its characters. False if the writer has changed the story since: nothing waits here, so that no
    key comes in between.
    @type {(story: Story, was?: number) => boolean} */
export function replaceOpen(story, was) {
  commit();
  const { story: old, text, at, point } = session;
  if (old.changed !== was || session.runs.size) return false;
  const gone = Object.values(old.nodes).filter(({ id }) => !story.nodes[id]);
  show(story);
  store.keepAsIs(story, [...Object.values(story.nodes), ...gone.map((node) => ({ ...node, gone: true }))]);
  store.keepHistory({ story: story.id }); // which begins anew
  if (pathTo(story).some(({ id }) => id === point)) setPoint(point);
  refresh(placeAfter(at, text, session.text));
  return true;
}

/** Changes the name or the tags of the open story.
    @type {(fields: Partial<Story>) => Promise<void>} */
export async function rename(fields) {
  await writeHere();
  await nameStory(fields);
}

/** Adds entries to the lore of the open story; `off`: how many of the file were left out, being off.
    @type {(found: Lore) => Promise<void>} */
export async function addLore({ lore, off }) {
  await writeHere();
  const { story } = session;
  changeParts({ lore: [...partsOf(story).lore, ...lore] });
  const left = off ? `; ${off} more ${off === 1 ? "is" : "are"} off and left out` : "";
  const added = `${lore.length} ${lore.length === 1 ? "entry" : "entries"} added`;
  say(`${added} to the lore of “${shownName(story)}”${left}`);
}

/** Moves the open story to the trash. */
export async function discard() {
  if (session.elsewhere) await take();
  const { story } = session;
  await finished(leaveAll); // or what still streams would change it again
  commit();
  nameByItsWords(); // the list of the trash does not read it
  story.trashed = Date.now(); // what is typed until another story is open goes into the trash, too
  await mark(story);
  if (session.story === story)
    await (session.stories.length ? openStory(session.stories[0].id) : createStory());
  say(`“${story.name}” is in the trash`);
}

/** Takes a story out of the trash and opens it.
    @type {(head: Head) => Promise<void>} */
export async function restore(head) {
  if (head.id === session.story.id) session.story.trashed = null; // it could not be stored and left
  await mark({ ...head, trashed: null });
  await openStory(head.id);
}

/** @type {(head: Head) => Promise<void>} */
async function mark(head) {
  store.keep(head);
  await store.flush();
  await list();
}

/** Removes stories of the trash for ever.
    @type {(heads: Head[]) => Promise<void>} */
export async function removeForever(heads) {
  for (const { id, base } of heads) {
    await store.remove(id);
    if (base) store.save(REMOVED, [...store.read(REMOVED, []), id]);
  }
  await list();
}

/** Stories that are removed here, but not on the server yet. */
export const REMOVED = "studio.removed";
