// The place of the text that was found or gone to: scrolled to, and marked behind the field, which shows its
// own selection only while it has the focus.

import { changed } from "../ui/ui.js";

const NAME = "found";
const ABOVE = 3; // a third of the text's height lies above the place
/** @type {[start: number, end: number] | null} */
let waiting = null; // the place, until the text is drawn

/** Marks these characters of the text, none if they are no characters, and scrolls there. */
export function goTo(start, end) {
  waiting = [start, end];
  changed("origins");
}

export const unmark = () => CSS.highlights?.delete(NAME);

/** Shows the place in the layer that has the coloured text. */
export function showFound(layer) {
  if (!waiting) return;
  const [start, end] = waiting;
  waiting = null;
  const range = rangeOf(layer, start, Math.max(end, start + 1));
  unmark();
  if (end > start) CSS.highlights?.set(NAME, new Highlight(range));
  const sheet = layer.closest(".sheet");
  const { top } = range.getBoundingClientRect();
  sheet.scrollTop += top - sheet.getBoundingClientRect().top - sheet.clientHeight / ABOVE;
}

/** The range of characters of the text that an element shows, which does not count a candidate in it. */
function rangeOf(element, start, end) {
  const walker = document.createTreeWalker(element, NodeFilter.SHOW_TEXT, ({ parentElement }) =>
    parentElement?.closest(".ghost") ? NodeFilter.FILTER_REJECT : NodeFilter.FILTER_ACCEPT,
  );
  const range = document.createRange();
  let before = 0;
  for (let node = walker.nextNode(); node && before < end; node = walker.nextNode()) {
    const { length } = /** @type {Text} */ (node);
    const [from, to] = [start - before, Math.min(end - before, length)];
    if (from >= 0 && from < length) range.setStart(node, from);
    if (from < length) range.setEnd(node, to);
    before += length;
  }
  return range;
}
