// The candidates side by side: one card each, filled as text arrives.

import { candidates, isChat, pointId, session, setting, wanted } from "../story/session.js";
import { pointing } from "../text/preview.js";
import { Menu } from "../ui/menu.js";
import { Button, changed, html, useChanges, useEffect, useKeptFocus, useRef, useState } from "../ui/ui.js";
import { ask, ENDS_HERE, longer } from "./asking.js";
import { NeverAgain } from "./banning.js";
import { Card } from "./card.js";
import { insert } from "./choosing.js";
import { isReading, Pager, ReadingSwitch } from "./reading.js";
import { noteClick, walk } from "./walking.js";

const AT_ONCE = 8; // new cards in one go; 64 would hold up the page
const MANY = 12; // from here on cards are small

export function Candidates() {
  useChanges("story", "settings", "candidates");
  const [aside, setAside] = useState(false);
  const list = useRef();
  useKeptFocus(list);
  const { ends } = session.story.nodes[pointId()];
  const shown = candidates(aside);
  const hidden = candidates(true).filter((node) => node.aside);
  const kept = hidden.some(({ state }) => state === "pruned") ? "set aside" : "earlier";
  const drawn = useRef(new Set());
  let fresh = 0;
  const now = shown.filter(({ id }) => drawn.current.has(id) || fresh++ < AT_ONCE);
  drawn.current = new Set(now.map(({ id }) => id));
  useEffect(() => now.length < shown.length && changed("candidates"));
  const reading = isReading() && now.length > 0;
  const kind = reading ? "cards reading" : now.length > MANY ? "cards many" : "cards";
  useEffect(() => list.current.scrollTo(0, 0), [pointId()]);
  const cut = shown.filter(({ state }) => state === "interrupted");
  const resume = () => {
    for (const { id } of cut) longer(id);
  };
  const finished = new Map();
  for (const node of shown)
    if (node.state !== "running" && !finished.has(node.text)) finished.set(node.text, node.id);
  const isDuplicate = (node) =>
    node.state !== "running" && finished.has(node.text) && finished.get(node.text) !== node.id;
  return html`<section class="candidates" aria-label="Candidates"
      onKeyDown=${(event) => walk(event, list.current)}>
    <div class="tools">
      ${
        reading
          ? html`<${Pager} list=${list} ids=${now.map(({ id }) => id)} />`
          : html`<h2>${counted(now.length)}</h2>`
      }
      ${
        hidden.length > 0 &&
        html`<${Button} label=${`${hidden.length} ${kept}`} pressed=${aside}
        onClick=${() => setAside(!aside)} />`
      }
      ${
        cut.length > 0 &&
        html`<${Button} label=${`Resume ${cut.length} interrupted`}
          onClick=${resume} />`
      }
      <span class="gap"></span>
      <${NeverAgain} />
      ${shown.length > 0 && html`<span class="hint way-back"><kbd>Esc</kbd> leads to the text</span>`}
      ${
        shown.length > 0 &&
        html`<${ReadingSwitch} />
        <${Button} label="Reroll" kind="reroll"
          about="Others in place of all that are not pinned; these stay behind “earlier”"
          onClick=${() => ask({ replaces: session.replaces })} />`
      }
      <${Menu} label="Options" icon="⋯"><${Options} /><//>
    </div>
    <div id="candidates" class=${kind} ref=${list} tabindex="0" role="group"
      aria-label="Candidates; press 1 to 9 to choose, the arrows to walk, Esc to return to the text"
      onMouseDown=${noteClick} ...${pointing}>
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
      <${Ended} />
      ${!shown.length && !ends && (isChat() ? ABOUT_ANSWERS : html`${ABOUT_SUGGESTIONS}<${Openings} />`)}
    </div>
  </section>`;
}

const ABOUT_SUGGESTIONS = html`<p class="hint">Suggestions for what comes next appear here.
    Choose one with a click or its number, and it is added to the text.</p>
  <p class="hint keys">While you write: <kbd>Ctrl</kbd> <kbd>Enter</kbd> asks, <kbd>Alt</kbd> with${" "}
    <kbd>1</kbd> to <kbd>9</kbd> chooses, <kbd>Ctrl</kbd> <kbd>Z</kbd> undoes, <kbd>Tab</kbd>, or${" "}
    <kbd>↓</kbd> at the end of the text, goes to the candidates.</p>
  <p class="hint keys">There <kbd>1</kbd> to <kbd>9</kbd> choose, the arrows move, and${" "}
    <kbd>Esc</kbd> returns to the text. <kbd>Shift</kbd> with a click on a word chooses the text
    up to it.</p>`;
const ABOUT_ANSWERS = html`<p class="hint">Answers to your message appear here.
    Choose one with a click or its number, and the chat goes on behind it.</p>
  <p class="hint keys">While you write: <kbd>Enter</kbd> sends, <kbd>Shift</kbd> <kbd>Enter</kbd> begins
    a line, <kbd>Alt</kbd> with <kbd>1</kbd> to <kbd>9</kbd> chooses.</p>`;

const counted = (n) => (n ? `${n} candidate${n > 1 ? "s" : ""}` : "Candidates");

const OPTIONS = {
  next: ["Suggest again after choosing", "Requests the next candidates at once after a choice"],
  colours: ["Show word odds", "Colours tokens by surprise; a click shows the alternatives"],
};

const Options = () =>
  Object.entries(OPTIONS)
    .filter(([name]) => name !== "next" || !isChat())
    .map(
      ([name, [label, about]]) => html`<label class="check" key=${name} title=${about}>
      <input type="checkbox" checked=${session.settings[name]}
      onChange=${(event) => setting({ [name]: event.target.checked })} />${" "}${label}</label>`,
    );

/** Says that candidates had no text, in place of blank cards. */
function Ended() {
  const { ends } = session.story.nodes[pointId()];
  if (!ends) return null;
  const anyway = () => ask({ n: ends.model, more: true, anyway: true });
  return html`<div class="ended">${
    ends.model
      ? html`<p>${ENDS_HERE}</p><${Button} label="Write on anyway" onClick=${anyway} />`
      : html`<p>Each text would begin with a stop string. They are listed under Settings.</p>`
  }</div>`;
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
  const openWith = (text) => {
    insert(text);
    ask();
  };
  return html`<div class="openings"><p class="hint">Or begin with one of these:</p>${OPENINGS.map(
    (text) => html`<button type="button" class="opening" key=${text}
      onMouseDown=${(event) => event.preventDefault()}
      onClick=${() => openWith(text)}>${text} …</button>`,
  )}</div>`;
}
