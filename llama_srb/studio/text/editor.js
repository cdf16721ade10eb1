// The text field. Behind it lies the same text, coloured by its origin.

import { ask, awaitPause, rewrite } from "../candidates/asking.js";
import { behindPassage } from "../candidates/rewrite.js";
import { stopAll } from "../candidates/stopping.js";
import { enterCards } from "../candidates/walking.js";
import { pointId, session, wanted } from "../story/session.js";
import { patchOf, spans, textOf } from "../story/tree.js";
import {
  Button,
  Component,
  changed,
  html,
  isComposing,
  isTouched,
  useChanges,
  useEffect,
  useLayoutEffect,
  useRef,
} from "../ui/ui.js";
import { showFound } from "./found.js";
import { canRedo, canUndo, commit, movedTo, redo, typed, undo } from "./history.js";
import { counting, piecesOf, remembering, shareOfModel } from "./pieces.js";
import { Ghost } from "./preview.js";

export function Editor() {
  useChanges("text", "story");
  const field = useRef();
  useLayoutEffect(() => {
    put(field.current, session.text);
    if (session.caret === null) return;
    const to = session.caret;
    session.caret = null;
    field.current.setSelectionRange(to, to);
    show(field.current);
  });
  useEffect(() => {
    const moved = () => document.activeElement === field.current && movedIn(field.current);
    document.addEventListener("selectionchange", moved);
    return () => document.removeEventListener("selectionchange", moved);
  }, []);
  const left = ({ target }) => {
    movedTo(target.selectionStart);
    commit();
  };
  return html`<section class="write" aria-label="Text">
    <div class="sheet">
      <div class="page">
        <${Origins} />
        <textarea id="editor" ref=${field} aria-label="Story" dir="auto" autofocus spellcheck="true"
          lang=${session.story.lang}
          placeholder=${`Write the beginning, then press Continue${isTouched() ? "" : " or Ctrl+Enter"}.`}
          onInput=${onInput}
          onFocus=${({ target }) => movedIn(target)} onBlur=${left} onKeyDown=${onKey}></textarea>
      </div>
    </div>
    <${Tools} />
  </section>`;
}

const movedIn = ({ selectionStart, selectionEnd }) => movedTo(selectionStart, selectionEnd);

function onInput({ target: { value, selectionStart } }) {
  if (isPutting || value === session.text) return;
  typed(value, selectionStart);
  awaitPause();
}

const EDIT = 2000; // characters
let isPutting = false; // the browser reports that as input, too

/** Puts a text into the field. The browser lays out a new value as a whole, but of an edit only its lines; it
    edits only the field that has the focus, and long passages slowly. */
function put(field, text) {
  if (field.value === text) return;
  const [at, length, by] = patchOf(field.value, text);
  if (document.activeElement === field && length + by.length <= EDIT) {
    field.setSelectionRange(at, at + length);
    isPutting = true;
    document.execCommand(by ? "insertText" : "delete", false, by);
    isPutting = false;
  }
  if (field.value !== text) field.value = text;
}

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

function onKey(event) {
  const { key, target } = event;
  if (event.altKey || event.shiftKey || isComposing(event)) return;
  if (event.ctrlKey || event.metaKey) {
    if (key !== "Enter") return;
    movedIn(target);
    request();
  } else if (!leads(key, target) || !enterCards()) return;
  event.preventDefault();
}

/** Whether a key leads from the text to the candidates: Tab, and Down where no text follows. */
const leads = (key, { selectionStart, value }) =>
  key === "Tab" || (key === "ArrowDown" && selectionStart === value.length);

function show(field) {
  const sheet = field.closest(".sheet");
  if (field.selectionStart >= field.value.length) sheet.scrollTop = sheet.scrollHeight;
}

const SOURCES = { user: "by-user", edit: "by-edit", model: "by-model" };

function Origins() {
  useChanges("origins");
  const layer = useRef();
  const { text, story } = session;
  const parts = [];
  let end = 0;
  let old = 0; // characters of the passage that the candidates rewrite
  const all = spans(story, text);
  for (const [i, [node, part]] of all.entries()) {
    const kind = SOURCES[node?.source ?? "user"];
    const [gone, kept] = [part.slice(0, old), part.slice(old)];
    parts.push(...withLine(`${kind} ${OLD}`, gone, end), ...withLine(kind, kept, end + gone.length));
    end += part.length;
    old -= gone.length;
    if (node?.id !== pointId() || all.slice(i + 1, i + 3).some(([other]) => other === node)) continue;
    parts.push([GHOST, node.id]);
    old = passageBehind(node.id);
  }
  const pieces = piecesOf(parts, isText);
  pieces.at(-1)?.push(["", "\u200b"]); // the last line, which may be empty
  const [keyed, isBehind] = remembered(pieces);
  useEffect(() => isBehind && changed("origins"));
  useLayoutEffect(() => showFound(layer.current));
  return html`<div class="origins" ref=${layer} dir="auto" aria-hidden="true">
    ${keyed.map((one) => html`<${Piece} key=${one.key} of=${one} />`)}
  </div>`;
}

/** The length of what stands where the candidates behind a node would stand: they rewrite it. */
function passageBehind(id) {
  const { replaces, story } = session;
  if (!replaces) return 0;
  return textOf(story).length - textOf(story, id).length - behindPassage(story, id, replaces).length;
}

/** A text from `begin` on, with the line where the model begins to read if that is in it. */
function withLine(kind, text, begin) {
  const at = (session.reads?.at || NaN) - begin;
  if (!(at >= 0 && at < text.length)) return [[kind, text]];
  return [
    [kind, text.slice(0, at)],
    [LINE, ""],
    [kind, text.slice(at)],
  ];
}

const [GHOST, LINE, OLD] = ["ghost", "reads-from", "old"];
const MARKS = {
  [GHOST]: (id) => html`<${Ghost} key="ghost" after=${id} />`,
  [LINE]: () => html`<span class=${LINE}></span>`,
};
const isText = (kind) => !MARKS[kind];
const remembered = remembering(isText);

/** Drawn again only if it is another one. */
class Piece extends Component {
  shouldComponentUpdate({ of }) {
    return of !== this.props.of;
  }

  render({ of }) {
    return html`<div>
      ${of.piece.map(([kind, value]) => MARKS[kind]?.(value) ?? html`<span class=${kind}>${value}</span>`)}
    </div>`;
  }
}

const wordsIn = counting();

function Count() {
  const { story, text } = session;
  const [words] = wordsIn([text]);
  const by = shareOfModel(spans(story, text));
  return html`<span class="count">${words} ${words === 1 ? "word" : "words"}${
    by === null ? "" : html` · <span class="share">by the model: ${by} %</span>`
  }</span>`;
}
