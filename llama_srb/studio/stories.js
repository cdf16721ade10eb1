// The shelf of stories: open, name, new, delete, to files and from files.

import { fromFile, toJson, toMarkdown } from "./exchange.js";
import { adopt, commit, createStory, deleteStory, fail, openStory, renameStory, session } from "./session.js";
import { Button, download, html, useChanges, useRef } from "./ui.js";

export function Stories() {
  useChanges("story", "stories");
  const file = useRef();
  const { story } = session;
  const save = (kind, type, write) => () => {
    commit();
    download(`${story.name.replace(/[^\p{L}\p{N} _-]+/gu, "_")}.${kind}`, type, write(story));
  };
  const read = async () => {
    const [chosen] = file.current.files;
    file.current.value = "";
    if (!chosen) return;
    try {
      await adopt(fromFile(chosen.name, await chosen.text()));
    } catch (error) {
      fail(error);
    }
  };
  return html`
    <label class="field">Name <input value=${story.name} onChange=${(event) => renameStory(event.target.value)} /></label>
    <div class="tools">
      <${Button} label="New story" onClick=${() => createStory()} />
      <${Button} label="New chat" onClick=${() => createStory("Chat", "chat")} />
    </div>
    <div class="tools">
      <${Button} label="Export Markdown" onClick=${save("md", "text/markdown", toMarkdown)} />
      <${Button} label="Export JSON" onClick=${save("json", "application/json", toJson)} />
      <${Button} label="Import" onClick=${() => file.current.click()} />
      <input type="file" ref=${file} hidden accept=".json,.md,.txt,.markdown" aria-label="File to import" onChange=${read} />
    </div>
    <ul class="list">${session.stories.map(
      ({ id, name, changed, kind }) => html`<li key=${id}>
      <button type="button" aria-current=${id === story.id ? "true" : undefined} onClick=${() => openStory(id)}>
        <strong>${id === story.id ? story.name : name}</strong>
        <small>${kind === "chat" ? "chat · " : ""}${new Date(changed).toLocaleString()}</small></button></li>`,
    )}</ul>
    <${Button} label="Delete this story" kind="danger"
      onClick=${() => confirm(`Delete “${story.name}” with all its branches?`) && deleteStory()} />`;
}
