// A chat: its messages, and a field for the next one. The answers to choose from are the candidates.

import { ask } from "../candidates/asking.js";
import { sayInChat } from "../candidates/choosing.js";
import { stopAll } from "../candidates/stopping.js";
import { session, wanted } from "../story/session.js";
import * as store from "../story/store.js";
import { childrenOf, pathTo } from "../story/tree.js";
import { Button, html, isComposing, useChanges, useEffect, useRef } from "../ui/ui.js";
import { goTo } from "./history.js";

export function Chat() {
  useChanges("story", "status", "settings");
  const { story } = session;
  const field = useRef();
  const end = useRef();
  useEffect(() => end.current.scrollIntoView({ block: "nearest" }), [story.current]);
  const send = () => {
    const text = field.current.value.trim();
    field.current.value = "";
    if (text) sayInChat(text);
    else if (story.current !== story.root) ask();
  };
  const onKey = (event) => {
    if (event.key !== "Enter" || event.shiftKey || isComposing(event)) return;
    event.preventDefault();
    send();
  };
  const instruct = (event) => {
    story.system = event.target.value;
    store.keep(story);
  };
  return html`<section class="write chat" aria-label="Chat">
    <details class="system"><summary>System prompt</summary>
      <textarea aria-label="System prompt" rows="3" value=${story.system}
        onInput=${instruct}></textarea></details>
    <ol class="sheet">${pathTo(story)
      .filter((node) => node.parent)
      .map(
        (node) => html`<${Said} key=${node.id}
      node=${node} />`,
      )}<li ref=${end}></li></ol>
    <div class="tools say">
      <textarea ref=${field} rows="2" aria-label="Your message" placeholder="Say something; Enter sends"
        onKeyDown=${onKey}></textarea>
      ${
        session.runs.size
          ? html`<${Button} label="Stop all" keys="Esc" onClick=${stopAll} />`
          : html`<${Button} label=${`Send × ${wanted()}`} keys="Enter" kind="main"
            onClick=${send} />`
      }
    </div></section>`;
}

/** One message; when there are several answers, the arrows switch between them. */
function Said({ node }) {
  const siblings = childrenOf(session.story, node.parent).filter((one) => one.source === node.source);
  const i = siblings.indexOf(node);
  const last = i + 1 === siblings.length;
  const step = (by) => goTo(siblings[i + by].id);
  const more = () => {
    goTo(node.parent);
    ask({ more: true });
  };
  return html`<li class=${node.source === "user" ? "said by-user" : "said by-model"}>
    <p class="text" dir="auto">${node.text}</p>
    ${
      siblings.length > 1 &&
      html`<div class="swipe">
      <${Button} label="The one before" icon="‹" disabled=${i === 0} onClick=${() => step(-1)} />
      ${i + 1} / ${siblings.length}
      ${
        last && node.source === "model"
          ? html`<${Button} label="More answers" icon="›+" onClick=${more} />`
          : html`<${Button} label="The next one" icon="›" disabled=${last} onClick=${() => step(1)} />`
      }</div>`
    }
  </li>`;
}
