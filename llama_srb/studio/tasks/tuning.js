// The page of tasks: a task's draft, and beside it trials of it and of the configured task, its exact prompt,
// a search in its memory, its TOML.

import { say, session, tunable } from "../story/session.js";
import { NumberField } from "../ui/fields.js";
import { Button, copy, download, html, useChanges, useEffect, useState, visible } from "../ui/ui.js";
import { DraftForm } from "./draftform.js";
import { tomlOf } from "./drafts.js";
import {
  input,
  learnMemories,
  learnPrompts,
  openTask,
  prompts,
  resetDraft,
  runTrials,
  SIDES,
  search,
  show,
  stop,
  tuning,
} from "./trials.js";

const MOST_SEED = 2 ** 32 - 2;
const PAUSE_MS = 300; // after an edit, before prompts are made again
const FOUND = 5; // chunks of a search, unless the draft has a number

const VIEWS = {
  edit: ["Edit", Compare], // beside the form, if there is room for both
  compare: ["Compare", Compare],
  prompt: ["Prompt", Prompt],
  memory: ["Memory", Memory],
  toml: ["TOML", Toml],
};

export function Tuning() {
  useChanges("tuning", "tasks");
  useEffect(() => {
    openTask(tuning.task?.id).catch(() => {}); // the status says that the server does not answer
    learnMemories().catch(() => {});
  }, [session.tasks]);
  useEffect(() => {
    addEventListener("keydown", onKey, true); // before the page's own, which Escape closes
    return () => removeEventListener("keydown", onKey, true);
  }, []);
  const { task, draft, view } = tuning;
  if (!draft) return html`<section class="tuning" aria-label="Tasks"></section>`;
  const [, View] = VIEWS[view];
  return html`<section class="tuning" aria-label="Tasks" data-view=${view}>
    <div class="tools tuning-head"><h2>Tasks</h2>
      <label class="field">Task <select value=${task.id} onChange=${(event) => openTask(event.target.value)}>
        ${tunable().map(({ id }) => html`<option key=${id}>${id}</option>`)}</select></label>
      <${Button} label="Reset" about="Makes the draft what is configured" onClick=${resetDraft} />
      <span class="gap"></span>
      <nav aria-label="Views of the task">
        ${Object.entries(VIEWS).map(
          ([name, [label]]) => html`<${Button} key=${name} label=${label} kind=${`view-${name}`}
          pressed=${view === name} onClick=${() => show({ view: name })} />`,
        )}</nav>
      ${
        tuning.run
          ? html`<${Button} label="Stop" keys="Esc" kind="main" onClick=${stop} />`
          : html`<${Button} label="Run both" keys="Ctrl+Enter" kind="main" onClick=${runTrials} />`
      }
    </div>
    <${DraftForm} />
    <div class="tried"><${View} /></div>
  </section>`;
}

function onKey(event) {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
    event.preventDefault();
    runTrials();
  } else if (event.key === "Escape" && tuning.run) {
    event.preventDefault(); // so that the page stays open
    stop();
  }
}

// ---- trials ------------------------------------------------------------------------------------------

function Compare() {
  useChanges("tuning", "trials");
  return html`<${Prompts} />
    <div class="tools">
      <${NumberField} label="Seed of both" low=${0} high=${MOST_SEED} value=${tuning.input.seed}
        placeholder="random" set=${(seed) => input({ seed })} />
      <label class="check" title="The prompt is a message of the user, which the model's template may frame">
        <input type="checkbox" checked=${tuning.input.chat}
        onChange=${(event) => input({ chat: event.target.checked })} /> as a chat</label></div>
    ${
      tuning.trials.length
        ? tuning.trials.map((trial, i) => html`<${Trial} key=${i} trial=${trial} number=${i + 1} />`)
        : html`<p class="hint">“Run both” sends each prompt to the task as it is configured, and to the draft,
          with the same seed. No memory stores these prompts.</p>`
    }`;
}

function Prompts() {
  const { prompts } = tuning.input;
  // of the newest list: several edits may come before the page is drawn again
  const change = (changed) => input({ prompts: changed(tuning.input.prompts) });
  const put = (i, text) => change((list) => list.with(i, text));
  const remove = (i) => change((list) => list.toSpliced(i, 1));
  return html`<div class="prompts">
    ${prompts.map(
      (text, i) => html`<div class="tools" key=${i}>
      <label class="field"><span>Prompt ${i + 1}</span>
        <textarea rows="2" value=${text} onInput=${(event) => put(i, event.target.value)}></textarea></label>
      ${
        prompts.length > 1 &&
        html`<${Button} label=${`Remove prompt ${i + 1}`} icon="✕" onClick=${() => remove(i)} />`
      }</div>`,
    )}
    <${Button} label="Add a prompt" onClick=${() => change((list) => [...list, ""])} /></div>`;
}

const told = (...facts) => facts.filter(Boolean).join(" · ");

const Trial = ({ trial, number }) =>
  html`<section class="trial" aria-label=${`Trial of prompt ${number}`}>
    ${trial.text && html`<h3 class="text">${trial.text}</h3>`}
    <${Beside} one=${(side) => html`<${Side} ...${trial.sides[side]} />`} /></section>`;

/** Both sides, one beside the other. */
const Beside = ({ one }) =>
  html`<div class="beside">${Object.entries(SIDES).map(
    ([side, label]) => html`<section key=${side} class=${side} aria-label=${label}>
      <h3>${label}</h3>${one(side)}</section>`,
  )}</div>`;

