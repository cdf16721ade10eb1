// The list of stories: open, rename, create, delete.

import { Backup } from "../files/backup.js";
import { Files } from "../files/exporting.js";
import { Button, html, useChanges, useState } from "../ui/ui.js";
import { createStory, openPlace, openStory, rename, search } from "./library.js";
import { session } from "./session.js";
import { Trash } from "./trash.js";
import { TITLE } from "./tree.js";

export function Stories() {
  useChanges("story", "stories");
  const { story } = session;
  return html`
    <label class="field">Name <input key=${story.id} maxlength=${TITLE} defaultValue=${story.name}
      onChange=${(event) => rename({ name: event.target.value.trim() || "Untitled" })} /></label>
    <label class="field">Tags <input key=${story.id} defaultValue=${story.tags ?? ""}
      placeholder="fox, winter"
      onChange=${(event) => rename({ tags: event.target.value.trim() })} /></label>
    <div class="field" title="For the spelling, and for quotation marks">Language
      <select aria-label="Language" value=${story.lang ?? ""}
        onChange=${(event) => rename({ lang: event.target.value || undefined })}>
        <option value="">the browser’s</option>
        ${languages(story.lang).map(
          (lang) => html`<option key=${lang} value=${lang}>${nameOf(lang)}</option>`,
        )}
      </select></div>
    <div class="tools">
      <${Button} label="New story" onClick=${() => createStory()} />
      <${Button} label="New chat" onClick=${() => createStory("Chat", "chat")} />
    </div>
    <${Files} />
    <${Backup} />
    <${Search} />
    <ul class="list">${session.stories.map(
      ({ id, name, changed, kind, tags }) => html`<li key=${id}>
      <button type="button" aria-current=${id === story.id ? "true" : undefined}
        onClick=${() => openStory(id)}>
        <strong dir="auto">${id === story.id ? story.name : name}</strong>
        <small>${facts(kind === "chat" && "chat", tags, new Date(changed).toLocaleString())}</small>
        </button></li>`,
    )}</ul>
    <${Trash} />`;
}

const LANGUAGES =
  "ar bg cs da de el en en-GB es fa fi fr he hi hr hu id it ja ko nl no pl pt pt-BR ro ru sk sl sv th tr " +
  "uk vi zh-Hans zh-Hant";

/** The languages to choose from, and the one that a story has. */
const languages = (own) => [...new Set([...LANGUAGES.split(" "), ...(own ? [own] : [])])];
const names = new Intl.DisplayNames("en", { type: "language" });
const nameOf = (lang) => `${names.of(lang)} (${lang})`;

const facts = (...all) => all.filter(Boolean).join(" · ");

const FOUND = 30; // that are shown
const SHOWN = 80; // characters of each

/** Searches all stories: names, tags, and every branch. */
function Search() {
  const [found, setFound] = useState(null);
  const find = async ({ target: { value } }) => setFound(value.trim() ? await search(value.trim()) : null);
  const names = new Map(session.stories.map(({ id, name }) => [id, name]));
  return html`<input type="search" aria-label="Search all stories" placeholder="Search all stories"
    onChange=${find} />
    ${
      found &&
      html`<ul class="list" aria-label="Found">${found.slice(0, FOUND).map(
        (place) => html`<li key=${place.id ?? place.story}>
        <button type="button" onClick=${() => openPlace(place)}><strong>${names.get(place.story)}</strong>
          <small>${place.text?.trim().slice(0, SHOWN)}</small></button></li>`,
      )}</ul><p class="hint">${found.length ? `${found.length} found` : "Nothing found."}</p>`
    }`;
}
