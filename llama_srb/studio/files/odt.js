// OpenDocument texts (.odt) become text, with emphasis, headings, lists, quotes and notes.

import { run } from "./emphasis.js";
import { byLines, callOf, rowOf, textIn, withNotes } from "./paragraphs.js";
import { inSigns, signFontOf } from "./symbols.js";
import { allOf, childOf, inParts, pauses, readXml, titleIn } from "./xml.js";
import { unzipped } from "./zip.js";

/** @import { Run } from "./emphasis.js" */
/** @import { Paragraph } from "./paragraphs.js" */

/** @typedef {{name: string, above: string | null, italic: boolean | null, bold: boolean | null,
      isHidden: boolean | null, font: string | null}} Style `font`: of signs */
/** @typedef {{isNumbered: boolean, start: number}} Level of a list */
/** An item of a list, which takes one paragraph.
    @typedef {{style: string, level: number, number: number, isTaken: boolean}} Item */
/** @typedef {{styles: Map<string, Style>, lists: Map<string, Level[]>, all: Paragraph[], notes: Element[],
      item: Item | null}} Reader */

/** An attribute by its local name.
    @type {(element: Element | null | undefined, name: string) => string | null} */
const attribute = (element, name) =>
  [...(element?.attributes ?? [])].find(({ localName }) => localName === name)?.value ?? null;

/** The title and the text of an .odt.
    @type {(buffer: ArrayBuffer) => Promise<{title: string, text: string}>} */
export async function fromOdt(buffer) {
  const zip = unzipped(buffer);
  const manifest = await readXml(zip, "META-INF/manifest.xml");
  if (allOf(manifest, "encryption-data").length) throw new Error("it has a password; save it without one");
  /** @type {Reader} */
  const reader = {
    styles: new Map(),
    lists: new Map(),
    all: [],
    notes: [],
    item: null,
  };
  const pause = pauses();
  learnStyles(reader, await readXml(zip, "styles.xml"));
  for await (const text of inParts(zip, "content.xml", "text")) {
    learnStyles(reader, text.ownerDocument); // each part has those of the document
    for (const child of text.children) {
      readBlock(reader, child);
      const wait = pause();
      if (wait) await wait;
    }
  }
  const text = withNotes(await textIn(reader.all), notesOf(reader));
  return { title: await titleIn(zip, "meta.xml"), text };
}

/** @type {(reader: Reader, parsed: Document | null) => void} */
function learnStyles({ styles, lists }, parsed) {
  for (const one of allOf(parsed, "style")) styles.set(...styleOf(one));
  for (const one of allOf(parsed, "list-style")) lists.set(...listOf(one));
}

/** @type {(one: Element) => [string, Style]} */
function styleOf(one) {
  const looks = childOf(one, "text-properties");
  const [slant, weight, display, font] = ["font-style", "font-weight", "display", "font-name"].map((name) =>
    attribute(looks, name),
  );
  const id = attribute(one, "name") ?? "";
  return [
    id,
    {
      name: attribute(one, "display-name") ?? id.replaceAll("_20_", " "),
      above: attribute(one, "parent-style-name"),
      italic: slant === null ? null : slant !== "normal",
      bold: weight === null ? null : weight === "bold" || Number(weight) >= 600,
      isHidden: display === null ? null : display === "none",
      font: font === null ? null : signFontOf(font),
    },
  ];
}

/** @type {(one: Element) => [string, Level[]]} */
const listOf = (one) => [
  attribute(one, "name") ?? "",
  [...one.children].map((level) => ({
    isNumbered: level.localName.endsWith("number") && attribute(level, "num-format") !== "",
    start: Number(attribute(level, "start-value") ?? 1),
  })),
];

/** @type {(styles: Map<string, Style>, id: string | null) => Style[]} */
function chainOf(styles, id) {
  const all = new Set();
  for (let one = styles.get(id ?? ""); one && !all.has(one); one = styles.get(one.above ?? "")) all.add(one);
  return [...all];
}

const LEFT_OUT = new Set(
  (
    "tracked-changes annotation annotation-end covered-table-cell sequence-decls variable-decls " +
    "user-field-decls forms ruby-text note-citation list-header table-column desc title"
  ).split(" "),
);

/** Whether an element is hidden: a section, a text under a condition, what has a style that hides.
    @type {(reader: Reader, element: Element) => boolean} */
function isHidden({ styles }, element) {
  const is = attribute(element, "is-hidden") ?? String(element.localName === "hidden-text");
  const chain = chainOf(styles, attribute(element, "style-name"));
  return (
    is === "true" ||
    attribute(element, "display") === "none" ||
    !!chain.find((one) => one.isHidden !== null)?.isHidden
  );
}

/** @type {(reader: Reader, element: Element) => void} */
function readBlock(reader, element) {
  const name = element.localName;
  if (LEFT_OUT.has(name) || isHidden(reader, element)) return;
  if (name === "p" || name === "h") readParagraph(reader, element);
  else if (name === "list") readList(reader, element);
  else if (name === "table-row") readRow(reader, element);
  else for (const child of [...element.children]) readBlock(reader, child);
}

