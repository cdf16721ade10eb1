// The tree of all texts and candidates, drawn; the arrow keys walk it.

import { joinToParent, mark, splitHere } from "../candidates/choosing.js";
import { goTo } from "../text/history.js";
import { Button, html, useChanges, useEffect, useLayoutEffect, useRef, useState } from "../ui/ui.js";
import { session } from "./session.js";
import { joinable, layout, pathTo, textOf } from "./tree.js";

const WIDE = 190; // of a column
const HIGH = 34; // of a row
const LABEL = 24; // characters
const SMALLEST = 0.75; // zoom at which labels can still be read: letters of 9 pixels
const LARGEST = 2.5;
const PASSAGE = 1000; // characters
const TITLE = 400;

export function Branches() {
  useChanges("story");
  const [zoom, setZoom] = useState(1);
  const [all, setAll] = useState(false);
  const [only, setOnly] = useState(null);
  const { story } = session;
  const [here, setHere] = useState(story.current);
  const path = new Set(pathTo(story).map((node) => node.id));
  const top = only && story.nodes[only] ? only : story.root;
  const { places, rows, columns } = layout(story, (node) => all || !node.aside || path.has(node.id), top);
  const at = Object.fromEntries(places.flatMap((place) => place.chain.map(({ id }) => [id, place])));
  const focus = (at[here] ?? at[story.current] ?? places[0]).node.id;
  const zoomBy = (factor) => setZoom(Math.min(LARGEST, Math.max(SMALLEST, zoom * factor)));
  const box = useRef();
  const search = useSearch(places, setHere);
  const found = new Set(search.found);
  useEffect(() => setHere(story.current), [story.current]);
  useFollowed(box, at[story.current], zoom);
  useFollowed(box, search.place, zoom);
  const onWheel = (event) => {
    if (!event.ctrlKey) return;
    event.preventDefault();
    zoomBy(event.deltaY < 0 ? 1.1 : 1 / 1.1);
  };
  return html`
    <div class="tools">
      <${Button} label="Smaller" icon="−" disabled=${zoom <= SMALLEST} onClick=${() => zoomBy(0.8)} />
      <${Button} label="Larger" icon="+" disabled=${zoom >= LARGEST} onClick=${() => zoomBy(1.25)} />
      <label class="check"><input type="checkbox" checked=${all}
        onChange=${() => setAll(!all)} /> Show discarded</label>
      <${Search} search=${search} />
    </div>
    <div class="tree" ref=${box} onWheel=${onWheel}>
      <svg role="tree" aria-label="Branches; arrows walk, Enter goes there" width=${columns * WIDE * zoom}
        height=${(rows + 1) * HIGH * zoom} viewBox=${`0 0 ${columns * WIDE} ${(rows + 1) * HIGH}`}
        onKeyDown=${(event) => walk(event, at, focus, setHere)}>
        ${places.flatMap((place) =>
          place.children.map(
            (child) => html`<path key=${child.node.id}
          class=${path.has(child.node.id) ? "edge on-path" : "edge"} d=${edge(place, child)} />`,
          ),
        )}
        ${places.map(
          (place) => html`<${Leaf} key=${place.node.id} place=${place} path=${path} focus=${focus}
          found=${found.has(place)} setHere=${setHere} />`,
        )}
      </svg>
    </div>
    <${Detail} node=${story.nodes[focus]} only=${only} setOnly=${setOnly} />`;
}

// ---- where the box is scrolled -----------------------------------------------------------------------

/** Scrolls the box so that a place is in its middle, whenever the place or the zoom has changed. */
function useFollowed(box, place, zoom) {
  useLayoutEffect(() => {
    if (!place) return;
    const [x, y] = point(place);
    const { clientWidth, clientHeight } = box.current;
    box.current.scrollTo((x + WIDE / 3) * zoom - clientWidth / 2, y * zoom - clientHeight / 2);
  }, [place?.node.id, place?.x, place?.y, zoom]);
}

/** The places whose texts have the words, and the one of them that was gone to; null: the first one. */
function useSearch(places, setHere) {
  const [sought, setSought] = useState("");
  const [hit, setHit] = useState(null);
  const words = sought.trim().toLowerCase();
  const found = words ? places.filter((place) => textIn(place).toLowerCase().includes(words)) : [];
  const step = (by) => {
    if (!found.length) return;
    const to = hit === null ? (by > 0 ? 0 : found.length - 1) : (hit + by + found.length) % found.length;
    setHit(to);
    setHere(found[to].node.id);
  };
  const seek = (text) => {
    setSought(text);
    setHit(null);
  };
  return { sought, seek, found, step, place: found[hit ?? 0], number: hit === null ? null : hit + 1 };
}

function Search({ search: { sought, seek, found, step, number } }) {
  const onKey = (event) => {
    if (event.key !== "Enter") return;
    event.preventDefault();
    step(event.shiftKey ? -1 : 1);
  };
  return html`<input type="search" aria-label="Search the branches" placeholder="Search" value=${sought}
      title="Enter goes to the next one, Shift+Enter to the one before"
      onInput=${(event) => seek(event.target.value)} onKeyDown=${onKey} />
    <span class="found" role="status">
      ${sought.trim() && (number ? `${number} of ${found.length}` : `${found.length} found`)}</span>`;
}

