// A button that opens a small panel above the page: further actions, or facts. The browser closes it at
// Escape, and at a click elsewhere or on another such button.

import { newId } from "../story/tree.js";
import { html, useRef } from "./ui.js";

const GAP = 4; // pixels around the panel
const FIELDS = "button:not(:disabled), input";
const STEPS = { ArrowDown: 1, ArrowUp: -1 };

export function Menu({ label, icon, kind = "", children }) {
  const id = useRef(newId());
  const [opener, panel] = [useRef(), useRef()];
  const onBeforeToggle = ({ newState }) => {
    if (newState === "open") requestAnimationFrame(() => place(panel.current, opener.current));
  };
  const onClick = ({ target }) => target.closest("button") && panel.current.hidePopover();
  return html`<button type="button" class=${`button menu ${kind}`} ref=${opener} popovertarget=${id.current}
      title=${label} aria-label=${label}><span aria-hidden="true">${icon}</span></button>
    <div class="popover" ref=${panel} id=${id.current} popover="auto" role="group" aria-label=${label}
      onBeforeToggle=${onBeforeToggle} onKeyDown=${onKey} onClick=${onClick}>${children}</div>`;
}

/** Names and values, without those that are unknown. */
export const Figures = ({ figures }) =>
  html`<dl class="figures">${Object.entries(figures)
    .filter(([, value]) => value || value === 0)
    .map(([name, value]) => html`<dt key=${name}>${name}</dt><dd>${value}</dd>`)}</dl>`;

/** Puts the panel below its button, above it if there is no room, and the focus into it. */
function place(panel, opener) {
  const from = opener.getBoundingClientRect();
  const { offsetWidth, offsetHeight } = panel;
  const left = Math.min(from.left, innerWidth - offsetWidth - GAP);
  const below = from.bottom + GAP;
  const top = below + offsetHeight > innerHeight ? from.top - offsetHeight - GAP : below;
  panel.style.setProperty("left", `${Math.max(GAP, left)}px`);
  panel.style.setProperty("top", `${Math.max(GAP, top)}px`);
  panel.querySelector(FIELDS)?.focus({ preventScroll: true });
}

/** Arrows walk; no key in an open panel is one of the page. */
function onKey(event) {
  event.stopPropagation();
  const step = STEPS[event.key];
  if (!step) return;
  event.preventDefault();
  const fields = [...event.currentTarget.querySelectorAll(FIELDS)];
  fields.at((fields.indexOf(event.target) + step) % fields.length)?.focus();
}
