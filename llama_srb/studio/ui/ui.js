// Shared by all views: templates for markup, and redraws when the shown data has changed.

import * as hooks from "../vendor/hooks.js";
import htm from "../vendor/htm.js";
import * as preact from "../vendor/preact.js";

// The libraries have no types of their own; a view's markup and properties are not checked.
/** @typedef {(strings: TemplateStringsArray, ...values: any[]) => any} Html */
/** @typedef {{
      (first: null): [any, (next: any) => void];
      <T>(first: T | (() => T)): [T, (next: T | ((now: T) => T)) => void];
    }} UseState */
/** @typedef {(first?: any) => {current: any}} UseRef */
/** @typedef {(run: () => unknown, inputs?: unknown[]) => void} UseEffect */
/** @typedef {new (props?: any) => {props: any, shouldComponentUpdate?(next: any): boolean}} ComponentClass */

/** @type {Html} */
export const html = htm.bind(preact.h);
export const Component = /** @type {ComponentClass} */ (/** @type {unknown} */ (preact.Component));
export const render = /** @type {(what: any, into: Element) => void} */ (preact.render);
export const useState = /** @type {UseState} */ (hooks.useState);
export const useRef = /** @type {UseRef} */ (hooks.useRef);
/** @type {UseEffect} */
export const useEffect = hooks.useEffect;
/** @type {UseEffect} */
export const useLayoutEffect = hooks.useLayoutEffect;

const BUDGET_MS = 8; // of drawing in one frame; what is left goes into the next
const WITHOUT_FRAMES_MS = 100;
const watchers = new Map(); // what is watched → the redraws of its views
const waiting = new Set(); // redraws that are due
let asked = false; // for a frame
let pressed = false; // a button or a card: nothing is clicked if it is not below the pointer at the release

/** @type {(event: any) => boolean} */
const isHeld = ({ type, target, buttons }) =>
  type === "pointerdown" ? buttons === 1 && !!target.closest("button, article") : pressed && buttons > 0;
for (const type of ["pointerdown", "pointermove", "pointerup", "pointercancel"])
  addEventListener(type, (event) => (pressed = isHeld(event)), { capture: true, passive: true });
addEventListener("blur", () => (pressed = false)); // of the window, where the release may be somebody else's

/** Redraws the views of what has changed, once, with the next frame or soon after.
    @type {(...things: string[]) => void} */
export function changed(...things) {
  for (const thing of things) for (const view of watchers.get(thing) ?? []) waiting.add(view);
  if (waiting.size && !asked) ask();
}

// A hidden page gets no frames; its views must be drawn nevertheless.
function ask() {
  asked = true;
  const frame = requestAnimationFrame(draw);
  const late = setTimeout(draw, WITHOUT_FRAMES_MS);
  function draw() {
    cancelAnimationFrame(frame);
    clearTimeout(late);
    if (pressed) ask();
    else redraw();
  }
}

async function redraw() {
  const until = performance.now() + BUDGET_MS;
  for (const view of waiting) {
    waiting.delete(view);
    view();
    await null; // Preact has drawn it by then
    if (performance.now() > until) break;
  }
  asked = false;
  if (waiting.size) ask();
}

/** Does what changes a view's own state, and draws that and the views of these things before it returns: a
    key that comes next finds the field that it is for.
    @type {(act: () => void, ...things: string[]) => void} */
export function atOnce(act, ...things) {
  const { options } = /** @type {any} */ (preact);
  const { debounceRendering } = options;
  options.debounceRendering = (draw) => draw();
  try {
    act();
    for (const thing of things) for (const view of watchers.get(thing) ?? []) view();
  } finally {
    options.debounceRendering = debounceRendering;
  }
}

/** Resolves when all that has changed so far is drawn; the studio's tests wait for it.
    @type {() => Promise<void>} */
export const drawn = () =>
  new Promise((resolve) => {
    waiting.add(resolve);
    if (!asked) ask();
  });

/** Redraws the calling view when one of these changes.
    @type {(...things: string[]) => void} */
export function useChanges(...things) {
  const [, view] = hooks.useReducer((count) => count + 1, 0);
  useLayoutEffect(() => {
    for (const thing of things) watchers.set(thing, (watchers.get(thing) ?? new Set()).add(view));
    return () => {
      waiting.delete(view);
      for (const thing of things) watchers.get(thing)?.delete(view);
    };
  }, things);
}

/** When the focused part of an element is removed, the element itself gets the focus. */
export function useKeptFocus(element) {
  const inside = element.current?.contains(document.activeElement);
  useLayoutEffect(() => {
    if (inside && !element.current?.contains(document.activeElement))
      element.current?.focus({ preventScroll: true });
  });
}

/** A view that is redrawn only when a property or the data that it watches has changed. */
export const still = (View) =>
  /** @this {any} */
  function Still(props) {
    this.shouldComponentUpdate = (next) => Object.keys(next).some((name) => next[name] !== this.props[name]);
    return html`<${View} ...${props} />`;
  };

/** Whether a key belongs to an input method, which makes a character of several keys. */
export const isComposing = (event) => event.isComposing || event.keyCode === 229;

/** Whether the page is used with a finger: then nothing speaks of keys, which a phone does not have. */
export const isTouched = () => matchMedia("(pointer: coarse)").matches;

/** A button; its tooltip has the label and the shortcut `keys`. */
export function Button({ label, about = label, keys, icon, onClick, pressed, disabled, kind = "" }) {
  const title = keys && !isTouched() ? `${about} (${keys})` : about;
  return html`<button type="button" class=${`button ${kind}`} title=${title}
    aria-label=${icon ? label : undefined}
    aria-pressed=${pressed === undefined ? undefined : String(pressed)} disabled=${disabled}
    onClick=${onClick}>${icon ? html`<span aria-hidden="true">${icon}</span>` : label}</button>`;
}

/** A text whose spaces and line breaks can be seen.
    @type {(text: string) => string} */
export const visible = (text) => text.replaceAll("\n", "⏎").replaceAll(" ", "\u2423");

/** Copies a text; says whether that was allowed.
    @type {(text: string) => Promise<string>} */
export async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
    return "copied";
  } catch {
    return "the browser does not allow copying here";
  }
}

/** @type {(name: string, type: string, ...parts: BlobPart[]) => void} */
export function download(name, type, ...parts) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob(parts, { type }));
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}
