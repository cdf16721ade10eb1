// The candidate under the pointer, with the focus, or read: shown as ghost text where it would stand.

import { session } from "../story/session.js";
import { changed, html, useChanges, useLayoutEffect, useRef } from "../ui/ui.js";

/** @type {Record<string, string | null>} */
const pointed = { hover: null, focus: null, read: null }; // the ids of candidates

const previewed = () => pointed.hover ?? pointed.focus ?? pointed.read;

function point(fields) {
  const before = previewed();
  Object.assign(pointed, fields);
  if (previewed() !== before) changed("preview");
}

const cardOf = ({ target }) => target.closest(".card")?.dataset.id ?? null;

/** The handlers of the list of cards. */
export const pointing = {
  onMouseOver: (event) => point({ hover: cardOf(event) }),
  onMouseLeave: () => point({ hover: null }),
  onfocusin: (event) => point({ focus: cardOf(event) }),
  onfocusout: () => point({ focus: null }),
};

/** Previews a candidate that is read, if there is no other one under the pointer. */
export const previewRead = (id) => point({ read: id });

/** The previewed candidate, if it continues this node. */
export function Ghost({ after }) {
  const id = previewed();
  useChanges("preview", id ?? "");
  const ghost = useRef();
  const node = id ? session.story.nodes[id] : null;
  const text = node?.parent === after ? (node?.text ?? "") : "";
  useLayoutEffect(() => (text ? shown(ghost.current) : undefined), [text && id]);
  return text && html`<span class="ghost" ref=${ghost}>${text}</span>`;
}

/** Scrolls to the ghost; returns a function that scrolls back, unless the writer has scrolled since. */
function shown(ghost) {
  const sheet = ghost.closest(".sheet");
  const before = sheet.scrollTop;
  ghost.scrollIntoView({ block: "nearest" });
  const moved = sheet.scrollTop;
  return () => {
    const most = sheet.scrollHeight - sheet.clientHeight; // without the ghost
    if (Math.abs(sheet.scrollTop - Math.min(moved, most)) <= 1) sheet.scrollTop = before;
  };
}