/** @type {(reader: Reader, list: Element) => void} */
function readList(reader, list) {
  const outer = reader.item;
  const style = attribute(list, "style-name") ?? outer?.style ?? "";
  const level = outer ? outer.level + 1 : 0;
  let number = Number(attribute(list, "start-value") ?? reader.lists.get(style)?.[level]?.start ?? 1);
  for (const child of [...list.children]) {
    if (LEFT_OUT.has(child.localName)) continue;
    number = Number(attribute(child, "start-value") ?? number);
    reader.item = { style, level, number: number++, isTaken: false };
    for (const one of [...child.children]) readBlock(reader, one);
  }
  reader.item = outer;
}

/** @type {(reader: Reader, row: Element) => void} */
function readRow(reader, row) {
  const { all } = reader;
  const cells = [...row.children].filter(({ localName }) => localName === "table-cell");
  const read = cells.map((cell) => {
    reader.all = [];
    for (const child of [...cell.children]) readBlock(reader, child);
    return reader.all.flatMap(byLines);
  });
  reader.all = all;
  all.push(...rowOf(read));
}

/** @type {(reader: Reader, element: Element) => void} */
function readParagraph(reader, element) {
  if (allOf(element, "hidden-paragraph").some((one) => isHidden(reader, one))) return;
  const styles = chainOf(reader.styles, attribute(element, "style-name"));
  const names = styles.map(({ name }) => name).join("\n");
  const level =
    element.localName === "h"
      ? Number(attribute(element, "outline-level") ?? 1)
      : /^title$/im.test(names)
        ? 1
        : 0;
  const isQuote = /^(quotations|quote|block ?text)$/im.test(names);
  const look = level || isQuote ? run("") : lookOf(styles, run(""));
  /** @type {Line} */
  const line = { runs: [], boxes: [] };
  readInline(reader, element, line, look);
  const runs = collapsed(line.runs);
  const isRule = !runs.length && /^horizontal line$/im.test(names);
  if (isRule) reader.all.push({ kind: "break", level: 0, runs: [run("***")] });
  else if (level) reader.all.push({ kind: "heading", level, runs });
  else reader.all.push({ ...markOf(reader, isQuote), runs });
  for (const box of line.boxes) for (const child of [...box.children]) readBlock(reader, child);
}

/** @typedef {{runs: (Run & {isSign?: boolean})[], boxes: Element[]}} Line `isSign`: blanks that count */

/** @type {(reader: Reader, isQuote: boolean) => {kind: Paragraph["kind"], level: number}} */
function markOf({ item, lists }, isQuote) {
  if (!item || item.isTaken) return { kind: isQuote ? "quote" : "text", level: 0 };
  item.isTaken = true;
  const isNumbered = lists.get(item.style)?.[item.level]?.isNumbered;
  return isNumbered ? { kind: "number", level: item.number } : { kind: "bullet", level: 0 };
}

/** @typedef {Run & {font?: string}} Look */

/** @type {(styles: Style[], outer: Look) => Look} */
const lookOf = (styles, outer) => ({
  ...run(
    "",
    styles.find(({ italic }) => italic !== null)?.italic ?? outer.italic,
    styles.find(({ bold }) => bold !== null)?.bold ?? outer.bold,
  ),
  font: styles.find(({ font }) => font !== null)?.font ?? outer.font,
});

/** @type {(reader: Reader, element: Element, line: Line, look: Look) => void} */
function readInline(reader, element, line, look) {
  /** @type {(text: string, isSign?: boolean) => void} */
  const add = (text, isSign = true) => void line.runs.push({ ...look, text, isSign });
  for (const child of element.childNodes) {
    if (child instanceof Text) add(inSigns(child.data, look.font), false);
    if (!(child instanceof Element) || LEFT_OUT.has(child.localName) || isHidden(reader, child)) continue;
    const name = child.localName;
    if (name === "s") add(" ".repeat(Math.min(1000, Number(attribute(child, "c") ?? 1))));
    else if (name === "tab") add("\t");
    else if (name === "line-break") add("\n");
    else if (name === "text-box") line.boxes.push(child);
    else if (name === "note") add(callOf(reader.notes.push(child)));
    else if (name === "span")
      readInline(reader, child, line, lookOf(chainOf(reader.styles, attribute(child, "style-name")), look));
    else readInline(reader, child, line, look);
  }
}

/** Runs in which blanks that follow each other are one, and none is at the begin, as OpenDocument says.
    @type {(runs: Line["runs"]) => Run[]} */
function collapsed(runs) {
  let isBegin = true;
  return runs.flatMap(({ isSign, ...one }) => {
    let text = one.text;
    if (!isSign) {
      text = text.replaceAll(/[ \t\n\r]+/g, " ");
      if (isBegin && text.startsWith(" ")) text = text.slice(1);
    }
    if (text) isBegin = !isSign && text.endsWith(" ");
    return text ? [{ ...one, text }] : [];
  });
}

/** @type {(reader: Reader) => Run[][]} */
function notesOf(reader) {
  return reader.notes.map((note) => {
    /** @type {Reader} */
    const own = { ...reader, all: [], notes: [], item: null };
    for (const child of [...(childOf(note, "note-body")?.children ?? [])]) readBlock(own, child);
    return own.all.flatMap(({ runs }, i) => [
      ...(i ? [run(" ")] : []),
      ...runs.map((one) => ({ ...one, text: one.text.replaceAll("\n", " ") })),
    ]);
  });
}
