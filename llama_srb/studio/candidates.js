// The candidates side by side: one card each, filled as text arrives.

import { again, ask, longer, stopOne } from "./asking.js";
import { choose, insert, mark, rewrite, shelve } from "./choosing.js";
import { Tokens } from "./inside.js";
import { Loading } from "./models.js";
import { candidates, isChat, pointId, say, session, setting, wanted } from "./session.js";
import { childrenOf, meanLogprob, wordDiff } from "./tree.js";
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
} from "./ui.js";
import { backToText, noteClick, placeIn, walk } from "./walking.js";

const AT_ONCE = 8; // new cards in one go; 64 would hold up the page
const MANY = 12; // from here on cards are small

export function Candidates() {
  useChanges("story", "settings", "candidates");
  const [aside, setAside] = useState(false);
  const list = useRef();
  useKeptFocus(list);
  const all = childrenOf(session.story, pointId());
  const shown = candidates(aside);
  const hidden = all.filter((node) => node.aside).length;
  const drawn = useRef(new Set());
  let fresh = 0;
  const now = shown.filter(({ id }) => drawn.current.has(id) || fresh++ < AT_ONCE);
  drawn.current = new Set(now.map(({ id }) => id));
  useEffect(() => now.length < shown.length && changed("candidates"));
  const cut = shown.filter(({ state }) => state === "interrupted");
  const finished = new Map();
  for (const node of shown)
    if (node.state !== "running" && !finished.has(node.text)) finished.set(node.text, node.id);
  const isDuplicate = (node) =>
    node.state !== "running" && finished.has(node.text) && finished.get(node.text) !== node.id;
  return html`<section class="candidates" aria-label="Candidates">
    <div class="tools">
      <h2>${shown.length ? `${shown.length} candidate${shown.length > 1 ? "s" : ""}` : "Candidates"}</h2>
      ${
        hidden > 0 &&
        html`<${Button} label=${`${hidden} earlier`} pressed=${aside}
        onClick=${() => setAside(!aside)} />`
      }
      ${
        cut.length > 0 &&
        html`<${Button} label=${`Go on with ${cut.length}`}
          onClick=${() => cut.forEach(({ id }) => longer(id))} />`
      }
      <span class="gap"></span>
      ${
        !isChat() &&
        html`<label class="check" title="Requests the next candidates at once after a choice">
        <input type="checkbox" checked=${session.settings.next}
        onChange=${(event) => setting({ next: event.target.checked })} /> next at once</label>`
      }
      <label class="check"
        title="Colours tokens by surprise; a click shows the alternatives">
        <input type="checkbox" checked=${session.settings.colours}
        onChange=${(event) => setting({ colours: event.target.checked })} /> look inside</label>
      ${
        shown.length > 0 &&
        html`<${Button} label="Reroll"
          about="Others in place of all that are not pinned; these stay behind “earlier”"
          onClick=${() => ask()} />`
      }
    </div>
    <div id="candidates" class=${now.length > MANY ? "cards many" : "cards"} ref=${list} tabindex="0"
      role="group"
      aria-label="Candidates; press 1 to 9 to choose, the arrows to walk, Esc to return to the text"
      onMouseDown=${noteClick} onKeyDown=${(event) => walk(event, list.current)}>
      ${now.map(
        (node, i) => html`<${Card} key=${node.id} id=${node.id} number=${i + 1}
          duplicate=${isDuplicate(node)} />`,
      )}
      ${
        shown.length > 0 &&
        now.length === shown.length &&
        html`<button type="button" class="more" title="More candidates at the same place"
          onClick=${() => ask({ more: true })}>More<small>× ${wanted()}</small></button>`
      }
      ${
        !shown.length &&
        html`<p class="hint">Several continuations by the model will appear here.
        Choose one with a click or its number, and it is added to the text.</p>
        <p class="hint keys">While you write: <kbd>Ctrl</kbd> <kbd>Enter</kbd> asks, <kbd>Alt</kbd> with${" "}
        <kbd>1</kbd> to <kbd>9</kbd> chooses, <kbd>Ctrl</kbd> <kbd>Z</kbd> undoes, <kbd>Tab</kbd>, or
        <kbd>↓</kbd> at the end of the text, goes to the candidates.</p>
        <p class="hint keys">There <kbd>1</kbd> to <kbd>9</kbd> choose, the arrows move, and${" "}
        <kbd>Esc</kbd> returns to the text. <kbd>Shift</kbd> with a click on a word chooses the text
        up to it.</p>
        <${Openings} />`
      }
    </div>
  </section>`;
}

const OPENINGS = [
  "Once upon a time, a little fox found a door in an old tree. Behind the door",
  "Mia and her grandpa had built a boat. One windy morning",
  "It was late, and all the toys were asleep but one. He",
];

/** Openings to choose from on an empty page. */
function Openings() {
  useChanges("text");
  if (session.text || isChat()) return null;
  return html`<div class="openings"><p class="hint">Or begin with one of these:</p>${OPENINGS.map(
    (text) => html`<button type="button" class="opening" key=${text}
      onMouseDown=${(event) => event.preventDefault()}
      onClick=${() => (insert(text), ask())}>${text} …</button>`,
  )}</div>`;
}

const ENDS = {
  stop: "ends here",
  length: "",
  cancelled: "stopped",
  timeout: "out of time",
  interrupted: "interrupted",
  error: "error",
};

