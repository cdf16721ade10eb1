// The sheet of keys, which "?" opens; the table of docs/studio.md has the same rows.

import { html, isTouched, useRef } from "./ui.js";

const KEYS = [
  ["Ctrl+Enter", "text", "candidates at the caret; what follows the caret stays behind the chosen one"],
  [
    "Ctrl+Enter with a selection",
    "text",
    "rewrites of the selection; what follows it stays behind the chosen one",
  ],
  ["Alt+1 to Alt+9", "everywhere but in other fields", "choose"],
  ["Tab, or Down at the end of the text", "text", "go to the candidates"],
  ["1 to 9", "candidates", "choose, and go back to the text"],
  ["arrows, Enter", "candidates", "walk (in rows and columns), choose and go back to the text"],
  ["j, k", "candidates", "the next one, the one before"],
  ["v", "candidates", "read one at a time, large; again: all side by side"],
  ["s, l, r, w, e, c, p, h, d", "on a candidate", "stop, longer, again, part, edit, copy, pin, keep, diff"],
  ["Ctrl+Z, Ctrl+Shift+Z", "everywhere but in other fields", "undo and redo, of typing and of choices"],
  ["Esc", "everywhere", "stop all; if nothing runs, close the panel and go back to the text"],
  ["Ctrl+F", "everywhere in a story", "find and replace, in Outline; in its field: the browser's find"],
  ["?", "outside of fields", "this sheet"],
];

const ID = "keys";

const sheetOfKeys = () => /** @type {HTMLDialogElement} */ (document.getElementById(ID));
export const openKeys = () => sheetOfKeys().showModal();

/** The button that opens the sheet, and the sheet; a phone has no keys, and one with a keyboard has "?". */
export function Keys() {
  const sheet = useRef();
  const opener = html`<button type="button" class="button" title="Keys (?)" aria-label="Keys"
      onClick=${openKeys}><span aria-hidden="true">?</span></button>`;
  return html`${!isTouched() && opener}
    <dialog class="keys-sheet" id=${ID} ref=${sheet} aria-label="Keys"
      onKeyDown=${(event) => event.stopPropagation()}
      onClick=${({ target }) => target === sheet.current && sheet.current.close()}>
      <div><div class="panel-head"><h2>Keys</h2>
        <button type="button" class="button" title="Close (Esc)" aria-label="Close" autofocus
          onClick=${() => sheet.current.close()}><span aria-hidden="true">✕</span></button></div>
        <table><thead><tr>${["key", "where", "what"].map(
          (head) => html`<th key=${head} scope="col">${head}</th>`,
        )}</tr></thead>
        <tbody>${KEYS.map(
          ([keys, where, what]) => html`<tr key=${keys}><td><kbd>${keys}</kbd></td><td>${where}</td>
          <td>${what}</td></tr>`,
        )}</tbody></table>
      </div></dialog>`;
}
