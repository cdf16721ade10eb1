// The trash: stories that were deleted, until the writer removes them for ever.

import { leadToText } from "../candidates/walking.js";
import { Button, html, useChanges } from "../ui/ui.js";
import { discard, removeForever, restore } from "./library.js";
import { session } from "./session.js";
import { shownName } from "./tree.js";

/** `by`: leads to the text that an action opens. */
export function Trash({ by }) {
  useChanges("stories");
  const { trash, story } = session;
  const remove = (heads, what) =>
    confirm(`Remove ${what} for ever, with all branches?`) && removeForever(heads);
  const about = `Moves “${shownName(story)}” to the trash`;
  return html`<${Button} label="Move to the trash" kind="danger" about=${about}
      onClick=${(event) => discard().then(() => leadToText(event))} />
    ${
      trash.length > 0 &&
      html`<details class="trash"><summary>Trash (${trash.length})</summary>
      <ul class="list">${trash.map(
        (head) => html`<li key=${head.id}><span>${head.name}</span>
        <${Button} label="Restore" about=${`Restores “${head.name}”`} onClick=${by(() => restore(head))} />
        <${Button} label="Remove for ever" kind="danger"
          onClick=${() => remove([head], `“${head.name}”`)} /></li>`,
      )}</ul>
      <${Button} label="Empty the trash" kind="danger"
        onClick=${() => remove(trash, `${trash.length} ${trash.length === 1 ? "story" : "stories"}`)} />
      </details>`
    }`;
}
