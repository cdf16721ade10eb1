// The story's title in the bar, which is edited in place, and in the browser's tab.

import { toText } from "../candidates/walking.js";
import { html, isComposing, isTouched, useChanges, useEffect, useRef, useState } from "../ui/ui.js";
import { nameStory, session } from "./session.js";
import { shownName, TITLE } from "./tree.js";

export function Title() {
  useChanges("story", "stories");
  const { id } = session.story;
  const name = shownName(session.story);
  const [editing, setEditing] = useState(null); // the id of the story whose title is edited
  const field = useRef();
  useEffect(() => void (document.title = `${name} · llama-srb studio`), [name]);
  useEffect(() => field.current?.select(), [editing]);
  const take = ({ target: { value } }) => {
    setEditing(null);
    const title = value.trim();
    if (title && title !== name) nameStory({ name: title });
  };
  const onKey = (event) => {
    if (isComposing(event)) return;
    if (event.key === "Escape") event.target.value = name;
    if (event.key !== "Escape" && event.key !== "Enter") return;
    event.stopPropagation();
    event.target.blur();
    if (!isTouched()) toText(); // with a finger the keyboard would stay
  };
  return html`<h1 dir="auto">${
    editing === id
      ? html`<input ref=${field} class="title" aria-label="Title" maxlength=${TITLE} defaultValue=${name}
        onBlur=${take} onKeyDown=${onKey} />`
      : html`<button type="button" class="title" title="Edit the title" disabled=${session.elsewhere}
        onClick=${() => setEditing(id)}>${name}</button>`
  }</h1>`;
}
