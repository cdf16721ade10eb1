// One candidate as a card: its facts, its text in several forms, its actions.

import { Loading } from "../server/models.js";
import { say, session } from "../story/session.js";
import { goesOn, meanLogprob, wordDiff } from "../story/tree.js";
import { labelOf } from "../ui/fields.js";
import { Figures, Menu } from "../ui/menu.js";
import {
  Button,
  changed,
  copy,
  html,
  still,
  useChanges,
  useEffect,
  useKeptFocus,
  useRef,
  useState,
} from "../ui/ui.js";
import { again, longer } from "./asking.js";
import { choose, edit, mark, shelve } from "./choosing.js";
import { Tokens } from "./inside.js";
import { stopOne } from "./stopping.js";
import { backToText, placeIn, toText } from "./walking.js";

const ENDS = {
  stop: "ends here",
  length: "",
  cancelled: "stopped",
  timeout: "out of time",
  pruned: "others were better",
  surplus: "enough others were done",
  repetition: "went round in circles",
  interrupted: "interrupted",
  error: "error",
};

export const Card = still(({ id, number, duplicate }) => {
  useChanges(id, "settings", "compare");
  const [mode, setMode] = useState("read");
  const card = useRef();
  useKeptFocus(card);
  const node = session.story.nodes[id];
  if (!node) return null; // of another story; the list is drawn next
  const running = node.state === "running";
  const kind = [
    running && "running",
    node.pinned && "pinned",
    duplicate && "duplicate",
    node.aside && "aside",
    mode === "part" && "picking",
  ]
    .filter(Boolean)
    .join(" ");
  const same = duplicate ? ", the same as another" : "";
  const label = `Candidate ${number}${node.pinned ? ", pinned" : ""}${same}`;
  const onKey = (event) => {
    if (event.key !== "Enter" || !event.target.matches(".card, .card > .text:not(.part)")) return;
    event.preventDefault();
    choose(id);
    toText();
  };
  return html`<article class=${`card ${kind}`} data-id=${id} ref=${card} tabindex="-1"
    aria-label=${label} aria-busy=${running} onKeyDown=${onKey}
    onClickCapture=${(event) => takePart(event, node)}
    onMouseDown=${(event) => partOf(event) && event.preventDefault()}>
    <header><button type="button" class="digit" tabindex="-1" title=${`Choose (${number})`}
      aria-label=${`Choose ${number}`} onClick=${() => take(id)}>${number}</button>
      <${Facts} node=${node} /></header>
    ${
      mode === "edit"
        ? html`<${Edit} node=${node} done=${() => setMode("read")} />`
        : mode === "part"
          ? html`<${Part} node=${node} done=${() => setMode("read")} />`
          : html`<${Text} node=${node} />`
    }
    <${Loading} node=${node} />
    <${Actions} id=${id} running=${running} mode=${mode} setMode=${setMode} pinned=${!!node.pinned}
      compared=${session.compare === id} />
  </article>`;
});

const Actions = still(({ id, running, mode, setMode, pinned, compared }) => {
  const textNow = () => session.story.nodes[id].text;
  return html`<footer class="actions">
    <${Act} label="Part" letter="w" about="Takes the first words only; so does Shift and a click on a word"
      pressed=${mode === "part"} onClick=${() => setMode(mode === "part" ? "read" : "part")} />
    ${
      running
        ? html`<${Act} label="Stop" letter="s" about="No more for this one" onClick=${() => stopOne(id)} />`
        : html`<${Act} label="Edit" letter="e" about="Your own version, beside it"
          onClick=${() => setMode("edit")} />`
    }
    <${Act} label="Pin" letter="p" about="Stays when the others are rolled again" pressed=${pinned}
      onClick=${() => mark(id, { pinned: !pinned })} />
    <${Menu} label="Actions" icon="⋯">
      <${Act} label="Longer" letter="l" about="Writes on, still a candidate" disabled=${running}
        onClick=${() => longer(id)} />
      <${Act} label="Again" letter="r" about="Another in its place; this one stays behind “earlier”"
        onClick=${() => again(id)} />
      <${Act} label="Copy" letter="c" onClick=${async () => say(await copy(textNow()))} />
      <${Act} label="Keep" letter="h" about="Puts it on the shelf, for another place"
        onClick=${() => shelve([[session.story.nodes[id].source, textNow()]])} />
      <${Act} label="Diff" letter="d" about="How the others differ from it, word by word"
        pressed=${compared} onClick=${() => compare(id)} />
    <//>
  </footer>`;
});

const Act = ({ label, letter, about = label, onClick, pressed, disabled }) =>
  html`<button type="button" class="act" data-key=${letter} title=${`${about} (${letter})`}
    disabled=${disabled}
    aria-pressed=${pressed === undefined ? undefined : String(pressed)} onClick=${onClick}>${label}</button>`;

function compare(id) {
  session.compare = session.compare === id ? null : id;
  changed("compare");
}

/** What became of a candidate; its figures stand behind a button. */
function Facts({ node }) {
  const mean = meanLogprob(node);
  const length = node.tokens?.length || node.length;
  const { seed: _, ...values } = node.sampling ?? {}; // the request's; node.seed is its own
  const facts = [
    node.source === "edit" && "yours",
    node.source === "user" && "your text",
    ENDS[node.state],
    goesOn(session.story, node) && "goes on",
  ].filter(Boolean);
  const { samplers = [], request = [] } = session.fields ?? {};
  const rows = new Map([...request, ...samplers].map((row) => [row.name, row]));
  const named = Object.entries(values).map(([name, value]) => [labelOf(rows.get(name) ?? { name }), value]);
  const figures = {
    tokens: length,
    ...Object.fromEntries(named),
    logprob: mean?.toFixed(2),
    seed: node.seed,
  };
  return html`<span class="facts">${facts.join(" · ")}</span>
    <${Menu} label="Details" icon="i" kind="info"><${Figures} figures=${figures} /><//>`;
}

