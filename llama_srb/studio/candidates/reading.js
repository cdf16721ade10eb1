// Reading one candidate at a time, large: the same cards in a strip that is swiped, or walked by j and k.

import { session, setting } from "../story/session.js";
import { previewRead } from "../text/preview.js";
import { Button, html, useEffect, useState } from "../ui/ui.js";

const PHONE = "(max-width: 600px)"; // where candidates are read so until the writer wants otherwise

export const isReading = () => session.settings.reading ?? matchMedia(PHONE).matches;

export const readOneByOne = (reading) => setting({ reading });

/** The candidates get the focus with a click, so that j and k go on at once. */
export function ReadingSwitch() {
  const press = () => {
    readOneByOne(!isReading());
    document.getElementById("candidates")?.focus({ preventScroll: true });
  };
  return html`<${Button} label="Read" keys="v"
    about="One candidate at a time, large; j and k, or a swipe, go on" pressed=${isReading()}
    onClick=${press} />`;
}

const cardsOf = (list) => [...list.querySelectorAll(".card")];

/** The number, from 0, of the card that the strip shows. */
export const cardInView = (strip) => Math.round(strip.scrollLeft / strip.clientWidth);

/** Which candidate is read, with buttons to the next one and the one before. `ids`: those of the candidates;
    others may take the place of the one that was read. */
export function Pager({ list, ids }) {
  const count = ids.length;
  const [at, setAt] = useState(0);
  useEffect(() => {
    const strip = list.current;
    const look = () => {
      const card = cardInView(strip);
      setAt(card);
      previewRead(cardsOf(strip)[card]?.dataset.id ?? null);
    };
    look();
    strip.addEventListener("scroll", look);
    return () => {
      strip.removeEventListener("scroll", look);
      previewRead(null);
    };
  }, [ids.join()]);
  const go = (to) => () => cardsOf(list.current)[to].focus();
  return html`<${Button} label="The candidate before" keys="k" icon="‹" disabled=${at <= 0}
      onClick=${go(at - 1)} />
    <h2 class="place">${`${Math.min(at + 1, count)} of ${count}`}</h2>
    <${Button} label="The next candidate" keys="j" icon="›" disabled=${at + 1 >= count}
      onClick=${go(at + 1)} />`;
}

const STEP = 60; // pixels

/** Scrolls the text of the candidate that is read. */
export const scrollText = (card, steps) => card.querySelector(".text")?.scrollBy(0, steps * STEP);
