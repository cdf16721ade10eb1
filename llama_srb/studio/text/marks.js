// What is drawn in the text: who wrote each part of it, the grey preview, and where the model begins to read.

import { asChosen } from "../candidates/choosing.js";
import { behindPassage } from "../candidates/rewrite.js";
import { pointId, session } from "../story/session.js";
import { patchOf, spans, textOf } from "../story/tree.js";
import {
  ChangeSet,
  Decoration,
  EditorView,
  StateEffect,
  StateField,
  WidgetType,
} from "../vendor/codemirror.js";
import { put, view } from "./field.js";
import { previewed } from "./preview.js";

const [USER, EDIT, MODEL] = ["by-user", "by-edit", "by-model"].map((name) =>
  Decoration.mark({ class: name }),
);
const SOURCES = { user: USER, edit: EDIT, model: MODEL };

/** A part of the page in the text that is no part of the text. */
class Shown extends WidgetType {
  constructor(name, text = "") {
    super();
    this.name = name;
    this.text = text;
  }

  eq({ name, text }) {
    return name === this.name && text === this.text;
  }

  toDOM() {
    return Object.assign(document.createElement("span"), { className: this.name, textContent: this.text });
  }

  get lineBreaks() {
    return this.text.split("\n").length - 1;
  }
}

const LINE = Decoration.widget({ widget: new Shown("reads-from"), side: -1 });
const setMarks = StateEffect.define();

/** Origins, and what else is drawn; both follow the text while it changes. */
export const marks = StateField.define({
  create: () => [Decoration.none, Decoration.none],
  update([origins, others], { changes, effects }) {
    const set = effects.find((effect) => effect.is(setMarks));
    return set?.value ?? [typedInto(origins, changes), others.map(changes)];
  },
  provide: (field) => [0, 1].map((i) => EditorView.decorations.from(field, (both) => both[i])),
});

/** Origins in a changed text: what was typed between another one's words is the writer's. */
function typedInto(origins, changes) {
  let set = origins.map(changes);
  changes.iterChangedRanges((_from, _to, from, to) => {
    const cut = [];
    const filter = (begin, end, mark) => {
      const stays = mark === USER || end <= from || begin >= to;
      if (!stays && begin < from) cut.push(mark.range(begin, from));
      if (!stays && end > to) cut.push(mark.range(to, end));
      return stays;
    };
    if (to > from) set = set.update({ filterFrom: from, filterTo: to, filter }).update({ add: cut });
  });
  return set;
}

/** Draws the marks anew, from the story. */
export function draw() {
  if (!view) return;
  put();
  const { story } = session;
  const origins = []; // one for all pieces beside each other of one source
  const others = [];
  const { ghost, id, at, old } = preview(story);
  let end = 0;
  for (const [node, { length }] of spans(story, view.state.doc.toString())) {
    const mark = node ? SOURCES[node.source] : USER;
    const last = origins.at(-1);
    if (!length) continue;
    if (last?.value === mark) last.to = end + length;
    else origins.push({ value: mark, from: end, to: end + length });
    end += length;
  }
  const text = textOf(story);
  const line = session.reads?.at ?? 0;
  if (line > 0 && line < text.length) others.push(LINE.range(line));
  const widget = new Shown("ghost", ghost);
  if (ghost && old) others.push(Decoration.replace({ widget }).range(at, at + old));
  else if (ghost) others.push(Decoration.widget({ widget, side: 1 }).range(at));
  const since = typedSince(text);
  const sets = [
    Decoration.set(origins.map(({ value, from, to }) => value.range(from, to))),
    Decoration.set(others, true).map(since),
  ];
  view.dispatch({ effects: setMarks.of(sets) });
  flatten();
  follow(ghost && id, since.mapPos(at));
}

/** What CodeMirror knows of the caret's line is joined from parts of what the line was, and they keep that in
    the browser's memory; a look at a letter makes one text of them. */
const flatten = () => view.domAtPos(view.state.selection.main.head).node.cmTile?.text?.charCodeAt(0);

/** What was typed since the tree had this text.
    @type {(text: string) => any} */
function typedSince(text) {
  const [from, length, insert] = patchOf(text, view.state.doc.toString());
  return ChangeSet.of({ from, to: from + length, insert }, text.length, "\n");
}

/** The candidate that is previewed, if it continues the point: its text and its place, and how many
    characters of the text it would replace. */
function preview(story) {
  const id = previewed();
  const node = story.nodes[id ?? ""];
  const at = textOf(story, pointId()).length;
  const ghost = node?.parent === pointId() ? asChosen(story, node) : "";
  return { ghost, id, at, old: passageBehind(pointId()) };
}

/** The length of what stands where the candidates behind a node would stand: they rewrite it. */
function passageBehind(id) {
  const { replaces, story } = session;
  if (!replaces) return 0;
  return textOf(story).length - textOf(story, id).length - behindPassage(story, id, replaces).length;
}

let shown = { id: "", before: 0, moved: 0 }; // the preview that was scrolled to, and the scrolling

/** Scrolls to the preview of a candidate, and back when it ends, unless the writer has scrolled since. */
function follow(id, at) {
  if (id === shown.id) return;
  const sheet = view.scrollDOM;
  const most = sheet.scrollHeight - sheet.clientHeight; // without the ghost
  if (shown.id && Math.abs(sheet.scrollTop - Math.min(shown.moved, most)) <= 1)
    sheet.scrollTop = shown.before;
  const one = { id, before: sheet.scrollTop, moved: sheet.scrollTop };
  shown = one;
  if (!id) return;
  view.dispatch({ effects: EditorView.scrollIntoView(at) });
  requestAnimationFrame(() => {
    sheet.querySelector(".ghost")?.scrollIntoView({ block: "nearest" });
    one.moved = sheet.scrollTop;
  });
}
