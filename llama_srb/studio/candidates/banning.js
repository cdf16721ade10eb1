// Banned phrases as a writer sees them: the lists in the settings, and a button for what is selected.

import { isChat, say, session } from "../story/session.js";
import { Button, html, useChanges, useEffect, useState } from "../ui/ui.js";
import { banInAll, banInStory, isBanned, toggle } from "./banned.js";

const MOST = 100; // characters of a phrase

const ABOUT = "In any case of letters, and also within words: “art” bans “party”, too.";

/** The two lists. */
export function Banned() {
  useChanges("banned", "settings", "story");
  const list = (label, value, put) =>
    html`<label class="field">${label}
      <textarea rows="2" value=${value} onInput=${({ target }) => put(target.value)}></textarea></label>`;
  return html`<fieldset class="banned"><legend>Never again</legend>
    ${list("Phrases banned in this story, one a line", session.story.banned ?? "", banInStory)}
    ${list("Phrases banned in all stories, one a line", session.settings.banned, banInAll)}
    <small class="hint">${ABOUT}</small></fieldset>`;
}

/** What is selected in the text, or in a candidate. */
function selectedPhrase() {
  const { selected, text } = session;
  if (selected && !isChat()) return text.slice(...selected).trim();
  const selection = getSelection();
  const from = selection?.anchorNode?.parentElement;
  return from?.closest(".card .text") ? String(selection).trim() : "";
}

/** A button, while a phrase is selected: no candidate has it from then on. */
export function NeverAgain() {
  useChanges("selected", "banned", "settings");
  const [phrase, setPhrase] = useState("");
  useEffect(() => {
    const look = () => setPhrase(selectedPhrase());
    look();
    document.addEventListener("selectionchange", look);
    return () => document.removeEventListener("selectionchange", look);
  }, [session.selected]);
  if (!phrase || phrase.length > MOST) return null;
  const banned = isBanned(phrase);
  const press = () => {
    toggle(phrase);
    say(`“${phrase}” ${banned ? "may come again" : "is banned in this story"}`);
  };
  return html`<span onMouseDown=${(event) => event.preventDefault()}><${Button} label="Never again"
    about=${`No candidate has “${phrase}” from now on, in any case; the lists are under Settings`}
    pressed=${banned} onClick=${press} /></span>`;
}
