// The ways between the text and the candidates, and among the cards, by keys and by clicks.

import { say } from "../story/session.js";
import { drawn } from "../ui/ui.js";
import { cardInView, isReading, readOneByOne, scrollText } from "./reading.js";

let wasWriting = false; // when the mouse was pressed

/** Notes whether a click comes from the text, so that the focus can return there. */
export const noteClick = () => (wasWriting = document.activeElement?.id === "editor");

/** Puts the focus into the text, in a chat into the next message. */
export function toText() {
  /** @type {HTMLElement | null} */
  const text = document.querySelector("#editor, .say textarea");
  text?.focus({ preventScroll: true });
}

const FINGERS = new Set(["touch", "pen"]);

/** Leads from a click elsewhere to the text, when what it has changed is drawn; with a finger without the
    keyboard, which covers the page.
    @type {(event: {pointerType?: string}) => Promise<void>} */
export async function leadToText({ pointerType = "" }) {
  await drawn();
  if (!FINGERS.has(pointerType)) toText();
}

export function backToText() {
  if (wasWriting) toText();
}

/** Moves the focus to the first card, or to the button in its place; false when there is none. */
export function enterCards() {
  /** @type {HTMLElement | null} */
  const card = document.querySelector("#candidates .card, #candidates .ended button");
  card?.focus();
  return !!card;
}

/** How many cards a key moves by, with `columns` cards in a row. */
const STEPS = {
  j: () => 1,
  k: () => -1,
  ArrowRight: () => 1,
  ArrowLeft: () => -1,
  ArrowDown: (columns) => columns,
  ArrowUp: (columns) => -columns,
};
const SCROLLS = { ArrowDown: 1, ArrowUp: -1 }; // the text of a card that is read alone

/** Arrows, j and k go from card to card; letters work on the card that has the focus. */
export function walk(event, list) {
  if (event.target.closest("textarea, input") || event.ctrlKey || event.metaKey || event.altKey) return;
  const cards = [...list.querySelectorAll(".card, .more")];
  const here = cards.indexOf(document.activeElement?.closest(".card, .more"));
  const { key } = event;
  const action = here >= 0 && cards[here].querySelector(`[data-key="${CSS.escape(key.toLowerCase())}"]`);
  if (key in SCROLLS && here >= 0 && isReading()) scrollText(cards[here], SCROLLS[key]);
  else if (key in STEPS && !list.querySelector(".picking")) step(cards, here, STEPS[key], list);
  else if (key === "v") readOneByOne(!isReading());
  else if (action) action.click();
  else return isLetter(event) && say("Letters are keys of the candidates here. Esc leads to the text.");
  event.preventDefault();
}

/** @type {(event: KeyboardEvent) => boolean} */
const isLetter = ({ key }) => key !== "?" && /^\p{L}$/u.test(key);

function step(cards, here, by, list) {
  const columns = cards.filter(({ offsetTop }) => offsetTop === cards[0].offsetTop).length;
  const from = here < 0 && isReading() ? cardInView(list) : here;
  const to = from < 0 ? 0 : from + by(columns);
  cards[Math.min(Math.max(to, 0), cards.length - 1)]?.focus();
}

/** The place of a click in a text, in characters; words that are shown beside it do not count. */
export function placeIn(box, { clientX, clientY }) {
  const found = document.caretPositionFromPoint?.(clientX, clientY);
  const range = found ? null : document.caretRangeFromPoint?.(clientX, clientY);
  const node = found ? found.offsetNode : range?.startContainer;
  const offset = found ? found.offset : (range?.startOffset ?? 0);
  const isBeside = ({ parentElement }) => parentElement.closest("del, .alternatives");
  const walker = document.createTreeWalker(box, NodeFilter.SHOW_TEXT, (text) =>
    isBeside(text) ? NodeFilter.FILTER_REJECT : NodeFilter.FILTER_ACCEPT,
  );
  let before = 0;
  while (walker.nextNode() && walker.currentNode !== node) before += lengthOf(walker.currentNode);
  return walker.currentNode === node ? before + offset : before;
}

/** @type {(node: Node) => number} */
const lengthOf = (node) => node.nodeValue?.length ?? 0;
