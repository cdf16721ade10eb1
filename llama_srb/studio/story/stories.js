// The list of stories: open, rename, create, delete.

import { Backup } from "../files/backup.js";
import { Files } from "../files/exporting.js";
import { lineAround } from "../text/places.js";
import { Button, html, useChanges, useEffect, useRef, useState } from "../ui/ui.js";
import { beginOf, forget, openPlace, search } from "./finding.js";
import { createStory, openStory, rename } from "./library.js";
import { session } from "./session.js";
import { Trash } from "./trash.js";
import { isUnnamed, shownName, TITLE } from "./tree.js";

export function Stories({ toText }) {
  useChanges("story", "stories");
  const { story } = session;
  const name = shownName(story);
  /** Opens a story, and leads to its text. */
  const by = (open) => async (event) => {
    await open();
    toText(event);
  };
  return html`
    <label class="field">Name <input key=${`${story.id} ${name}`} maxlength=${TITLE} defaultValue=${name}
      onChange=${(event) => rename({ name: event.target.value.trim() || "Untitled" })} /></label>
    <label class="field">Tags <input key=${story.id} defaultValue=${story.tags ?? ""}
      placeholder="fox, winter"
      onChange=${(event) => rename({ tags: event.target.value.trim() })} /></label>
    <div class="field" title="For the spelling, and for quotation marks">Language
      <select aria-label="Language" value=${story.lang ?? ""}
        onChange=${(event) => rename({ lang: event.target.value || undefined })}>
        <option value="">the browser’s</option>
        ${languages(story.lang).map(
          (lang) => html`<option key=${lang} value=${lang}>${languageOf(lang)}</option>`,
        )}
      </select></div>
    <div class="tools">
      <${Button} label="New story" onClick=${by(() => createStory())} />
      <${Button} label="New chat" onClick=${by(() => createStory("Chat", "chat"))} />
    </div>
    <${Files} toText=${toText} />
    <${Backup} />
    <${Search} by=${by} />
    <ul class="list">${session.stories.map(
      (head) => html`<li key=${head.id}>
      <button type="button" aria-current=${head.id === story.id ? "true" : undefined}
        onClick=${by(() => openStory(head.id))}>
        <${Name} head=${head} />
        <small>${facts(...aboutOf(head))}</small>
        </button></li>`,
    )}</ul>
    <${Trash} by=${by} />`;
}

const LANGUAGES =
  "ar bg cs da de el en en-GB es fa fi fr he hi hr hu id it ja ko nl no pl pt pt-BR ro ru sk sl sv th tr " +
  "uk vi zh-Hans zh-Hant";

/** The languages to choose from, and the one that a story has. */
const languages = (own) => [...new Set([...LANGUAGES.split(" "), ...(own ? [own] : [])])];
const names = new Intl.DisplayNames("en", { type: "language" });
const languageOf = (lang) => `${names.of(lang)} (${lang})`;

const facts = (...all) => all.filter(Boolean).join(" · ");

/** @type {(head: import("./tree.js").Head) => any[]} */
const aboutOf = ({ kind, tags, changed }) => [
  kind === "chat" && "chat",
  tags,
  new Date(changed).toLocaleString(),
];

const MOST = 30; // places that are shown
const OF_EACH = 5; // of a story
const SHOW_MS = 150; // between what is shown of a search that goes on

/** The name of a story; one that has none shows its first words. */
function Name({ head }) {
  const [begin, setBegin] = useState("");
  const { id, name, changed } = head;
  const isOpen = id === session.story.id;
  const isBare = !isOpen && isUnnamed(head);
  useEffect(() => {
    if (isBare) beginOf(head).then(setBegin);
  }, [id, changed, isBare]);
  return html`<strong dir="auto">${isOpen ? shownName(session.story) : (isBare && begin) || name}</strong>`;
}

/** Searches all stories while the words are typed: names, tags, the texts and every branch. */
function Search({ by }) {
  const [found, setFound] = useState(null);
  const latest = useRef(); // the search whose places are wanted
  useEffect(
    () => () => {
      latest.current = null;
      forget();
    },
    [],
  );
  const seek = async ({ target: { value } }) => {
    const words = value.trim();
    const one = { places: [], count: 0, of: new Map(), isOver: false };
    latest.current = one;
    if (!words) return setFound(null);
    let shown = performance.now();
    for await (const place of search(words)) {
      if (latest.current !== one) return;
      if (place) take(one, place);
      if (performance.now() - shown < SHOW_MS) continue;
      setFound({ ...one });
      shown = performance.now();
    }
    if (latest.current === one) setFound({ ...one, isOver: true });
  };
  return html`<input type="search" aria-label="Search all stories" placeholder="Search all stories"
    onInput=${seek} />
    ${
      found &&
      html`<ul class="list" aria-label="Found">${found.places.map(
        (place) => html`<li key=${`${place.story.id} ${place.id ?? ""} ${place.at}`}>
        <button type="button" onClick=${by(() => openPlace(place))}>
        <${Name} head=${place.story} /><${Context} place=${place} /></button></li>`,
      )}</ul><p class="hint" role="status">${summary(found)}</p>`
    }`;
}

function take(found, place) {
  const { id } = place.story;
  const count = (found.of.get(id) ?? 0) + 1;
  found.of.set(id, count);
  found.count++;
  if (count <= OF_EACH && found.places.length < MOST) found.places.push(place);
}

function summary({ count, places, isOver }) {
  if (!isOver) return `${count} found so far`;
  if (!count) return "Nothing found.";
  return count > places.length ? `${count} found, ${places.length} of them shown` : `${count} found`;
}

/** The line around the words; of a story that is found by its name, its tags. */
function Context({ place: { story, id, text, at, length } }) {
  if (text === undefined) return html`<small>${facts(story.tags)}</small>`;
  const [before, behind] = lineAround(text, at, length);
  const found = text.slice(at, at + length);
  return html`<small dir="auto">${id ? "in a branch: " : ""}${before}<mark>${found}</mark>${behind}</small>`;
}
