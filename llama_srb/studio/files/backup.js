// All stories as one file, and back; whether the browser may delete them by itself.

import { list, openStory } from "../story/library.js";
import { fail, say } from "../story/session.js";
import * as store from "../story/store.js";
import { newId, shownName, titled } from "../story/tree.js";
import { commit } from "../text/history.js";
import { Button, download, html, useEffect, useState } from "../ui/ui.js";
import { toBackup } from "./exchange.js";

async function backUp() {
  commit();
  await store.flush();
  const heads = await store.stories();
  const all = [];
  for (const { id } of heads) {
    const stored = await store.load(id).catch(fail); // of a newer page
    if (!stored) continue; // another tab has removed it meanwhile
    const { base: _, ...story } = stored;
    all.push(story);
  }
  const day = new Date().toISOString().slice(0, 10);
  download(`stories ${day}.json`, "application/json", ...toBackup(all));
}

/** Adds the stories of a backup, and returns them; those that are here unchanged are left out, a changed one
    comes beside. */
export async function bringBack(stories) {
  const here = new Map((await store.stories()).map((head) => [head.id, head]));
  const missing = stories.filter(({ id, changed }) => here.get(id)?.changed !== changed);
  for (const story of missing) {
    const name = titled(shownName(story), " (from a backup)");
    if (here.has(story.id)) Object.assign(story, { id: newId(), name });
    await store.replace(story);
  }
  await list();
  if (missing.length) await openStory((missing.find(({ trashed }) => !trashed) ?? missing[0]).id);
  say(`${missing.length} of ${stories.length} stories brought back`);
  return missing;
}

/** Asks the browser to keep the stories when it needs room; it decides. False where it cannot be asked. */
export const keepForGood = async () => (await navigator.storage?.persist?.()) ?? false;

export function Backup() {
  const [isSafe, setSafe] = useState(true);
  useEffect(() => {
    (navigator.storage?.persisted?.() ?? Promise.resolve(false)).then(setSafe);
  }, []);
  return html`<div class="tools"><${Button} label="Back up all" about="Downloads all stories as one file"
      onClick=${backUp} /></div>
    ${
      !isSafe &&
      html`<p class="hint">This browser may delete stories when its disk is full.
        Back them up now and then.</p>`
    }`;
}
