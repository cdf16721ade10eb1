// Phrases that no candidate has: a list of the open story, and one of all stories.

import { session, setting } from "../story/session.js";
import * as store from "../story/store.js";
import { linesOf, textsOf } from "../ui/fields.js";
import { changed } from "../ui/ui.js";

/** @import { Story } from "../story/tree.js" */

/** @type {(story: Story) => string[]} */
const listed = ({ banned = "" }) => [...textsOf(banned), ...textsOf(session.settings.banned)];

/** The server bans ASCII letters in any case; other letters have each case in the list.
    @type {(phrase: string) => string[]} */
function cases(phrase) {
  const lower = phrase.toLowerCase();
  const capital = lower.replace(/\p{L}/u, (letter) => letter.toUpperCase());
  const capitals = lower.replace(/(?<![\p{L}\p{M}’'])\p{L}/gu, (letter) => letter.toUpperCase());
  return [phrase, lower, capital, capitals, phrase.toUpperCase()];
}

/** @type {(text: string) => string} */
const folded = (text) => text.replace(/[A-Z]/g, (letter) => letter.toLowerCase());

/** The field of a request that bans them; none, if there are none.
    @type {(story: Story) => {banned_strings?: string[]}} */
export function bannedField(story) {
  const all = new Set(listed(story).flatMap(cases).map(folded));
  return all.size ? { banned_strings: [...all] } : {};
}

/** @type {(phrase: string) => (one: string) => boolean} */
const equals = (phrase) => (one) => one.toLowerCase() === phrase.toLowerCase();

/** @type {(phrase: string) => boolean} */
export const isBanned = (phrase) => listed(session.story).some(equals(phrase));

/** @type {(lines: string) => void} */
export function banInStory(lines) {
  session.story.banned = lines;
  store.keep(session.story);
  changed("banned");
}

/** @type {(lines: string) => void} */
export function banInAll(lines) {
  setting({ banned: lines });
  changed("banned");
}

/** Adds a phrase to the story's list; takes it out of both lists, if it is there already.
    @type {(phrase: string) => void} */
export function toggle(phrase) {
  const { banned = "" } = session.story;
  /** @type {(lines: string) => string} */
  const without = (lines) => linesOf(textsOf(lines).filter((one) => !equals(phrase)(one)));
  if (!isBanned(phrase)) return banInStory(linesOf([...textsOf(banned), phrase]));
  banInStory(without(banned));
  banInAll(without(session.settings.banned));
}
