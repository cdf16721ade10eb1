// The stories of this browser: opening, making, finding and deleting them, one tab at a time.

import { commit, forget, goTo } from "./history.js";
import { followModel } from "./models.js";
import { refresh, session } from "./session.js";
import { finished, leaveAll, stopAll } from "./stopping.js";
import * as store from "./store.js";
import { hold, take, watchTabs } from "./tabs.js";
import { newStory, textOf } from "./tree.js";
import { changed } from "./ui.js";

export async function begin() {
  await store.open();
  session.stories = await store.stories();
  const last = store.read("studio.story", null);
  const found = session.stories.find((story) => story.id === last) ?? session.stories[0];
  await (found ? openStory(found.id) : createStory());
}

export async function openStory(id) {
  commit();
  if (!(await store.flush())) return; // what is stored is older than what is here
  const story = await store.load(id);
  if (!story) return;
  for (const node of Object.values(story.nodes)) if (node.state === "running") node.state = "interrupted";
  show(story);
}

watchTabs({
  lost() {
    session.elsewhere = true;
    changed("story", "server");
  },
  async give() {
    await finished();
    commit();
    return store.flush();
  },
  reopen: () => openStory(session.story.id),
});

/** Takes the story over from the other tab, once that has stored its text. */
export async function writeHere() {
  await take();
  await openStory(session.story.id);
}

function show(story) {
  stopAll();
  session.elsewhere = false;
  hold(story.id);
  Object.assign(session, { story, point: null, error: null, compare: null, prompt: null });
  forget();
  store.save("studio.story", story.id);
  refresh(textOf(story).length);
  followModel();
}

export async function createStory(name = "Untitled", kind = "story") {
  const story = newStory(name, kind);
  await adopt(story);
}

/** Stores a new or imported story and opens it. */
export async function adopt(story) {
  commit();
  store.keep(story, Object.values(story.nodes));
  await store.flush();
  session.stories = await store.stories();
  show(story);
  changed("stories");
}

/** Finds the words in all nodes, and in the names and tags of stories. */
export async function search(words) {
  await store.flush();
  const has = (text) => text?.toLowerCase().includes(words.toLowerCase());
  const names = session.stories.filter(({ name, tags }) => has(name) || has(tags));
  return [...names.map(({ id }) => ({ story: id })), ...(await store.find(({ text }) => has(text)))];
}

export async function openPlace({ story, id }) {
  if (story !== session.story.id) await openStory(story);
  if (id && session.story.nodes[id]) goTo(id);
}

export async function deleteStory() {
  if (session.elsewhere) await take();
  const { story } = session;
  await finished(leaveAll); // or what still streams would bring it back
  commit();
  await store.remove(story.id);
  session.stories = await store.stories();
  if (session.story === story)
    await (session.stories.length ? openStory(session.stories[0].id) : createStory());
  changed("stories");
}
