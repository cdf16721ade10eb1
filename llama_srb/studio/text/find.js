// Find and replace over the whole text: place by place with a look at each, or all places at once.

import { leadToText } from "../candidates/walking.js";
import { refresh, say, session } from "../story/session.js";
import { rewritten } from "../story/tree.js";
import { Button, changed, html, isComposing, useChanges, useLayoutEffect, useState } from "../ui/ui.js";
import { goTo, unmark } from "./field.js";
import { commit, typed } from "./history.js";
import { lineAround, placesOf } from "./places.js";

const LONGEST = 100; // characters of a selection that is sought
const sought = { words: "" }; // which stays when the panel is closed

/** What is selected in the text, if it is within a line, is sought next. */
export function seekSelected() {
  const [from, to] = session.selected ?? [0, 0];
  const words = session.text.slice(from, to);
  if (!words || words.length > LONGEST || words.includes("\n")) return;
  sought.words = words;
  changed("sought");
}

export function Find({ toText }) {
  useChanges("sought");
  const { words } = sought;
  const [by, setBy] = useState("");
  const [how, setHow] = useState({ exact: false, whole: false });
  const [last, setLast] = useState(null); // the place that was found last
  useLayoutEffect(() => unmark, []);
  const find = () => placesOf(session.text, sought.words, how);
  const places = find();
  const here = last === session.at ? places.indexOf(last) : -1;
  const go = (step, before = last) => {
    const { at } = session;
    const places = find();
    const next =
      step > 0
        ? (places.find((place) => place > at || (place === at && before !== at)) ?? places[0])
        : (places.findLast((place) => place < at) ?? places.at(-1));
    if (next === undefined) return unmark();
    setLast(next);
    select(next, next + sought.words.length);
  };
  const replace = (chosen) => {
    const { length } = sought.words;
    const end = chosen.at(-1) + length + chosen.length * (by.length - length);
    const changes = chosen.map((place) => [place, place + length, by]);
    commit();
    typed(rewritten(session.text, changes), end, changes);
    commit();
    refresh(end);
    say(`${chosen.length} replaced`);
  };
  const replaceOne = () => {
    const isSeen = last === session.at && find().includes(last);
    if (isSeen) replace([last]);
    go(1, isSeen ? null : last); // the first time it is only looked at
  };
  const onReplace = (event) => {
    replaceOne();
    if (!find().length) leadToText(event); // this button is off now and keeps no focus
  };
  const onReplaceAll = (event) => {
    replace(find());
    leadToText(event);
  };
  const seek = ({ target: { value } }) => {
    unmark();
    sought.words = value;
    changed("sought");
  };
  const seekSo = (other) => {
    unmark();
    setHow({ ...how, ...other });
  };
  const onEnter = (act) => (event) => {
    if (event.key !== "Enter" || isComposing(event)) return;
    event.preventDefault();
    act(event);
  };
  const check = (name, label) =>
    html`<label class="check"><input type="checkbox" checked=${how[name]}
      onChange=${() => seekSo({ [name]: !how[name] })} /> ${label}</label>`;
  const none = !places.length;
  return html`<div class="find">
    <label class="field">Find <input type="search" value=${words} onInput=${seek}
      onKeyDown=${onEnter(({ shiftKey }) => go(shiftKey ? -1 : 1))} /></label>
    <label class="field">Replace with <input value=${by} onInput=${({ target }) => setBy(target.value)}
      onKeyDown=${onEnter(replaceOne)} /></label>
    <div class="tools">${check("exact", "match case")}${check("whole", "whole words")}</div>
    <div class="tools">
      <${Button} label="Previous" keys="Shift+Enter" disabled=${none} onClick=${() => go(-1)} />
      <${Button} label="Next" keys="Enter" disabled=${none} onClick=${() => go(1)} />
      <${Button} label="Replace" about="Replaces the place that you see, and goes to the next one"
        disabled=${none} onClick=${onReplace} />
      <${Button} label="Replace all" disabled=${none} onClick=${onReplaceAll} />
      ${words && html`<span role="status" class="hint">${counted(here, places.length)}</span>`}
    </div>
    ${here >= 0 && html`<${Look} at=${places[here]} words=${words} by=${by} toText=${toText} />`}
    </div>`;
}

/** @type {(here: number, count: number) => string} */
const counted = (here, count) => (here < 0 ? `${count} found` : `${here + 1} of ${count}`);

/** The line of the place that was found, and what would stand there; on a phone the panel covers the text. */
function Look({ at, words, by, toText }) {
  const [before, behind] = lineAround(session.text, at, words.length);
  const found = session.text.slice(at, at + words.length);
  const goThere = async (event) => {
    await toText(event); // which may close this panel, and that ends its mark
    select(at, at + words.length);
  };
  return html`<button type="button" class="look" dir="auto" title="Go there" onClick=${goThere}>${before}${
    by ? html`<del>${found}</del><ins>${by}</ins>` : html`<mark>${found}</mark>`
  }${behind}</button>`;
}

/** Moves the selection to a place of the text, which is marked and scrolled to. */
export function select(start, end) {
  commit();
  Object.assign(session, { at: start, caret: null });
  goTo(start, end);
  changed("text", "outline", "sought");
}
