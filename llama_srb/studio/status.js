// How the server is: model, speed, cache, queue; what went wrong; its return after it was away.

import { call, key, setKey } from "./api.js";
import { fail, session } from "./session.js";
import { changed, html, useChanges, useRef, Button } from "./ui.js";

const EVERY_MS = 3000;
const AWAY_MS = 1000; // while it is away

const server = { state: "unknown", model: null, needsKey: false };

/** Looks after the server for as long as the page is open. */
export async function watch() {
  const state = await look();
  if (state !== server.state) await turn(state);
  setTimeout(watch, server.state === "ok" ? EVERY_MS : AWAY_MS);
}

async function look() {
  try {
    const response = await fetch("health", { cache: "no-store" });
    return (await response.json()).status;
  } catch {
    return "away";
  }
}

async function turn(state) {
  server.state = state;
  if (state === "ok") await learn();
  changed("server", "offline");
}

async function learn() {
  try {
    const [models, fields] = await Promise.all([call("GET", "v1/models"), call("GET", "v1/samplers")]);
    Object.assign(server, { model: models.data[0], models: models.data, needsKey: false });
    session.fields = fields;
    session.context = server.model.meta?.context ?? null;
    changed("fields", "text");
  } catch (error) {
    if (error.status === 401) server.needsKey = true;
    else server.state = "away";
  }
}

export function Status() {
  useChanges("server", "status", "offline");
  const runs = [...session.runs];
  const tokens = runs.reduce((sum, run) => sum + run.tokens, 0);
  const seconds = runs.length ? (performance.now() - Math.min(...runs.map((run) => run.began))) / 1000 : 0;
  const queued = runs.find((run) => run.position)?.position;
  const { prompt } = session;
  const facts = [
    server.model?.id,
    seconds > 0.3 && `${Math.round(tokens / seconds)} tokens/s`,
    queued && `place ${queued} in the queue`,
    prompt && `${prompt.cached} of ${prompt.tokens} prompt tokens cached`,
  ].filter(Boolean);
  return html`<p class="status"><span class=${`dot ${server.state}`} aria-hidden="true"></span>
    <span class="unseen">server: ${server.state}</span>${facts.join(" · ")}</p>`;
}

const STATES = {
  away: "The server is away. What you write is kept here; the page goes on by itself when it is back.",
  loading: "The server is loading its model.",
  draining: "The server is stopping.",
  stopped: "The engine is stopped.",
};

export function Notices() {
  useChanges("server", "offline", "error", "key");
  const { error } = session;
  const field = useRef();
  const enter = (event) => {
    event.preventDefault();
    setKey(field.current.value.trim());
    fail(null);
    learn().then(() => changed("server"));
  };
  return html`<div class="notices">
    ${STATES[server.state] && html`<p class="notice" role="alert">${STATES[server.state]}</p>`}
    ${
      server.needsKey &&
      html`<form class="notice" onSubmit=${enter}><label>This server wants a key
      <input type="password" ref=${field} autocomplete="off" value=${key()} /></label>
      <button class="button">Use it</button></form>`
    }
    ${
      error &&
      html`<div class="notice bad" role="alert"><span>${error.message}</span>
      <${Button} label="Dismiss" icon="✕" onClick=${() => fail(null)} /></div>`
    }
  </div>`;
}
