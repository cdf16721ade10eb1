// The candidate under the pointer, with the focus, or read: marks.js shows it where it would stand.

import { changed } from "../ui/ui.js";

/** @type {Record<string, string | null>} */
const pointed = { hover: null, focus: null, read: null }; // the ids of candidates

export const previewed = () => pointed.hover ?? pointed.focus ?? pointed.read;

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
