// The book at a glance: its chapters, from headings, and find and replace over its whole text.

import { refresh, say, session } from "../story/session.js";
import { rewritten } from "../story/tree.js";
import { Button, changed, html, useChanges, useLayoutEffect, useRef, useState } from "../ui/ui.js";
import { goTo, unmark } from "./field.js";
import { commit, typed } from "./history.js";
import { wordsIn } from "./words.js";

const NUMBERED = "(?:part|book) +(?:\\d+|[ivxlc]+|one|two|three)\\b(?: *[.:–—-].{0,80})?";
const NAMED = "(?:chapter|prologue|epilogue)\\b.{0,80}";
const HEADING = new RegExp(`^(?:(#{1,6}) +(.+)|(${NAMED}|${NUMBERED}))$`, "gim");

/** The headings of a text: where each begins, its level, its title, and the words up to the next one. */
export function headingsOf(text) {
  const found = [...text.matchAll(HEADING)].map(({ index, 1: marks, 2: title, 3: plain }) => ({
    at: index,
    level: marks?.length ?? 1,
    title: (title ?? plain).trim(),
  }));
  return found.map((one, i) => ({ ...one, words: wordsIn(one.at, found[i + 1]?.at) }));
}

export function Outline() {
  useChanges("outline", "story"); // not with each key: it reads the whole book
  const { text, at } = session;
  const headings = headingsOf(text);
  const here = headings.findLast((one) => one.at <= at);
  return html`<${Find} />
    ${
      headings.length
        ? html`<ol class="list outline" aria-label="Chapters">${headings.map(
            (one) => html`<li key=${one.at} class=${`level-${one.level}`}>
          <button type="button" aria-current=${one === here ? "true" : undefined}
            onClick=${() => select(one.at, one.at)}>
            <strong>${one.title}</strong><small>${one.words} words</small></button></li>`,
          )}</ol>`
        : html`<p class="hint">A line that begins with # or “Chapter” is a chapter: “# The fox”, or
          “Chapter 1”.</p>`
    }`;
}

function Find() {
  const [sought, setSought] = useState("");
  const [exact, setExact] = useState(false);
  const [last, setLast] = useState(null); // the place that was found last
  const other = useRef();
  useLayoutEffect(() => unmark, [sought, exact]);
  const find = () => placesOf(session.text, sought, exact);
  const places = find();
  const go = (step, before = last) => {
    const { at } = session;
    const places = find();
    const next =
      step > 0
        ? (places.find((place) => place > at || (place === at && before !== at)) ?? places[0])
        : (places.findLast((place) => place < at) ?? places.at(-1));
    if (next === undefined) return;
    setLast(next);
    select(next, next + sought.length);
  };
  const replace = (chosen) => {
    const by = other.current.value;
    const end = chosen.at(-1) + sought.length + chosen.length * (by.length - sought.length);
    const changes = chosen.map((place) => [place, place + sought.length, by]);
    commit();
    typed(rewritten(session.text, changes), end, changes);
    commit();
    refresh(end);
    say(`${chosen.length} replaced`);
  };
  const current = () => find().filter((place) => place === last && place === session.at);
  const replaceOne = () => {
    replace(current());
    go(1, null);
  };
  const onKey = (event) => {
    if (event.key !== "Enter") return;
    event.preventDefault();
    go(event.shiftKey ? -1 : 1);
  };
  return html`<div class="find">
    <label class="field">Find <input type="search" value=${sought} onKeyDown=${onKey}
      onInput=${(event) => setSought(event.target.value)} /></label>
    <label class="field">Replace with <input ref=${other} /></label>
    <label class="check"><input type="checkbox" checked=${exact}
      onChange=${() => setExact(!exact)} /> match case</label>
    <div class="tools">
      <${Button} label="Previous" keys="Shift+Enter" disabled=${!places.length} onClick=${() => go(-1)} />
      <${Button} label="Next" keys="Enter" disabled=${!places.length} onClick=${() => go(1)} />
      <${Button} label="Replace" about="Replaces the one that was found last" disabled=${!current().length}
        onClick=${replaceOne} />
      <${Button} label="Replace all" disabled=${!places.length} onClick=${() => replace(find())} />
      ${sought && html`<span role="status" class="hint">${places.length} found</span>`}
    </div></div>`;
}

/** Where a text has these words. */
export function placesOf(text, sought, exact) {
  if (!sought) return [];
  const pattern = new RegExp(sought.replace(/[.*+?^${}()|[\]\\]/g, "\\$&"), exact ? "gu" : "giu");
  return [...text.matchAll(pattern)].map(({ index }) => index);
}

/** Moves the selection to a place of the text, which is marked and scrolled to. */
function select(start, end) {
  commit();
  Object.assign(session, { at: start, caret: null });
  goTo(start, end);
  changed("text", "outline");
}
