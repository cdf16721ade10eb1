// What all views share: markup as templates, and views that redraw when what they show has changed.

import { h, render } from "./vendor/preact.js";
import { useEffect, useLayoutEffect, useReducer, useRef, useState } from "./vendor/hooks.js";
import htm from "./vendor/htm.js";

export { render, useEffect, useLayoutEffect, useRef, useState };
export const html = htm.bind(h);

const watchers = new Map(); // what is watched → the redraws of its views
let waiting = new Set();

/** Says that something has changed; its views are drawn with the next frame, once. */
export function changed(...things) {
  if (!waiting.size) requestFrame(redraw);
  for (const thing of things) waiting.add(thing);
}

// A hidden page gets no frames; its views must not lag behind for ever.
const requestFrame = (work) => (document.hidden ? setTimeout(work, 100) : requestAnimationFrame(work));

function redraw() {
  const now = waiting;
  waiting = new Set();
  const views = new Set([...now].flatMap((thing) => [...(watchers.get(thing) ?? [])]));
  for (const view of views) view();
}

/** Redraws the calling view when one of these changes. */
export function useChanges(...things) {
  const [, view] = useReducer((count) => count + 1, 0);
  useLayoutEffect(() => {
    for (const thing of things) watchers.set(thing, (watchers.get(thing) ?? new Set()).add(view));
    return () => things.forEach((thing) => watchers.get(thing)?.delete(view));
  }, things);
}

/** A button; `keys` is the shortcut that its tooltip names. */
export function Button({ label, keys, icon, onClick, pressed, disabled, kind = "" }) {
  const title = keys ? `${label} (${keys})` : label;
  return html`<button type="button" class=${`button ${kind}`} title=${title} aria-label=${icon ? label : undefined}
    aria-pressed=${pressed === undefined ? undefined : String(pressed)} disabled=${disabled}
    onClick=${onClick}>${icon ? html`<span aria-hidden="true">${icon}</span>` : label}</button>`;
}

export function download(name, type, text) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([text], { type }));
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}
