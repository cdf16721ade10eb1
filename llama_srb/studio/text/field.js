// The text field: CodeMirror, without its undo. From here the page learns what is typed, and here it puts
// each other change of the text.

import { awaitPause } from "../candidates/asking.js";
import { session } from "../story/session.js";
import * as store from "../story/store.js";
import { copied, patchOf } from "../story/tree.js";
import { isComposing, isTouched } from "../ui/ui.js";
import {
  ChangeSet,
  Decoration,
  EditorState,
  EditorView,
  indentUnit,
  insertNewline,
  keymap,
  placeholder,
  StateEffect,
  StateField,
  standardKeymap,
  Text,
} from "../vendor/codemirror.js";
import { changesOf } from "./changes.js";
import { commit, movedTo, redo, typed, undo } from "./history.js";

const HINT = `Write the beginning, then press Continue${isTouched() ? "" : " or Ctrl+Enter"}.`;
const PUT = "put"; // the name of changes that were not typed
const END = { y: "end", yMargin: 40 }; // pixels: the text's end with the space below it

/** @type {any} */
export let view = null; // while a story is open that is no chat
let told = ""; // the text as the page knows it
/** @type {any} */
let untold = null; // what was typed since, while an input method makes a word

/** The page without its head: so CodeMirror adopts a style sheet, since the page forbids style elements. The
    selection is its own only while it has the focus: where a line wraps it sets the caret again with the next
    frame, and would take the focus from the field that has it by then. */
const root = {
  ownerDocument: document,
  get activeElement() {
    return document.activeElement;
  },
  getSelection: () => (document.activeElement === view?.contentDOM ? document.getSelection() : null),
  get adoptedStyleSheets() {
    return document.adoptedStyleSheets;
  },
  set adoptedStyleSheets(sheets) {
    document.adoptedStyleSheets = sheets;
  },
};

const attributes = () => ({
  id: "editor",
  class: "origins",
  "aria-label": "Story",
  lang: session.story.lang ?? "",
  autofocus: "",
  tabindex: "0", // as it has without, which axe-core does not know
  spellcheck: "true",
  autocorrect: "on",
  autocapitalize: "sentences",
  writingsuggestions: "true",
});

/** Moves the caret, or the end of the selection, to the begin of the line: first as it is wrapped, then of
    all of it. CodeMirror's own stops behind the blanks there, as one wants it in a program.
    @type {(view: any, isSelecting?: boolean) => boolean} */
function toBegin(view, isSelecting = false) {
  const { selection } = view.state;
  const { main } = selection;
  const here = view.moveToLineBoundary(main, false);
  const begin = here.head === main.head ? view.moveToLineBoundary(main, false, false) : here;
  const next = selection.replaceRange(isSelecting ? main.extend(begin.head) : begin);
  view.dispatch({ selection: next, scrollIntoView: true, userEvent: "select" });
  return true;
}

const begins = { run: toBegin, shift: (view) => toBegin(view, true), preventDefault: true };
const KEYS = [
  { key: "Enter", run: insertNewline, shift: insertNewline },
  { key: "Home", ...begins },
  { mac: "Cmd-ArrowLeft", ...begins },
];

/** Shows the text in an element; returns the end of that.
    @type {(parent: Element, extensions: any[]) => () => void} */
export function open(parent, extensions) {
  told = session.text;
  untold = null;
  view = new EditorView({
    root,
    doc: told,
    extensions: [
      extensions,
      found,
      keymap.of([...KEYS, ...standardKeymap]),
      indentUnit.of(" "), // or Backspace takes several blanks at once where a line begins
      EditorState.lineSeparator.of("\n"), // the only one, so that places are those of the page's text
      EditorView.lineWrapping,
      EditorView.perLineTextDirection.of(true),
      EditorView.contentAttributes.of(attributes),
      EditorView.clipboardInputFilter.of((text) => text.replace(/\r\n?/g, "\n")),
      EditorView.inputHandler.of(onInput),
      EditorView.updateListener.of(onUpdate),
      EditorView.domEventHandlers(HANDLERS),
      placeholder(HINT),
    ],
  });
  view.scrollDOM.classList.add("sheet");
  asField(view.contentDOM);
  parent.append(view.dom); // now that it has its attributes: autofocus counts only then
  for (const kind of ENDING) addEventListener(kind, endWord, true); // before a button acts
  return () => {
    for (const kind of ENDING) removeEventListener(kind, endWord, true);
    view.destroy();
    view = untold = null;
  };
}

const ENDING = ["pointerdown", "keydown", "beforeinput"]; // unless an input method makes them
const OF_METHODS = /Composition/; // inputs, of which Safari tells the last one as if it were none

/** Ends the word of an input method for the page. The browser ends it without a word when the caret goes
    elsewhere or the page changes the text, and CodeMirror would wait for its end for ever. */
function endWord(event) {
  if (isComposing(event) || OF_METHODS.test(event.inputType)) return;
  if (view.compositionStarted) view.contentDOM.dispatchEvent(new CompositionEvent("compositionend"));
  tell();
}
store.leaving.unshift(tell); // before that is stored

/** The text as CodeMirror has it, in parts that stay the same while they do not change. */
export function parts() {
  put();
  return view?.state.doc ?? Text.of(session.text.split("\n"));
}

