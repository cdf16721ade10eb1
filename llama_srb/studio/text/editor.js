// The text with its tools: asking from there, and the keys that lead to the candidates.

import { ask, rewrite } from "../candidates/asking.js";
import { stopAll } from "../candidates/stopping.js";
import { enterCards } from "../candidates/walking.js";
import { session, wanted } from "../story/session.js";
import { spans } from "../story/tree.js";
import { Button, html, isComposing, still, useChanges, useLayoutEffect, useRef } from "../ui/ui.js";
import { EditorView } from "../vendor/codemirror.js";
import { clipboard } from "./clipboard.js";
import { open, put } from "./field.js";
import { canRedo, canUndo, redo, undo } from "./history.js";
import { looks } from "./looks.js";
import { draw, marks } from "./marks.js";
import { previewed } from "./preview.js";
import { shareOfModel } from "./share.js";
import { wordsIn } from "./words.js";

export function Editor() {
  useChanges("text");
  const box = useRef();
  useLayoutEffect(() => {
    const close = open(box.current, [EditorView.domEventHandlers({ keydown }), clipboard, marks, looks]);
    draw();
    return close;
  }, []);
  useLayoutEffect(put);
  return html`<section class="write" aria-label="Text">
    <div class="writing" ref=${box}></div>
    <${Marks} />
    <${Tools} />
  </section>`;
}

/** Not drawn again with each key: until the tree changes, the marks follow the text. */
const Marks = still(() => {
  useChanges("story", "reads", "preview", previewed() ?? "");
  useLayoutEffect(draw);
});

function Tools() {
  useChanges("text", "story", "status", "settings", "selected");
  const label = session.selected ? "Rewrite" : "Continue";
  return html`<div class="tools" onMouseDown=${(event) => event.preventDefault()}>
    <${Button} label="Undo" icon="↶" keys="Ctrl+Z" disabled=${!canUndo()} onClick=${undo} />
    <${Button} label="Redo" icon="↷" keys="Ctrl+Shift+Z" disabled=${!canRedo()} onClick=${redo} />
    <${Count} />
    <span class="gap"></span>
    ${session.runs.size > 0 && html`<${Button} label="Stop all" keys="Esc" kind="stop" onClick=${stopAll} />`}
    <${Button} label=${`${label} × ${wanted()}`} keys="Ctrl+Enter" kind="main" onClick=${request} />
  </div>`;
}

/** Asks for rewrites of what is selected, else for candidates at the caret. */
const request = () => (session.selected ? rewrite(...session.selected) : ask());

function keydown(event, view) {
  const { key } = event;
  if (event.altKey || event.shiftKey || isComposing(event)) return false;
  if (event.ctrlKey || event.metaKey) {
    if (key === "Enter") request();
    return key === "Enter";
  }
  return leads(key, view.state) && enterCards();
}

/** Whether a key leads from the text to the candidates: Tab, and Down where no text follows. */
const leads = (key, { doc, selection }) =>
  key === "Tab" || (key === "ArrowDown" && selection.main.from === doc.length);

function Count() {
  const { story, text } = session;
  const words = wordsIn();
  const by = shareOfModel(spans(story, text));
  return html`<span class="count">${words} ${words === 1 ? "word" : "words"}${
    by === null ? "" : html` · <span class="share">by the model: ${by} %</span>`
  }</span>`;
}