// ---- nodes and edges ---------------------------------------------------------------------------------

const point = ({ x, y }) => [x * WIDE + 14, y * HIGH + HIGH / 2 + 6];

function edge(from, to) {
  const [[x1, y1], [x2, y2]] = [point(from), point(to)];
  return `M${x1} ${y1}C${x1 + WIDE / 2} ${y1} ${x1 + WIDE / 2} ${y2} ${x2} ${y2}`;
}

/** The text of a place, which is that of some pieces; its beginning, up to `most` characters. */
function textIn({ chain }, most = Infinity) {
  let text = "";
  for (const node of chain) if (text.length < most) text += node.text;
  return text.slice(0, most);
}

/** What stands for a text without a letter.
    @type {(text: string) => string} */
const blankNamed = (text) => (text.includes("\n") ? "(a line break)" : text ? "(a space)" : "(empty)");

function Leaf({ place, path, focus, found, setHere }) {
  const { node } = place;
  const [x, y] = point(place);
  const text = textIn(place, TITLE);
  const label = text.trim().replace(/\s+/g, " ") || (node.parent ? blankNamed(text) : "(the beginning)");
  const short = label.length > LABEL ? `${label.slice(0, LABEL).replace(/\s\S*$/, "")}…` : label;
  const sign = (node.bookmark ? "★ " : "") + (node.folded ? `+${node.children.length} ` : "");
  const kind = [
    "leaf",
    path.has(node.id) && "on-path",
    node.id === session.story.current && "current",
    found && "found",
    node.source === "model" && !node.seen && "unseen-yet",
    node.aside && "aside",
  ]
    .filter(Boolean)
    .join(" ");
  return html`<g role="treeitem" class=${kind} id=${`leaf-${node.id}`} tabindex=${node.id === focus ? 0 : -1}
    aria-level=${place.x + 1} aria-selected=${String(node.id === session.story.current)}
    aria-label=${sign + label.slice(0, 200)}
    aria-expanded=${node.children.length ? String(!node.folded) : undefined}
    onFocus=${() => setHere(node.id)} onClick=${() => goTo(node.id)}>
    <title>${label}</title>
    <circle cx=${x} cy=${y} r=${node.bookmark ? 7 : 5} />
    <text x=${x + 10} y=${y - 5}>${sign}${short}</text>
  </g>`;
}

/** The node that an arrow key leads to: parent, first child, or the next one in the column. */
const STEPS = {
  ArrowLeft: (at, place) => at[place.chain[0].parent],
  ArrowRight: (_at, place) => place.children[0],
  ArrowUp: (at, place) => beside(at, place, -1),
  ArrowDown: (at, place) => beside(at, place, 1),
};

function beside(at, place, step) {
  const column = [...new Set(Object.values(at))].filter(({ x }) => x === place.x).sort((a, b) => a.y - b.y);
  return column[column.indexOf(place) + step];
}

function walk(event, at, focus, setHere) {
  if (event.key === "Enter" || event.key === " ") {
    event.preventDefault();
    goTo(focus);
    return;
  }
  const to = STEPS[event.key]?.(at, at[focus] ?? Object.values(at)[0]);
  if (!to) return;
  event.preventDefault();
  setHere(to.node.id);
  document.getElementById(`leaf-${to.node.id}`)?.focus();
}

function Detail({ node, only, setOnly }) {
  const whole = textOf(session.story, node.id);
  const passage = useRef();
  useLayoutEffect(() => (passage.current.scrollTop = passage.current.scrollHeight) && undefined, [whole]);
  return html`<div class="detail">
    <div class="text" dir="auto" ref=${passage} role="region" aria-label="The passage" tabindex="0">
      ${whole.length > PASSAGE ? `…${whole.slice(-PASSAGE)}` : whole}</div>
    <div class="tools">
      <${Button} label="Go there" keys="Enter" onClick=${() => goTo(node.id)} />
      <${Button} label="Bookmark" pressed=${!!node.bookmark}
        onClick=${() => mark(node.id, { bookmark: !node.bookmark })} />
      <${Button} label="Fold" pressed=${!!node.folded}
        onClick=${() => mark(node.id, { folded: !node.folded })} />
      <${Button} label="Only this" about="Shows this branch alone" pressed=${only === node.id}
        onClick=${() => setOnly(only === node.id ? null : node.id)} />
      <${Button} label="Join" about="Makes one piece of this one and the one before it"
        disabled=${!joinable(session.story, node.id)} onClick=${() => joinToParent(node.id)} />
      <${Button} label="Split" about="Cuts the text at the editor’s caret: a place to go back to"
        onClick=${splitHere} />
      <${Button} label=${node.aside ? "Bring back" : "Discard"} disabled=${!node.parent}
        onClick=${() => mark(node.id, { aside: !node.aside })} />
    </div></div>`;
}