// ---- the text of a card ------------------------------------------------------------------------------
//
// A text that is longer than its card is scrolled, by keys, too: so it can have the focus.

function Text({ node }) {
  const { colours } = session.settings;
  const compared = session.compare && session.compare !== node.id && session.story.nodes[session.compare];
  if (compared) return html`<${Differences} of=${node.text} from=${compared.text} />`;
  if (colours && node.tokens?.length) return html`<${Tokens} node=${node} />`;
  const onClick = () => String(getSelection()) || take(node.id);
  return html`<div class="text" dir="auto" tabindex="0" onClick=${onClick}>${node.text}</div>`;
}

// A click that has chosen may be the first of two. The second finds the next candidates in their place, and
// counts for nothing. Browsers count clicks of a mouse, but not all count taps.

const DOUBLE_MS = 500; // between two taps
const NEAR = 24; // pixels
let last = /** @type {PointerEvent | null} */ (null);
let chosen = /** @type {PointerEvent | null} */ (null); // the click that has chosen, while it is the last one

/** @type {(event: PointerEvent, before: PointerEvent) => boolean} */
const isSecond = (event, before) =>
  event.detail > 1 ||
  (event.pointerType !== "mouse" &&
    event.timeStamp - before.timeStamp < DOUBLE_MS &&
    Math.hypot(event.clientX - before.clientX, event.clientY - before.clientY) < NEAR);

function dropSecond(event) {
  if (chosen && isSecond(event, chosen)) {
    event.preventDefault();
    event.stopPropagation();
  } else {
    last = event;
    chosen = null;
  }
}
addEventListener("click", dropSecond, true);

/** Chooses by a click; the focus stays in the story if it was there. */
function take(id, end = null) {
  chosen = last;
  choose(id, end);
  backToText();
}

/** The text that Shift and a click choose a part of, however it is shown; else the browser would select. */
const partOf = ({ shiftKey, target }) =>
  shiftKey && !target.closest(".alternatives") && target.closest(".text:not(.part)");

function takePart(event, node) {
  const box = partOf(event);
  if (!box) return;
  event.stopPropagation();
  take(node.id, wordEnd(node.text, placeIn(box, event)));
}

/** Where the word at a place ends; null at the end of the text. */
function wordEnd(text, at) {
  const word = /\S/.test(text[at - 1] ?? "") ? /^\S*/ : /^\s*\S*/;
  const end = at + (word.exec(text.slice(at))?.[0].length ?? 0);
  return end < text.length ? end : null;
}

const Differences = ({ of, from }) =>
  html`<div class="text" dir="auto" tabindex="0">${wordDiff(from, of).map(([kind, word]) =>
    kind === "same" ? word : kind === "new" ? html`<ins>${word}</ins>` : html`<del>${word}</del>`,
  )}</div>`;

/** The words one by one: the arrow keys move the end, Enter or a click chooses the marked part. */
function Part({ node, done }) {
  const words = node.text.match(/\s*\S+/g) ?? [];
  const [count, setCount] = useState(Math.min(1, words.length));
  const box = useRef();
  useEffect(() => box.current.focus(), []);
  const takeWords = (n) => {
    const end = words.slice(0, n).join("").length;
    done();
    take(node.id, end < node.text.length ? end : null);
    return true;
  };
  const keys = {
    ArrowRight: () => setCount(Math.min(words.length, count + 1)),
    ArrowLeft: () => setCount(Math.max(1, count - 1)),
    Enter: () => takeWords(count) && toText(),
    Escape: done,
  };
  const onKey = (event) => {
    if (!keys[event.key]) return;
    event.preventDefault();
    event.stopPropagation();
    keys[event.key]();
  };
  return html`<div class="text part" dir="auto" ref=${box} tabindex="0" role="slider"
    aria-label="Words to take" aria-valuemin="1" aria-valuemax=${words.length} aria-valuenow=${count}
    aria-valuetext=${words.slice(0, count).join("")} onKeyDown=${onKey}>
    ${words.map(
      (word, i) => html`<span class=${i < count ? "in" : "out"} onMouseEnter=${() => setCount(i + 1)}
      onClick=${() => takeWords(i + 1)}>${word}</span>`,
    )}</div>`;
}

function Edit({ node, done }) {
  const field = useRef();
  useEffect(() => field.current.focus(), []);
  const finish = () => {
    done();
    edit(node.id, field.current.value);
  };
  const onKey = (event) => {
    const isEnd = event.key === "Enter" && (event.ctrlKey || event.metaKey);
    if (!isEnd && event.key !== "Escape") return;
    event.preventDefault();
    if (isEnd) return finish();
    event.stopPropagation();
    done();
  };
  return html`<textarea class="rewrite" dir="auto" ref=${field} aria-label="Your version"
    defaultValue=${node.text} onKeyDown=${onKey}></textarea>
    <${Button} label="Save as another version" keys="Ctrl+Enter" onClick=${finish} />`;
}
