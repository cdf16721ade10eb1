// The book at a glance: its chapters, from headings. Above them are find and replace.

import { plainOf } from "../files/paragraphs.js";
import { session } from "../story/session.js";
import { html, useChanges } from "../ui/ui.js";
import { Find, select } from "./find.js";
import { wordsIn } from "./words.js";

const NUMBERED = "(?:part|book) +(?:\\d+|[ivxlc]+|one|two|three)\\b(?: *[.:–—-].{0,80})?";
const NAMED = "(?:chapter|prologue|epilogue)\\b.{0,80}";
const HEADING = new RegExp(`^(?:(#{1,6}) +.+|(?:${NAMED}|${NUMBERED}))$`, "gim");

/** The headings of a text: where each begins and ends, its level and title, the words up to the next one. */
export function headingsOf(text) {
  const found = [...text.matchAll(HEADING)].map(({ index, 0: line, 1: marks }) => ({
    at: index,
    end: index + line.length,
    level: marks?.length ?? 1,
    title: plainOf(line),
  }));
  return found.map((one, i) => ({ ...one, words: wordsIn(one.at, found[i + 1]?.at) }));
}

/** `toText`: leads from a click to the text. */
export function Outline({ toText }) {
  useChanges("outline", "story"); // not with each key: it reads the whole book
  const { text, at } = session;
  const headings = headingsOf(text);
  const here = headings.findLast((one) => one.at <= at);
  const go = (end) => (event) => {
    select(end, end); // what is typed there leaves it a heading
    toText(event);
  };
  return html`<${Find} toText=${toText} />
    ${
      headings.length
        ? html`<ol class="list outline" aria-label="Chapters">${headings.map(
            (one) => html`<li key=${one.at} class=${`level-${one.level}`}>
          <button type="button" aria-current=${one === here ? "true" : undefined}
            onClick=${go(one.end)}>
            <strong>${one.title}</strong><small>${one.words} words</small></button></li>`,
          )}</ol>`
        : html`<p class="hint">A line that begins with # or “Chapter” is a chapter: “# The fox”, or
          “Chapter 1”.</p>`
    }`;
}