function Side({ state, texts, error, seed, prompt_tokens, cached_tokens }) {
  const cached = prompt_tokens !== undefined && `${cached_tokens} of ${prompt_tokens} tokens cached`;
  return html`<p class="facts">${told(state, seed !== undefined && `seed ${seed}`, cached)}</p>
    ${error && html`<p class="bad" role="alert">${error}</p>`}
    <ol>${texts.map(
      ({ text, end, length }, i) => html`<li class=${end ? "card" : "card running"} key=${i}>
      <header><span class="digit">${i + 1}</span>
        <span class="facts">${told(length > 0 && `${length} tokens`, ENDS[end])}</span></header>
      <div class="text">${text}</div></li>`,
    )}</ol>`;
}

const ENDS = { stop: "ends here", length: "", cancelled: "stopped", timeout: "out of time", error: "error" };

// ---- the exact prompt --------------------------------------------------------------------------------

function Prompt() {
  useChanges("tuning", "made");
  usePrompts();
  const all = prompts();
  return html`${
    all.length > 1 &&
    html`<label class="field">Prompt <select value=${tuning.at}
      onChange=${(event) => show({ at: Number(event.target.value) })}>
      ${all.map((text, i) => html`<option key=${i} value=${i}>${text.slice(0, LONGEST)}</option>`)}
      </select></label>`
  }
    <p class="hint">Each token has a frame; control tokens are filled.</p>
    <${Beside} one=${(side) => html`<${Made} ...${tuning.made[side]} />`} />`;
}

const LONGEST = 60; // characters of a prompt in a list

/** Makes the prompts of both sides, again when the draft or the prompt has changed. */
function usePrompts() {
  useEffect(() => {
    const pause = setTimeout(learnPrompts, tuning.made.edited ? PAUSE_MS : 0);
    return () => clearTimeout(pause);
  }, [tomlOf(tuning.draft), prompts()[tuning.at], tuning.input.chat, tuning.task]);
}

function Made({ error, parts = [], control = [], prompt_tokens, warnings = [] }) {
  if (error) return html`<p class="bad" role="alert">${error}</p>`;
  return html`<p class="facts">${prompt_tokens !== undefined && `${prompt_tokens} tokens`}</p>
    ${warnings.map((warning) => html`<p class="bad">${warning}</p>`)}
    <dl class="made">${parts.map(
      ({ kind, tokens, pieces }) => html`<dt>${kind}</dt>
      <dd>${tokens.map(
        (id, i) => html`<${Token} id=${id} piece=${pieces[i]} isControl=${control.includes(id)} />`,
      )}</dd>`,
    )}</dl>`;
}

const Token = ({ id, piece, isControl }) => {
  const [kind, name] = isControl ? ["piece control", "control token"] : ["piece", "token"];
  return html`<span class=${kind} title=${`${name} ${id}`}>${
    isControl && html`<span class="unseen">${name} </span>`
  }${visible(piece) || `⟨${id}⟩`}</span>${piece.endsWith("\n") && "\n"}`;
};

// ---- the memory --------------------------------------------------------------------------------------

function Memory() {
  useChanges("tuning", "found");
  const { recall } = tuning.draft;
  const names = tuning.memories.map(({ id }) => id);
  const [chosen, setChosen] = useState(null);
  const memory = chosen ?? (recall.memory || names[0]);
  const [query, setQuery] = useState(prompts()[0]);
  const find = (event) => {
    event.preventDefault();
    search(memory, query, recall.retrieve ?? FOUND);
  };
  if (!names.length)
    return html`<p class="hint">There is no memory here that your key may use. A table [memories.NAME] of the
      server's file makes one.</p>`;
  return html`<form class="tools" onSubmit=${find}>
      <label class="field">Memory <select value=${memory}
        onChange=${(event) => setChosen(event.target.value)}>
        ${names.map((name) => html`<option key=${name}>${name}</option>`)}</select></label>
      <label class="field query"><span>Search for</span>
        <input required value=${query} onInput=${(event) => setQuery(event.target.value)} /></label>
      <button class="button main">Search</button></form>
    <${Found} ...${tuning.found} />`;
}

function Found({ waiting, error, data }) {
  if (waiting) return html`<p class="hint">Searching …</p>`;
  if (error) return html`<p class="bad" role="alert">${error}</p>`;
  if (!data) return html`<p class="hint">Shows the chunks that fit a text best.</p>`;
  if (!data.length) return html`<p class="hint" role="status">Nothing was found.</p>`;
  return html`<ol class="found">${data.map(
    ({ id, document, text, score, metadata }) => html`<li class="card" key=${id}>
    <span class="facts">${told(...scoreOf(score), document, ...factsOf(metadata))}</span>
    <div class="text">${text}</div></li>`,
  )}</ol>`;
}

const scoreOf = (score) => (score === null ? [] : [score.toFixed(3)]); // a memory without a model has none

const factsOf = (metadata) => Object.entries(metadata).map(([name, value]) => `${name} ${value}`);

// ---- the TOML ----------------------------------------------------------------------------------------

function Toml() {
  useChanges("tuning", "made");
  usePrompts();
  const toml = tomlOf(tuning.draft);
  const { error, prompt } = tuning.made.edited ?? {};
  return html`<div class="tools">
      <${Button} label="Copy" onClick=${async () => say(await copy(toml))} />
      <${Button} label="Download"
        onClick=${() => download(`${tuning.draft.name}.toml`, "application/toml", toml)} />
      ${error && html`<p class="bad" role="alert">${error}</p>`}
      ${prompt !== undefined && html`<p class="hint" role="status">The server accepts this table.</p>`}</div>
    <pre class="code toml" tabindex="0" aria-label="TOML of the draft">${toml}</pre>
    <p class="hint">Put it into the file of --config, in place of the task's table, and try it with
      ${" "}<code>llama-srb config check</code>. The server reads it when it starts, and at${" "}
      <code>SIGHUP</code>.</p>`;
}
