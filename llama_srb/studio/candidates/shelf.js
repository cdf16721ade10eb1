// The shelf: passages kept for another place.

import { isChat, session } from "../story/session.js";
import { Button, html, useChanges } from "../ui/ui.js";
import { insert, shelve, unshelve } from "./choosing.js";

export function Shelf() {
  useChanges("shelf", "story");
  const { scraps } = session.story;
  const keepSelection = () => {
    const field = /** @type {HTMLTextAreaElement | null} */ (document.getElementById("editor"));
    const text = field?.value.slice(field.selectionStart, field.selectionEnd);
    if (text) shelve(text);
  };
  return html`
    ${
      !isChat() &&
      html`<div class="tools"><${Button} label="Keep the selection" onClick=${keepSelection} /></div>`
    }
    ${!scraps.length && html`<p class="hint">“Keep” on a candidate puts it here; the story stays.</p>`}
    <ul class="list">${scraps.map(
      (text, i) => html`<li key=${i}><p class="text" dir="auto">${text}</p><div class="tools">
      <${Button} label="Insert" onClick=${() => insert(text)} disabled=${isChat()} />
      <${Button} label="Remove" onClick=${() => unshelve(i)} /></div></li>`,
    )}</ul>`;
}