const Card = still(({ id, number, duplicate }) => {
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
    if (event.key !== "Enter" || event.target !== event.currentTarget) return;
    event.preventDefault();
    choose(id);
  };
  return html`<article class=${`card ${kind}`} ref=${card} tabindex="-1" aria-label=${label}
    aria-busy=${running} onKeyDown=${onKey} onClickCapture=${(event) => takePart(event, node)}
    onMouseDown=${(event) => partOf(event) && event.preventDefault()}>
    <header><button type="button" class="digit" tabindex="-1" title=${`Choose (${number})`}
      aria-label=${`Choose ${number}`} onClick=${() => take(id)}>${number}</button>
      <${Facts} node=${node} /></header>
    ${
      mode === "edit"
        ? html`<${Rewrite} node=${node} done=${() => setMode("read")} />`
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
    ${
      running
        ? html`<${Act} label="Stop" letter="s" about="No more for this one" onClick=${() => stopOne(id)} />`
        : html`<${Act} label="Longer" letter="l" about="Writes on, still a candidate"
          onClick=${() => longer(id)} />`
    }
    <${Act} label="Again" letter="r" about="Another in its place; this one stays behind “earlier”"
      onClick=${() => again(id)} />
    <${Act} label="Part" letter="w" about="Takes the first words only; so does Shift and a click on a word"
      pressed=${mode === "part"} onClick=${() => setMode(mode === "part" ? "read" : "part")} />
    <${Act} label="Edit" letter="e" about="Your own version, beside it"
      onClick=${() => setMode("edit")} disabled=${running} />
    <${Act} label="Copy" letter="c" onClick=${async () => say(await copy(textNow()))} />
    <${Act} label="Pin" letter="p" about="Stays when the others are rolled again" pressed=${pinned}
      onClick=${() => mark(id, { pinned: !pinned })} />
    <${Act} label="Keep" letter="k" about="Puts it on the shelf, for another place"
      onClick=${() => shelve(textNow())} />
    <${Act} label="Diff" letter="d" about="How the others differ from it, word by word" pressed=${compared}
      onClick=${() => compare(id)} />
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

function Facts({ node }) {
  const mean = meanLogprob(node);
  const length = node.tokens?.length || node.length;
  const { seed: _, ...values } = node.sampling ?? {}; // the request's; node.seed is its own
  const sampling = Object.entries(values).map(([name, value]) => `${name} ${value}`);
  const facts = [
    length && `${length} tokens`,
    ...sampling,
    mean !== null && `logprob ${mean.toFixed(2)}`,
    node.seed !== undefined && `seed ${node.seed}`,
    node.source === "edit" && "yours",
    node.source === "user" && "your text",
    ENDS[node.state],
    node.children.length > 0 && "goes on",
  ].filter(Boolean);
  return html`<span class="facts" title=${facts.join("\n")}>${facts.join(" · ")}</span>`;
}

// ---- the text of a card ------------------------------------------------------------------------------

function Text({ node }) {
  const { colours } = session.settings;
  const compared = session.compare && session.compare !== node.id && session.story.nodes[session.compare];
  if (compared) return html`<${Differences} of=${node.text} from=${compared.text} />`;
  if (colours && node.tokens?.length) return html`<${Tokens} node=${node} />`;
  return html`<div class="text" onClick=${() => String(getSelection()) || take(node.id)}>${node.text}</div>`;
}

/** A click chooses the whole text; the focus stays in the story if it was there. */
function take(id, end = null) {
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
  const end = at + word.exec(text.slice(at))[0].length;
  return end < text.length ? end : null;
}

const Differences = ({ of, from }) =>
  html`<div class="text">${wordDiff(from, of).map(([kind, word]) =>
    kind === "same" ? word : kind === "new" ? html`<ins>${word}</ins>` : html`<del>${word}</del>`,
  )}</div>`;

/** The words one by one: the arrow keys move the end, Enter or a click chooses the marked part. */
function Part({ node, done }) {
  const words = node.text.match(/\s*\S+/g) ?? [];
  const [count, setCount] = useState(Math.min(1, words.length));
  const box = useRef();
  useEffect(() => box.current.focus(), []);
  const take = (n) => {
    const end = words.slice(0, n).join("").length;
    done();
    choose(node.id, end < node.text.length ? end : null);
  };
  const keys = {
    ArrowRight: () => setCount(Math.min(words.length, count + 1)),
    ArrowLeft: () => setCount(Math.max(1, count - 1)),
    Enter: () => take(count),
    Escape: done,
  };
  const onKey = (event) => {
    if (!keys[event.key]) return;
    event.preventDefault();
    event.stopPropagation();
    keys[event.key]();
  };
  return html`<div class="text part" ref=${box} tabindex="0" role="slider" aria-label="Words to take"
    aria-valuemin="1" aria-valuemax=${words.length} aria-valuenow=${count}
    aria-valuetext=${words.slice(0, count).join("")} onKeyDown=${onKey}>
    ${words.map(
      (word, i) => html`<span class=${i < count ? "in" : "out"} onMouseEnter=${() => setCount(i + 1)}
      onClick=${() => take(i + 1)}>${word}</span>`,
    )}</div>`;
}

function Rewrite({ node, done }) {
  const field = useRef();
  useEffect(() => field.current.focus(), []);
  const finish = () => {
    done();
    rewrite(node.id, field.current.value);
  };
  const onKey = (event) => {
    if (event.key === "Escape") (event.preventDefault(), event.stopPropagation(), done());
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) (event.preventDefault(), finish());
  };
  return html`<textarea class="rewrite" ref=${field} aria-label="Your version" defaultValue=${node.text}
    onKeyDown=${onKey}></textarea>
    <${Button} label="Save beside it" keys="Ctrl+Enter" onClick=${finish} />`;
}
