// A story that was changed here and on another device: both texts, and which of them goes on.

import { session } from "../story/session.js";
import { countOfWords, textOf, wordDiff } from "../story/tree.js";
import { Button, html, useChanges } from "../ui/ui.js";
import { decide } from "./sync.js";

const BEFORE = 120; // characters that both have, before the first difference
const SHOWN = 1200;
const COMPARED = 2 * SHOWN; // so that what is shown ends before what is compared

export function Conflict() {
  useChanges("server", "text");
  const { conflict, story } = session;
  if (conflict?.remote.id !== story.id) return null;
  const [here, there] = [textOf(story), textOf(conflict.remote)];
  const from = Math.max(0, firstDifference(here, there) - BEFORE);
  const words = wordDiff(here.slice(from, from + COMPARED), there.slice(from, from + COMPARED));
  /** @type {[title: string, text: string, changed: number, isOther: boolean][]} */
  const sides = [
    ["On this device", here, story.changed, false],
    ["On the other device", there, conflict.remote.changed, true],
  ];
  return html`<section class="notice conflict" role="alert" aria-label="Two versions of this story">
    <p>This story was changed here and on another device. Which text goes on?
      The other one stays as a branch.
      ${
        conflict.fields.length > 0 &&
        html`<span>The two also differ in: ${conflict.fields.join(", ")}. The version that you don’t choose
        is kept as a story of its own, too.</span>`
      }</p>
    <div class="sides">${sides.map(
      ([title, text, changed, isOther]) => html`<article key=${title} aria-label=${title}>
      <h3>${title}</h3><small>${new Date(changed).toLocaleString()} · ${countOfWords(text)} words</small>
      <p class="text">${from > 0 && "…"}${marked(words, isOther ? "new" : "gone")}</p>
      <${Button} label=${isOther ? "Go on with the other one" : "Go on with this one"}
        onClick=${() => decide(isOther)} /></article>`,
    )}</div></section>`;
}

/** One side's words, of which those are marked that the other one does not have. */
function marked(words, own) {
  let length = 0;
  const shown = words.filter(([kind]) => kind === "same" || kind === own);
  return shown
    .filter(([, word]) => (length += word.length) <= SHOWN)
    .map(([kind, word]) => (kind === own ? html`<mark>${word}</mark>` : word));
}

function firstDifference(a, b) {
  let i = 0;
  while (i < a.length && a[i] === b[i]) i++;
  return i;
}