/** The element has its text and its selection as a text area has them. */
function asField(element) {
  const main = () => view.state.selection.main;
  Object.defineProperties(element, {
    value: { get: () => view.state.doc.toString() },
    selectionStart: { get: () => main().from },
    selectionEnd: { get: () => main().to },
  });
  element.setSelectionRange = (anchor, head) => view.dispatch({ selection: { anchor, head } });
  let isWithin = false; // CodeMirror calls it, too
  element.focus = (options) => {
    HTMLElement.prototype.focus.call(element, options);
    if (isWithin) return;
    isWithin = true;
    put();
    view.focus(); // or the caret may be where the browser had it, if the page has moved it since
    isWithin = false;
  };
}

const NATIVE = { historyUndo: undo, historyRedo: redo }; // a browser's menu, or a phone that is shaken

const HANDLERS = {
  keydown: putFirst,
  compositionstart: putFirst,
  beforeinput(event, view) {
    const { inputType } = event;
    putFirst();
    NATIVE[inputType]?.();
    return inputType in NATIVE || types(event, view);
  },
  compositionend() {
    setTimeout(tell); // CodeMirror has read the word by then
  },
  blur() {
    tell();
    movedTo(view.state.selection.main.from);
    commit();
  },
  drop: ({ dataTransfer }) => dataTransfer.types.includes("Files"), // the page imports them
};

/** What the page has just changed, as by a choice, is there before the next key, not with the next frame. */
function putFirst() {
  put();
  return false;
}

/** Types over a selection, which the browser would do with styles of its own, and the page forbids these; and
    lines that come at once, as of a dictated text, of which the browser loses an empty one.
    @type {(event: InputEvent, view: any) => boolean} */
function types({ inputType, data, isComposing, cancelable }, view) {
  if (inputType !== "insertText" || !data || isComposing || !cancelable) return false;
  if (view.state.selection.main.empty && !data.includes("\n")) return false;
  const change = view.state.replaceSelection(copied(data));
  view.dispatch({ ...change, scrollIntoView: true, userEvent: "input.type" });
  return true;
}

/** Puts several letters that come at once, as of a dictated sentence, in as a copy: those of the page have 16
    bits each, and so would all of the text.
    @type {(view: any, from: number, to: number, text: string) => boolean} */
function onInput(view, from, to, text) {
  if (text.length < 2 || view.compositionStarted) return false;
  view.dispatch({
    changes: { from, to, insert: copied(text) },
    selection: { anchor: from + text.length },
    scrollIntoView: true,
    userEvent: "input.type",
  });
  return true;
}

function onUpdate({ docChanged, changes, transactions, selectionSet, focusChanged }) {
  if (docChanged && !transactions.some((one) => one.isUserEvent(PUT))) {
    untold = untold?.compose(changes) ?? changes;
    if (!view.compositionStarted) tell();
  } else if ((selectionSet || focusChanged) && view.hasFocus && !untold) moved();
}

function moved() {
  const { from, to } = view.state.selection.main;
  movedTo(from, to);
}

/** Tells the page what was typed. */
function tell() {
  if (!untold) return;
  put(); // or what the page has changed since would be lost
  /** @type {[number, number, string][]} */
  const changes = [];
  untold.iterChanges((from, to, _from, _to, text) => changes.push(...changesIn(from, to, text.toString())));
  untold = null;
  told = view.state.doc.toString();
  typed(told, view.state.selection.main.from, changes);
  moved();
  awaitPause();
}

/** A change without what stays: a paste over the whole text may change some words of it.
    @type {(from: number, to: number, by: string) => [number, number, string][]} */
const changesIn = (from, to, by) =>
  from < to
    ? changesOf(told.slice(from, to), by).map(([start, end, text]) => [from + start, from + end, text])
    : [[from, from, by]];

/** Puts the page's text into the field, and the caret where the page wants it. */
export function put() {
  if (!view) return;
  const [at, length, insert] = session.text === told ? [0, 0, ""] : patchOf(told, session.text);
  if (length || insert) {
    /** @type {any} */
    const change = ChangeSet.of({ from: at, to: at + length, insert }, told.length, "\n");
    const later = untold?.map(change, true);
    told = session.text;
    view.dispatch({ changes: untold ? change.map(untold) : change, userEvent: PUT });
    untold = later ?? null;
  }
  if (session.caret === null) return;
  const caret = Math.min(session.caret, view.state.doc.length);
  session.caret = null;
  const isEnd = caret === view.state.doc.length;
  view.dispatch({
    selection: { anchor: caret },
    effects: isEnd ? EditorView.scrollIntoView(caret, END) : [],
    scrollIntoView: !isEnd,
  });
}

// ---- the place that was found or gone to --------------------------------------------------------------

const ABOVE = 3; // a third of the text's height lies above the place
const FOUND = Decoration.mark({ class: "found" });
const setFound = StateEffect.define();

const LEFT = ["select", "input", "delete"]; // events of a writer who is elsewhere now

/** The place is marked: the field shows its own selection only while it has the focus. */
const found = StateField.define({
  create: () => Decoration.none,
  update(before, transaction) {
    const set = transaction.effects.find((effect) => effect.is(setFound));
    if (set) return Decoration.set(set.value);
    const isLeft = LEFT.some((event) => transaction.isUserEvent(event));
    return isLeft ? Decoration.none : before.map(transaction.changes);
  },
  provide: (field) => EditorView.decorations.from(field),
});

/** Selects a place of the text, scrolls there and marks its characters, if it has any. */
export function goTo(start, end) {
  put();
  const yMargin = view.scrollDOM.clientHeight / ABOVE;
  view.dispatch({
    selection: { anchor: start, head: end },
    effects: [
      setFound.of(end > start ? [FOUND.range(start, end)] : []),
      EditorView.scrollIntoView(start, { y: "start", yMargin }),
    ],
  });
}

export const unmark = () => view?.dispatch({ effects: setFound.of([]) });
