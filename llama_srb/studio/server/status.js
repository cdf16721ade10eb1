// The server's state: model, speed, cells, queue, errors, and its return after an outage.

import { Imported } from "../files/importing.js";
import { learnPresets } from "../settings/presets.js";
import { writeHere } from "../story/library.js";
import { AWAY, baseModel, fail, model, onLost, session } from "../story/session.js";
import { Figures, Menu } from "../ui/menu.js";
import { Button, changed, html, useChanges, useRef } from "../ui/ui.js";
import { ApiError, call, key, setKey } from "./api.js";
import { Conflict } from "./conflict.js";
import { learnModels, learnTasks, Unserved } from "./models.js";
import { later } from "./sync.js";

const EVERY_MS = 3000;
const AWAY_MS = 1000; // while it is away
const LOOK_MS = 30_000; // for its answer
const OUTAGES = ["engine_died", "unavailable", "shutting_down"]; // codes of errors that end by themselves

/** @type {{state: string, needsKey: boolean, refused: boolean, counts: boolean, engine: any}} */
const server = { state: "unknown", needsKey: false, refused: false, counts: false, engine: null };
/** @type {number | undefined} */
let timer;
/** @type {any} */
let outage = null; // the error of one, once the server has answered since

/** Polls the server for as long as the page is open. */
export async function watch() {
  clearTimeout(timer);
  const state = await look();
  if (state !== server.state) await turn(state);
  if (state === "ok") overcome();
  if (state === "ok" && server.counts) await count();
  clearTimeout(timer);
  timer = setTimeout(watch, server.state === "ok" ? EVERY_MS : AWAY_MS);
}
onLost.push(watch);
addEventListener("online", watch);
addEventListener("offline", watch);

/** Takes the error of an outage away when it is over; it stays for one look more, so that it can be read. */
function overcome() {
  const { error } = session;
  if (!error || !OUTAGES.includes(error.code ?? "")) return;
  if (error === outage) fail(null);
  outage = error;
}

async function look() {
  try {
    const signal = AbortSignal.timeout(LOOK_MS);
    const response = await fetch("health", { cache: "no-store", signal });
    return (await response.json()).status;
  } catch {
    return "away";
  }
}

async function turn(state) {
  server.state = state;
  if (state === "ok") await learn();
  else changed("server");
  if (state === "ok" && session.error?.message === AWAY) fail(null);
}

async function learn() {
  try {
    await learnModels();
    later(0);
    await learnTasks();
    await learnPresets();
    Object.assign(server, { needsKey: false, refused: false, counts: true });
  } catch (error) {
    if (error.status === 401) Object.assign(server, { needsKey: true, refused: !!key(), counts: false });
    else server.state = "away";
  }
  changed("server");
}

/** Reads the engine's counts, which not every key may do. */
async function count() {
  try {
    const stats = await call("GET", "v1/stats");
    server.engine = (stats.models?.[baseModel() ?? ""] ?? stats).engine;
  } catch (error) {
    server.counts = !(error instanceof ApiError);
  }
  changed("server");
}

export function Status() {
  useChanges("server", "status", "settings");
  const runs = [...session.runs];
  const tokens = runs.reduce((sum, run) => sum + run.tokens, 0);
  const seconds = runs.length ? (performance.now() - Math.min(...runs.map((run) => run.began))) / 1000 : 0;
  const queued = runs.find((run) => run.position)?.position;
  const { prompt, guessed } = session;
  const { cells, cells_used, cells_shared, queued: waiting } = server.engine ?? {};
  const place = queued ? `place ${queued} in the queue` : waiting > 0 && `${waiting} in the queue`;
  const context = model()?.meta?.context;
  const figures = {
    Speed: seconds > 0.3 && `${Math.round(tokens / seconds)} tokens/s`,
    Prompt: prompt && `${prompt.cached} of ${prompt.tokens} tokens cached`,
    Guessed: guessed && `${guessed.right} of ${guessed.tokens} tokens were right`,
    Context: prompt && context && `${prompt.tokens} of ${context} tokens`,
    Cells: cells && `${cells_used} of ${cells} cells, ${cells_shared} saved by sharing`,
  };
  return html`<div class="status">
    <span class=${`dot ${server.state}`} aria-hidden="true"></span>
    <span class="unseen">server: ${server.state}</span>
    <span class="who">${[model()?.id, place].filter(Boolean).join(" · ")}</span>
    <${Menu} label="Figures" icon="i" kind="info"><${Figures} figures=${figures} /><//></div>`;
}

const STATES = {
  away: AWAY,
  loading: "The server is loading its model.",
  draining: "The server is stopping.",
  stopped: "The engine is stopped.",
  failed: "The engine cannot run here. The server's log, and /health, say why and what to do.",
};

export function Notices() {
  useChanges("server", "error");
  const { error } = session;
  const field = useRef();
  const enter = (event) => {
    event.preventDefault();
    setKey(field.current.value.trim());
    fail(null);
    learn().then(watch);
  };
  return html`<div class="notices">
    ${
      session.elsewhere &&
      html`<div class="notice" role="alert">
      <span>This story is open in another tab, which can change it.</span>
      <${Button} label="Edit here" onClick=${writeHere} /></div>`
    }
    <${Imported} />
    <${Conflict} />
    ${STATES[server.state] && html`<p class="notice" role="alert">${STATES[server.state]}</p>`}
    <${Unserved} />
    ${
      server.needsKey &&
      html`<form class="notice" onSubmit=${enter}>
      <label>${server.refused ? "The server does not know this key; another one" : "This server wants a key"}
      <input type="password" ref=${field} autocomplete="off" defaultValue=${key()} /></label>
      <button class="button">Use it</button></form>`
    }
    ${
      error &&
      STATES[server.state] !== error.message &&
      html`<div class="notice bad" role="alert"><span>${error.message}</span>
      <${Button} label="Dismiss" icon="✕" onClick=${() => fail(null)} /></div>`
    }
  </div>`;
}
