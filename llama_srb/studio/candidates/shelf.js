// The shelf: passages kept for another place.

import { between } from "../story/passages.js";
import { isChat, session } from "../story/session.js";
import { spans } from "../story/tree.js";
import { Button, html, useChanges } from "../ui/ui.js";
import { insert, shelve, unshelve } from "./choosing.js";

/** `toText`: leads from a click to the text. */
export function Shelf({ toText }) {
  useChanges("shelf", "story");
  const { scraps } = session.story;
  const keepSelection = () => {
    const field = /** @type {HTMLTextAreaElement | null} */ (document.getElementById("editor"));
    if (!field || field.selectionStart === field.selectionEnd) return;
    shelve(between(spans(session.story, field.value), field.selectionStart, field.selectionEnd));
  };
  const put = (text) => (event) => {
    insert(text);
    toText(event);
  };
  return html`
    ${
      !isChat() &&
      html`<div class="tools"><${Button} label="Keep the selection" onClick=${keepSelection} /></div>`
    }
    ${!scraps.length && html`<p class="hint">“Keep” on a candidate puts it here; the story stays.</p>`}
    <ul class="list">${scraps.map(
      (text, i) => html`<li key=${i}><p class="text" dir="auto">${text}</p><div class="tools">
      <${Button} label="Insert" onClick=${put(text)} disabled=${isChat()} />
      <${Button} label="Remove" onClick=${() => unshelve(i)} /></div></li>`,
    )}</ul>`;
}
