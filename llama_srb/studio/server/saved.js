// Whether all that was written is stored: in this browser, and on the server if it keeps stories.

import { session } from "../story/session.js";
import { html, useChanges } from "../ui/ui.js";
import { isEmpty, later, sharing } from "./sync.js";

const others = () =>
  [...sharing.refused.values()].map(({ name, message }) => `; but not “${name}”: ${message}`).join("");

/** "Saved", with where, and what is in the way, as a tooltip. A click sends the story at once. */
export function Saved() {
  useChanges("saved", "story");
  const { id, base, changed } = session.story;
  const { message } = sharing.refused.get(id) ?? {};
  const isShared = sharing.on && base?.at === changed;
  const [word, where] = !session.saved
    ? ["Saving…", "in this browser"]
    : !sharing.on
      ? ["Saved", "in this browser"]
      : session.conflict
        ? ["Saved here", "in this browser; another device has changed the story, too"]
        : sharing.error || message
          ? ["Saved here", `in this browser; not on the server yet: ${sharing.error ?? message}`]
          : isShared
            ? ["Saved", `in this browser and on the server${others()}`]
            : isEmpty(session.story) && !base
              ? ["Saved here", "in this browser; the server gets it with its first words"]
              : ["Saved here", "in this browser; the server gets it in a moment"];
  return html`<button type="button" class="saved" title=${`${word} ${where}`}
    onClick=${() => sharing.on && later(0)}>${word}<span class="unseen"> ${where}</span></button>`;
}
