// The page: its layout, and the keys that work everywhere.

import { Background } from "./background/background.js";
import { Candidates } from "./candidates/candidates.js";
import { choose } from "./candidates/choosing.js";
import { Shelf } from "./candidates/shelf.js";
import { stopAll } from "./candidates/stopping.js";
import { leadToText, toText } from "./candidates/walking.js";
import { keepForGood } from "./files/backup.js";
import { takeDrops } from "./files/importing.js";
import { Saved } from "./server/saved.js";
import { Notices, Status, watch } from "./server/status.js";
import { share } from "./server/sync.js";
import { Controls } from "./settings/controls.js";
import { Branches } from "./story/branches.js";
import { begin } from "./story/library.js";
import { candidates, isChat, lost, say, session, tunable } from "./story/session.js";
import { Stories } from "./story/stories.js";
import { Title } from "./story/title.js";
import { Chat } from "./text/chat.js";
import { Editor } from "./text/editor.js";
import { seekSelected } from "./text/find.js";
import { commit, redo, undo } from "./text/history.js";
import { Outline } from "./text/outline.js";
import { Keys, openKeys } from "./ui/keys.js";
import { atOnce, Button, html, isComposing, render, useChanges, useEffect, useState } from "./ui/ui.js";

/** The page of tasks; its code is loaded when it is opened. */
function Tasks() {
  const [View, setView] = useState(null);
  useEffect(() => {
    import("./tasks/tuning.js").then(({ Tuning }) => setView(() => Tuning), lost);
  }, []);
  return View && html`<${View} />`;
}

const FIND = ".find input[type=search]";
const COVERED = "(max-width: 1000px)"; // where panels cover the text
const TASKS = "tasks"; // a page instead of a panel, for those who may tune tasks
const PANELS = {
  stories: ["Stories", Stories],
  outline: ["Outline", Outline],
  branches: ["Branches", Branches],
  settings: ["Settings", Controls],
  background: ["Background", Background],
  shelf: ["Shelf", Shelf],
  [TASKS]: ["Tasks", Tasks],
};
const IF = { [TASKS]: () => tunable().length, background: () => !isChat() };
const panels = () => Object.entries(PANELS).filter(([name]) => IF[name]?.() ?? true);

function Page() {
  useChanges("story", "stories", "tasks");
  const [panel, setPanel] = useState(null);
  useEffect(() => {
    const onKey = (event) => {
      if (isFind(event)) {
        event.preventDefault();
        seekSelected();
        atOnce(() => setPanel("outline"), "sought");
        const field = /** @type {HTMLInputElement} */ (document.querySelector(FIND));
        field.focus();
        field.select();
      }
      if (event.key !== "Escape" || event.defaultPrevented || isElsewhere(event)) return;
      atOnce(() => setPanel(null)); // which draws the text, that the page of tasks hides
      /** @type {HTMLElement} */ (document.querySelector("#editor, .say textarea")).focus();
    };
    addEventListener("keydown", onKey);
    return () => removeEventListener("keydown", onKey);
  }, []);
  const isPage = panel === TASKS;
  /** Leads from a click in a panel to the text, that it may cover. */
  const leave = async (event) => {
    if (matchMedia(COVERED).matches) setPanel(null);
    await leadToText(event);
  };
  const Panel = panel && !isPage && PANELS[panel][1];
  return html`
    <header class="bar">
      <${Title} />
      <nav aria-label="Panels">
        ${panels().map(
          ([name, [label]]) => html`<${Button} key=${name} label=${label}
          pressed=${panel === name} onClick=${() => setPanel(panel === name ? null : name)} />`,
        )}
      </nav>
      <${Saved} />
      <${Status} />
      <${Keys} />
    </header>
    <${Notices} />
    <main class=${isPage ? "page-of-tasks" : panel ? "with-panel" : ""}>
      ${isPage && html`<${Tasks} />`}
      ${
        Panel &&
        html`<aside class=${`panel panel-${panel}`} aria-label=${PANELS[panel][0]}
          inert=${session.elsewhere && panel !== "stories"}>
        <div class="panel-head"><h2>${PANELS[panel][0]}</h2>
          <${Button} label="Close" icon="✕" keys="Esc" onClick=${() => setPanel(null)} /></div>
        <${Panel} toText=${leave} /></aside>`
      }
      <div class="columns" inert=${session.elsewhere} hidden=${isPage}>
        ${isChat() ? html`<${Chat} />` : html`<${Editor} />`}
        <${Candidates} />
      </div>
    </main>
    <${Said} />`;
}

/** Whether a key asks to find in the text, of which the browser would find only what is drawn. In our own
    field the key asks for the browser's find. */
const isFind = ({ key, ctrlKey, metaKey, altKey, shiftKey, target }) =>
  key === "f" && (ctrlKey || metaKey) && !altKey && !shiftKey && hasText() && !target.closest?.(FIND);

const hasText = () => !session.elsewhere && document.querySelector(".columns:not([hidden]) #editor");

function Said() {
  useChanges("said");
  return html`<p class="unseen" role="status">${session.said}</p>`;
}

const KEYS = {
  z: (event) => (event.shiftKey ? redo() : undo()),
  y: redo,
};

const FIELDS = "input, textarea, select, #editor"; // which take letters

/** The candidate that a key chooses, by the key's place: with Alt a Mac makes other characters of digits. */
function numberOf({ key, code, altKey, shiftKey, target }) {
  const digit = /^Digit([1-9])$/.exec(code)?.[1];
  if (altKey) return digit;
  if (target.closest?.(FIELDS)) return null;
  return /^[1-9]$/.test(key) ? key : !shiftKey && digit;
}

/** Whether a key is for an input method, or for a panel above the page, which the browser closes. */
const isElsewhere = (event) => isComposing(event) || document.querySelector(":popover-open");

function onKey(event) {
  if (session.elsewhere || document.querySelector(".columns[hidden]") || isElsewhere(event)) return;
  const command = event.ctrlKey || event.metaKey;
  const field = event.target.closest?.("input, select, textarea");
  const isWriting = !field || field.closest(".say");
  const number = !command && isWriting && numberOf(event);
  if (event.key === "?" && !event.target.closest?.(FIELDS)) {
    event.preventDefault();
    openKeys();
  } else if (command && KEYS[event.key.toLowerCase()] && !field) {
    event.preventDefault();
    KEYS[event.key.toLowerCase()](event);
  } else if (number) {
    commit();
    const node = candidates()[number - 1];
    if (!node) return;
    event.preventDefault();
    choose(node.id);
    if (event.target.closest?.(".candidates")) toText();
    say(`candidate ${number} chosen`);
  } else if (event.key === "Escape" && session.runs.size) {
    event.preventDefault();
    stopAll();
  }
}

await begin();
keepForGood();
share();
addEventListener("keydown", onKey);
takeDrops();
render(html`<${Page} />`, document.body);
watch();
// not on plain http from another machine
navigator.serviceWorker?.register("studio/worker.js", { scope: "./" }).catch(() => {});
