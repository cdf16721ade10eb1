// The ways between the text and the candidates, and among the cards, by keys and by clicks.

let wasWriting = false; // when the mouse was pressed

/** Notes whether a click comes from the text, so that the focus can return there. */
export const noteClick = () => (wasWriting = document.activeElement?.id === "editor");

export function backToText() {
  if (wasWriting) document.getElementById("editor")?.focus({ preventScroll: true });
}

/** Moves the focus to the first card, or to the button in its place; false when there is none. */
export function enterCards() {
  const card = document.querySelector("#candidates .card, #candidates .ended button");
  card?.focus();
  return !!card;
}

/** How many cards an arrow key moves by, with `columns` cards in a row. */
const STEPS = {
  ArrowRight: () => 1,
  ArrowLeft: () => -1,
  ArrowDown: (columns) => columns,
  ArrowUp: (columns) => -columns,
};

/** Arrows go from card to card; letters work on the card that has the focus. */
export function walk(event, list) {
  if (event.target.closest("textarea, input") || event.ctrlKey || event.metaKey || event.altKey) return;
  const cards = [...list.querySelectorAll(".card, .more")];
  const here = cards.indexOf(document.activeElement.closest(".card, .more"));
  if (event.key in STEPS && !list.querySelector(".picking")) {
    event.preventDefault();
    const columns = cards.filter(({ offsetTop }) => offsetTop === cards[0].offsetTop).length;
    const to = here < 0 ? 0 : here + STEPS[event.key](columns);
    cards[Math.min(Math.max(to, 0), cards.length - 1)]?.focus();
    return;
  }
  const action =
    here >= 0 && cards[here].querySelector(`[data-key="${CSS.escape(event.key.toLowerCase())}"]`);
  if (!action) return;
  event.preventDefault();
  action.click();
}

/** The place of a click in a text, in characters; words that are shown beside it do not count. */
export function placeIn(box, { clientX, clientY }) {
  const found = document.caretPositionFromPoint?.(clientX, clientY);
  const range = found ? null : document.caretRangeFromPoint?.(clientX, clientY);
  const node = found ? found.offsetNode : range?.startContainer;
  const offset = found ? found.offset : range?.startOffset;
  const isBeside = ({ parentElement }) => parentElement.closest("del, .alternatives");
  const walker = document.createTreeWalker(box, NodeFilter.SHOW_TEXT, (text) =>
    isBeside(text) ? NodeFilter.FILTER_REJECT : NodeFilter.FILTER_ACCEPT,
  );
  let before = 0;
  while (walker.nextNode() && walker.currentNode !== node) before += walker.currentNode.data.length;
  return walker.currentNode === node ? before + offset : before;
}
