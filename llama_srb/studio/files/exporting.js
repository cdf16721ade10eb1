// The buttons that save the open story as a file, and the one that imports files.

import { nameByItsWords, session } from "../story/session.js";
import * as store from "../story/store.js";
import { textOf } from "../story/tree.js";
import { commit } from "../text/history.js";
import { Button, download, html, isTouched, useRef } from "../ui/ui.js";
import { toJson, toMarkdown } from "./exchange.js";
import { importFiles, tellExport } from "./importing.js";
import { notesOf } from "./paragraphs.js";
import { DOCX, toDocx } from "./todocx.js";
import { EPUB, toEpub } from "./toepub.js";

/** @import { Story } from "../story/tree.js" */

const AUTHOR = "studio.author";

/** `hasNotes`: it has notes of its own.
    @type {[label: string, ending: string, type: string, write: (story: Story) => any, hasNotes?: true][]} */
const KINDS = [
  ["Markdown", "md", "text/markdown", toMarkdown],
  ["Word", "docx", DOCX, (story) => toDocx(story.name, textOf(story)), true],
  ["EPUB", "epub", EPUB, (story) => toEpub(aboutOf(story), textOf(story)), true],
  ["JSON", "json", "application/json", toJson],
];

/** @type {(story: Story) => import("./toepub.js").About} */
const aboutOf = ({ id, name, changed, lang }) => ({
  id,
  title: name,
  author: store.read(AUTHOR, ""),
  language: lang || navigator.language || "en",
  changed,
});

/** @type {(ending: string, type: string, write: (story: Story) => any, hasNotes?: true) => Promise<void>} */
async function save(ending, type, write, hasNotes) {
  commit();
  nameByItsWords();
  const { story } = session;
  const parts = [await write(story)].flat();
  const file = `${story.name.replace(/[^\p{L}\p{N} _-]+/gu, "_")}.${ending}`;
  download(file, type, ...parts);
  if (hasNotes) tellExport(file, notesOf(textOf(story)).warnings);
}

/** `toText`: leads to the text of a story that is imported. */
export function Files({ toText }) {
  const file = useRef();
  const read = async () => {
    const chosen = [...file.current.files];
    const { id } = session.story;
    file.current.value = "";
    await importFiles(chosen);
    if (session.story.id !== id) toText({ pointerType: isTouched() ? "touch" : "" });
  };
  return html`<div class="tools">
      ${KINDS.map(
        ([label, ...kind]) => html`<${Button} key=${label} label=${`Export ${label}`}
        onClick=${() => save(...kind)} />`,
      )}
      <${Button} label="Import" onClick=${() => file.current.click()} />
      <input type="file" ref=${file} hidden multiple aria-label="File to import" onChange=${read} />
    </div>
    <label class="field" title="Stands in EPUB files">Author <input autocomplete="name"
      defaultValue=${store.read(AUTHOR, "")}
      onChange=${({ target }) => store.save(AUTHOR, target.value.trim())} /></label>`;
}
