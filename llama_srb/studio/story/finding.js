// Words in all stories of this browser: in the texts, in each branch, in names and tags. It works in small
// parts and reads a story once, so that the page answers and a search can begin with each letter.

import { pauses } from "../files/xml.js";
import { select } from "../text/find.js";
import { commit, goTo } from "../text/history.js";
import { partsOf, patternOf } from "../text/places.js";
import { openStory } from "./library.js";
import { isChat, session } from "./session.js";
import { loadTexts } from "./store.js";
import { firstWords, pathTo, textOf } from "./tree.js";

/** @import { Head } from "./tree.js" */

/** A text that is searched: that of the story, or a piece that is not in it now, with its id.
    @typedef {{id?: string, text: string}} Searched */
/** A place with the words; without a text it is the name or the tags.
    @typedef {{story: Head, at: number, length: number} & Partial<Searched>} Found */

const WORK_MS = 15; // after which the page may answer

/** The stories that were read, as they were at that time.
    @type {Map<string, {changed: number, texts: Promise<Searched[]>}>} */
const known = new Map();

/** Forgets the stories, which take room in memory. */
export const forget = () => known.clear();

/** @type {(head: Head) => Promise<Searched[]>} */
async function read(head) {
  try {
    return searchedOf(head.id === session.story.id ? session.story : await loadTexts(head));
  } catch {
    return []; // a newer page has stored it
  }
}

/** The text of the story, which comes first, and the other pieces.
    @type {(story: import("./tree.js").Story) => Searched[]} */
function searchedOf(story) {
  const path = new Set(pathTo(story));
  const others = Object.values(story.nodes).filter((node) => node.text && !path.has(node));
  return [{ text: textOf(story) }, ...others.map(({ id, text }) => ({ id, text }))];
}

/** @type {(head: Head) => Promise<Searched[]>} */
function textsOf(head) {
  const { id } = head;
  const changed = id === session.story.id ? session.story.changed : head.changed;
  const one = known.get(id);
  if (one?.changed === changed) return one.texts;
  const texts = read(head);
  known.set(id, { changed, texts });
  return texts;
}

/** The first words of a story, for one that has no name.
    @type {(head: Head) => Promise<string>} */
export const beginOf = async (head) => firstWords((await textsOf(head))[0]?.text ?? "");

/** The places of these words. `null` comes now and then: a search that nobody waits for can end there.
    @type {(words: string) => AsyncGenerator<Found | null>} */
export async function* search(words) {
  commit();
  const pattern = patternOf(words);
  const pause = pauses(WORK_MS);
  for (const story of [...session.stories]) {
    for (const named of [story.name, story.tags ?? ""])
      if (named.search(pattern) >= 0) {
        yield { story, at: 0, length: 0 };
        break;
      }
    for (const searched of await textsOf(story))
      for (const [begin, part] of partsOf(searched.text)) {
        for (const { index, 0: found } of part.matchAll(pattern)) {
          yield { story, ...searched, at: begin + index, length: found.length };
          const wait = pause();
          if (wait) await wait;
        }
        const wait = pause();
        if (wait) await wait;
        yield null;
      }
  }
}

/** Opens the story, or the branch, at the place.
    @type {(found: Found) => Promise<void>} */
export async function openPlace({ story, id, text, at, length }) {
  if (story.id !== session.story.id) await openStory(story.id);
  if (session.story.id !== story.id) return;
  if (id && session.story.nodes[id]) goTo(id);
  if (text === undefined || isChat()) return;
  const words = text.slice(at, at + length);
  const begin = id && session.story.nodes[id] ? textOf(session.story, id).length - text.length : 0;
  const there = session.text.startsWith(words, begin + at) ? begin + at : session.text.indexOf(words);
  if (there >= 0) select(there, there + length);
}
