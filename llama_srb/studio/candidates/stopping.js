// Ending requests, and single candidates of them.

import { call } from "../server/api.js";
import { session } from "../story/session.js";

const ANSWER_MS = 2000; // how long a stopped request may take to end

export const runOf = (node) => [...session.runs].find((run) => run.nodes.includes(node));

export function stop(run) {
  const isEnding = run.nodes.every((node) => node && node.state !== "running");
  if (run.over || isEnding) return; // the server would not know it any more
  if (run.id) call("DELETE", `v1/completions/${run.id}`).catch(() => run.abort.abort());
  else run.abort.abort();
}

export function stopAll() {
  for (const run of [...session.runs]) stop(run);
}

export function leaveAll() {
  for (const run of [...session.runs]) run.abort.abort();
}

export async function stopOne(id) {
  const node = session.story.nodes[id];
  const run = runOf(node);
  await run?.known;
  if (run?.id && !run.over)
    call("DELETE", `v1/completions/${run.id}/${run.nodes.indexOf(node)}`).catch(() => {}); // just over
}

/** Ends all runs; a server that does not answer in time is disconnected. */
export async function finished(end = stopAll) {
  end();
  const left = setTimeout(leaveAll, ANSWER_MS);
  while (session.runs.size) await new Promise((resolve) => setTimeout(resolve, 20));
  clearTimeout(left);
}

/** Ignores further text for a node, and ends its request. */
export function freeze(node) {
  const run = runOf(node);
  if (!run) return;
  run.nodes[run.nodes.indexOf(node)] = null;
  node.state = "cancelled";
  if (node.ref) node.ref.whole = false;
  stop(run);
}
