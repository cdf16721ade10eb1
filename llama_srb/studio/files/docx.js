// Word files (.docx) become paragraphs. What is not text is left out: pictures, comments, headers, deletions.
//
// Elements are found by their local names, since Word has two namespaces for each, "transitional" and
// "strict".

import { blockOf, LEVELS, run } from "./emphasis.js";
import { byLines, callOf, rowOf, textIn, withNotes, withoutBold } from "./paragraphs.js";
import { inSigns, signFontOf } from "./symbols.js";
import { allOf, childOf, childrenOf, inParts, pauses, readXml, resolved, titleIn } from "./xml.js";
import { unzipped } from "./zip.js";

/** @import { Block, Run } from "./emphasis.js" */
/** @import { Paragraph } from "./paragraphs.js" */
/** @import { Zip } from "./zip.js" */

const NAMESPACES = [
  "http://schemas.openxmlformats.org/wordprocessingml/2006/main",
  "http://purl.oclc.org/ooxml/wordprocessingml/main",
];
export const SPACE_BEFORE = "Space Before"; // the styles of our own files
export const SCENE_BREAK = "Scene Break";
export const LITERAL = "Literal";
export const DOT = "•"; // of a scene break, for the star
const SPACE = 200; // twentieths of a point; so much space before a paragraph is a blank line

/** @type {(element: Element | undefined, name: string) => string | null} */
const attribute = (element, name) =>
  NAMESPACES.map((namespace) => element?.getAttributeNS(namespace, name) ?? null).find(
    (value) => value !== null,
  ) ?? null;

/** The value of an element that says yes or no; null if it is not there.
    @type {(element: Element | undefined) => boolean | null} */
const toggle = (element) => (element ? !/^(0|false|off|none)$/.test(attribute(element, "val") ?? "1") : null);

/** @typedef {{name: string, above: string | null, isDefault: boolean, italic: boolean | null,
      bold: boolean | null, isHidden: boolean | null, outline: number | null,
      list: [string | null, string | null] | null}} Style */
/** @typedef {{format: string, text: string, start: number}} Level of a list */
/** @typedef {object} Reader
    @property {Map<string, Style>} styles
    @property {string | null} plain the style of paragraphs that name none
    @property {boolean} isOurs the file was exported here
    @property {Map<string, Map<string, Level>>} lists
    @property {Map<string, number[]>} counts
    @property {Record<string, Map<string | null, Element>>} notes
    @property {Element[]} called notes
    @property {boolean[]} fields for each field that is open whether its result has begun
    @property {Paragraph[]} all
    @property {Run[]} open runs of a paragraph whose end is deleted */
/** `font`: of signs.
    @typedef {Run & {isHidden?: boolean, font?: string}} Look */
/** @typedef {{runs: Run[], boxes: Element[], style: Look | null, hasRule: boolean, isBroken: boolean}} Line
    `isBroken`: by a page break, which is a line break if text follows */

/** The title and the text of a .docx.
    @type {(buffer: ArrayBuffer) => Promise<{title: string, text: string}>} */
export async function fromDocx(buffer) {
  const zip = unzipped(buffer);
  const whole = await related(zip, "");
  const main = whole.officeDocument ?? "word/document.xml";
  const parts = await related(zip, main);
  /** @type {(name: string) => Promise<Document | null>} */
  const part = (name) => readXml(zip, parts[name]);
  const styles = stylesOf(await part("styles"));
  const lists = listsOf(await part("numbering"));
  /** @type {Reader} */
  const reader = {
    styles,
    isOurs: [...styles.values()].some(({ name }) => name === SPACE_BEFORE),
    plain: [...styles].find(([, { isDefault }]) => isDefault)?.[0] ?? null,
    lists,
    counts: new Map(),
    notes: {
      footnote: byId(await part("footnotes"), "footnote"),
      endnote: byId(await part("endnotes"), "endnote"),
    },
    called: [],
    fields: [],
    all: [],
    open: [],
  };
  const pause = pauses();
  for await (const body of inParts(zip, main, "body"))
    for (const child of body.children) {
      readBlock(reader, child);
      const wait = pause();
      if (wait) await wait;
    }
  if (reader.open.length) reader.all.push({ kind: "text", level: 0, runs: reader.open });
  const text = withNotes(await textIn(reader.all), notesOf(reader)).replaceAll("\r", "");
  return { title: await titleIn(zip, whole["core-properties"]), text };
}

/** The parts that a part is related to, by the last word of the relation's type; "" is the whole file.
    @type {(zip: Zip, part: string) => Promise<Record<string, string>>} */
async function related(zip, part) {
  const at = part.lastIndexOf("/") + 1;
  const parsed = await readXml(zip, `${part.slice(0, at)}_rels/${part.slice(at)}.rels`);
  const all = allOf(parsed, "Relationship").filter((one) => one.getAttribute("TargetMode") !== "External");
  return Object.fromEntries(
    all.map((one) => [
      one.getAttribute("Type")?.split("/").at(-1),
      resolved(part, one.getAttribute("Target") ?? ""),
    ]),
  );
}

/** @type {(parsed: Document | null, name: string) => Map<string | null, Element>} */
const byId = (parsed, name) => new Map(allOf(parsed, name).map((one) => [attribute(one, "id"), one]));

// ---- styles and lists --------------------------------------------------------------------------------

/** Ids of styles are words of Word's language, but the names of its own styles are English.
    @type {(parsed: Document | null) => Map<string, Style>} */
function stylesOf(parsed) {
  return new Map(
    allOf(parsed, "style").map((one) => [
      attribute(one, "styleId") ?? "",
      {
        name: attribute(childOf(one, "name"), "val") ?? "",
        above: attribute(childOf(one, "basedOn"), "val"),
        isDefault: attribute(one, "default") === "1" && attribute(one, "type") === "paragraph",
        italic: toggle(childOf(one, "rPr", "i")),
        bold: toggle(childOf(one, "rPr", "b")),
        isHidden: toggle(childOf(one, "rPr", "vanish")),
        outline: numberOf(childOf(one, "pPr", "outlineLvl")),
        list: listOf(childOf(one, "pPr", "numPr")),
      },
    ]),
  );
}

/** @type {(element: Element | undefined) => number | null} */
function numberOf(element) {
  const value = attribute(element, "val");
  return value !== null && /^\d+$/.test(value) ? Number(value) : null;
}

/** @type {(numPr: Element | undefined) => [string | null, string | null] | null} */
const listOf = (numPr) =>
  numPr ? [attribute(childOf(numPr, "numId"), "val"), attribute(childOf(numPr, "ilvl"), "val")] : null;

/** A style and those that it is based on, the nearest first.
    @type {(styles: Map<string, Style>, id: string | null) => Style[]} */
function chainOf(styles, id) {
  const all = new Set();
  for (let one = styles.get(id ?? ""); one && !all.has(one); one = styles.get(one.above ?? "")) all.add(one);
  return [...all];
}

/** @type {(parsed: Document | null) => Map<string, Map<string, Level>>} */
function listsOf(parsed) {
  const abstract = new Map(allOf(parsed, "abstractNum").map((one) => [attribute(one, "abstractNumId"), one]));
  return new Map(
    allOf(parsed, "num")
      .filter((one) => one.localName === "num")
      .map((one) => {
        const levels = levelsOf(abstract.get(attribute(childOf(one, "abstractNumId"), "val")));
        for (const over of childrenOf(one, "lvlOverride")) {
          const at = attribute(over, "ilvl") ?? "0";
          for (const [index, level] of levelsOf(over)) levels.set(index, level);
          const start = numberOf(childOf(over, "startOverride"));
          const level = levels.get(at);
          if (start !== null && level) levels.set(at, { ...level, start });
        }
        return [attribute(one, "numId") ?? "", levels];
      }),
  );
}

/** @type {(within: Element | undefined) => Map<string, Level>} */
const levelsOf = (within) =>
  new Map(
    childrenOf(within, "lvl").map((one) => [
      attribute(one, "ilvl") ?? "0",
      {
        format: attribute(childOf(one, "numFmt"), "val") ?? "decimal",
        text: attribute(childOf(one, "lvlText"), "val") ?? "",
        start: numberOf(childOf(one, "start")) ?? 0,
      },
    ]),
  );

const ROMAN = Object.entries({
  m: 1000,
  cm: 900,
  d: 500,
  cd: 400,
  c: 100,
  xc: 90,
  l: 50,
  xl: 40,
  x: 10,
  ix: 9,
});
ROMAN.push(["v", 5], ["iv", 4], ["i", 1]);

/** @type {(number: number) => string} */
function roman(number) {
  let text = "";
  for (const [sign, value] of ROMAN)
    for (; number >= value && text.length < 20; number -= value) text += sign;
  return text;
}

/** @type {(number: number) => string} */
const letters = (number) =>
  number < 1 ? String(number) : String.fromCharCode(97 + ((number - 1) % 26)).repeat(Math.ceil(number / 26));

/** @type {Record<string, (number: number) => string>} */
const FORMATS = {
  lowerLetter: letters,
  upperLetter: (number) => letters(number).toUpperCase(),
  lowerRoman: roman,
  upperRoman: (number) => roman(number).toUpperCase(),
  decimalZero: (number) => String(number).padStart(2, "0"),
};

/** What Word writes before an item: "•", "3.", "a)"; it counts. "" for none.
    @type {(reader: Reader, list: Style["list"]) => {format: string, label: string}} */
function labelOf({ lists, counts }, list) {
  const levels = lists.get(list?.[0] ?? "");
  const index = list?.[1] ?? "0";
  const level = levels?.get(index);
  if (!list?.[0] || !levels || !level) return { format: "none", label: "" };
  const own = counts.get(list[0]) ?? [];
  counts.set(list[0], own);
  const at = Number(index);
  own[at] = own[at] === undefined ? level.start : own[at] + 1;
  own.length = at + 1;
  const label = level.text.replace(/%(\d)/g, (_, digit) => {
    const other = levels.get(String(digit - 1));
    const number = own[digit - 1] ?? other?.start ?? 1;
    return (FORMATS[other?.format ?? ""] ?? String)(number);
  });
  return { format: level.format, label };
}

// ---- paragraphs --------------------------------------------------------------------------------------

const LEFT_OUT = new Set(
  "del moveFrom pPr rPr tblPr tblGrid trPr tcPr sdtPr sdtEndPr rubyPr rt instrText delText".split(" "),
);

/** Reads what holds paragraphs: a body, a table, a content control, what was inserted.
    @type {(reader: Reader, element: Element) => void} */
function readBlock(reader, element) {
  const name = element.localName;
  if (LEFT_OUT.has(name)) return;
  if (name === "p") return readParagraph(reader, element);
  if (name === "tr") return readRow(reader, element);
  if (name === "fldChar") return readField(reader, element);
  for (const child of alternatives(element)) readBlock(reader, child);
}

/** The children of an element; where it has the same twice, for newer and for older programs, the first.
    @type {(element: Element) => Element[]} */
function alternatives(element) {
  if (element.localName !== "AlternateContent") return [...element.children];
  const all = [...element.children];
  const best = all.find((one) => allOf(one, "p").length || allOf(one, "t").length) ?? all[0];
  return best ? [...best.children] : [];
}

/** @type {(reader: Reader, row: Element) => void} */
function readRow(reader, row) {
  if (childOf(row, "trPr", "del") || toggle(childOf(row, "trPr", "hidden"))) return;
  const { all } = reader;
  const cells = allOf(row, "tc").filter((cell) => nearest(cell, "tr") === row);
  const read = cells
    .filter((cell) => !isContinued(cell))
    .map((cell) => {
      reader.all = [];
      for (const child of [...cell.children]) readBlock(reader, child);
      return reader.all.flatMap(byLines);
    });
  reader.all = all;
  all.push(...rowOf(read));
}

/** @type {(element: Element, name: string) => Element | null} */
function nearest(element, name) {
  let one = element.parentElement;
  while (one && one.localName !== name) one = one.parentElement;
  return one;
}

/** Whether a cell is the lower part of one that is merged with the cells above.
    @type {(cell: Element) => boolean} */
function isContinued(cell) {
  const merge = childOf(cell, "tcPr", "vMerge");
  return !!merge && attribute(merge, "val") !== "restart";
}

/** @type {(reader: Reader, paragraph: Element) => void} */
function readParagraph(reader, paragraph) {
  const properties = childOf(paragraph, "pPr");
  const id = attribute(childOf(properties, "pStyle"), "val");
  const styles = chainOf(reader.styles, id ?? reader.plain);
  const { kind, level, label } = kindOf(reader, properties, styles);
  const marked = kind === "text" ? styles : []; // a heading is bold, a quote italic, all of it
  const style = {
    ...run(
      "",
      marked.find(({ italic }) => italic !== null)?.italic ?? false,
      marked.find(({ bold }) => bold !== null)?.bold ?? false,
    ),
    isHidden: styles.find(({ isHidden }) => isHidden !== null)?.isHidden ?? false,
  };
  /** @type {Line} */
  const line = { runs: label ? [run(label)] : [], boxes: [], style, hasRule: false, isBroken: false };
  readInline(reader, paragraph, line);
  const mark = childOf(properties, "rPr");
  const all = [...reader.open, ...line.runs];
  const runs = kind === "heading" && !reader.isOurs ? withoutBold(all) : all;
  const spaced = isSpaced(properties, styles);
  if (isEndGone(mark) || style.isHidden) reader.open = runs;
  else {
    reader.open = [];
    reader.all.push(paragraphOf(kind, level, runs, spaced, line.hasRule || hasRule(properties), styles));
  }
  for (const box of line.boxes) for (const child of [...box.children]) readBlock(reader, child);
}

/** Whether a paragraph goes on in the next one: its end is deleted, or hidden. Of two styles in a line each
    has its own paragraph.
    @type {(mark: Element | undefined) => boolean} */
const isEndGone = (mark) =>
  !!(childOf(mark, "del") ?? childOf(mark, "moveFrom")) ||
  (!!toggle(childOf(mark, "vanish")) && !toggle(childOf(mark, "specVanish")));

/** @type {(properties: Element | undefined) => boolean} */
const hasRule = (properties) => !!childOf(properties, "pBdr", "bottom");

/** @type {(kind: Block["kind"], level: number, runs: Run[], spaced: boolean, hasRule: boolean,
      styles: Style[]) => Paragraph} */
function paragraphOf(kind, level, runs, spaced, hasRule, styles) {
  const text = runs.map((one) => one.text).join("");
  const stars = text.replaceAll(DOT, "*");
  const isOurs = styles[0]?.name === SCENE_BREAK && blockOf(stars).kind === "break";
  if (isOurs || (!text.trim() && hasRule))
    return { kind: "break", level: 0, runs: [run(isOurs ? stars : "***")], spaced };
  return { kind, level, runs, spaced };
}

/** @type {(properties: Element | undefined, styles: Style[]) => boolean} */
const isSpaced = (properties, styles) =>
  styles[0]?.name === SPACE_BEFORE || Number(attribute(childOf(properties, "spacing"), "before")) >= SPACE;

/** @type {(reader: Reader, properties: Element | undefined, styles: Style[]) =>
      {kind: Block["kind"], level: number, label: string}} */
function kindOf(reader, properties, styles) {
  const level = headingOf(properties, styles);
  const list = listOf(childOf(properties, "numPr")) ?? styles.find((one) => one.list)?.list ?? null;
  const { format, label } = labelOf(reader, list);
  if (level) return { kind: "heading", level, label: label && format !== "bullet" ? `${label} ` : "" };
  if (format === "bullet") return { kind: "bullet", level: 0, label: "" };
  const number = /^(0|[1-9]\d{0,3})\.$/.exec(label)?.[1];
  if (number) return { kind: "number", level: Number(number), label: "" };
  const isQuote = styles.some(({ name }) => /^((intense )?quote|block text)$/i.test(name));
  return { kind: isQuote ? "quote" : "text", level: 0, label: label && `${label} ` };
}

/** @type {(properties: Element | undefined, styles: Style[]) => number} */
function headingOf(properties, styles) {
  for (const { name } of styles) {
    const found = /^(?:heading ([1-9])|title)$/i.exec(name);
    if (found) return Math.min(LEVELS, Number(found[1] ?? 1));
  }
  const outline =
    numberOf(childOf(properties, "outlineLvl")) ?? styles.find((one) => one.outline !== null)?.outline ?? 9;
  return outline < 9 ? Math.min(LEVELS, outline + 1) : 0;
}

// ---- what stands in a paragraph ----------------------------------------------------------------------

/** @type {Record<string, (element: Element) => string>} */
const SIGNS = {
  t: ({ textContent }) => textContent ?? "",
  tab: () => "\t",
  ptab: () => "\t",
  br: () => "\n",
  cr: () => "\n",
  noBreakHyphen: () => "\u2011",
  softHyphen: () => "\u00ad",
  sym: (element) =>
    inSigns(
      String.fromCharCode(Number.parseInt(attribute(element, "char") ?? "", 16) || 0xfffd),
      signFontOf(attribute(element, "font") ?? ""),
      true,
    ),
};

const PAGES = new Set(/** @type {(string | null)[]} */ (["page", "column"]));

/** @type {Record<string, string>} */
const CALLS = { footnoteReference: "footnote", endnoteReference: "endnote" };

/** @type {(reader: Reader, element: Element, line: Line, look?: Look | null) => void} */
function readInline(reader, element, line, look = line.style) {
  for (const child of alternatives(element)) {
    const name = child.localName;
    if (LEFT_OUT.has(name)) continue;
    if (name === "r") readInline(reader, child, line, lookOf(reader, child, line.style));
    else if (name === "fldChar") readField(reader, child);
    else if (name === "txbxContent") line.boxes.push(child);
    else if (name === "br" && PAGES.has(attribute(child, "type"))) line.isBroken = line.runs.length > 0;
    else if (name in SIGNS) add(reader, line, look, SIGNS[name](child));
    else if (name in CALLS) call(reader, line, look, reader.notes[CALLS[name]].get(attribute(child, "id")));
    else {
      if (child.getAttributeNS("urn:schemas-microsoft-com:office:office", "hr") === "t") line.hasRule = true;
      readInline(reader, child, line, look);
    }
  }
}

/** The emphasis of a run: its own, else that of its style, else the paragraph's.
    @type {(reader: Reader, element: Element, style: Look | null) => Look} */
function lookOf(reader, element, style) {
  const properties = childOf(element, "rPr");
  const styles = chainOf(reader.styles, attribute(childOf(properties, "rStyle"), "val"));
  /** @type {(name: "italic" | "bold" | "isHidden", tag: string) => boolean} */
  const value = (name, tag) =>
    toggle(childOf(properties, tag)) ??
    styles.find((one) => one[name] !== null)?.[name] ??
    style?.[name] ??
    false;
  const isHidden = value("isHidden", "vanish");
  const font = signFontOf(attribute(childOf(properties, "rFonts"), "ascii") ?? "");
  return {
    ...run("", value("italic", "i"), value("bold", "b"), styles[0]?.name === LITERAL),
    isHidden,
    font,
  };
}

/** @type {(reader: Reader, look: Look | null) => boolean} */
const isShown = ({ fields }, look) => !look?.isHidden && !fields.includes(false);

/** @type {(reader: Reader, line: Line, look: Look | null, text: string) => void} */
function add(reader, line, look, text) {
  if (!text || !isShown(reader, look)) return;
  if (line.isBroken) line.runs.push(run("\n"));
  line.isBroken = false;
  line.runs.push({ ...(look ?? run("")), text: inSigns(text, look?.font) });
}

/** @type {(reader: Reader, line: Line, look: Look | null, note: Element | undefined) => void} */
function call(reader, line, look, note) {
  if (!note || !isShown(reader, look)) return;
  reader.called.push(note);
  add(reader, line, { ...(look ?? run("")), literal: false }, callOf(reader.called.length));
}

/** Of a field its result is text, not its code; a field may stand in another's code.
    @type {(reader: Reader, element: Element) => void} */
function readField({ fields }, element) {
  const type = attribute(element, "fldCharType");
  if (type === "begin") fields.push(false);
  else if (type === "separate" && fields.length) fields[fields.length - 1] = true;
  else if (type === "end") fields.pop();
}

/** The texts of the notes in the order in which they are called; a note's paragraphs are one.
    @type {(reader: Reader) => Run[][]} */
function notesOf(reader) {
  return reader.called.map((note) => {
    /** @type {Reader} */
    const own = { ...reader, all: [], open: [], fields: [], called: [] };
    for (const child of [...note.children]) readBlock(own, child);
    return own.all.flatMap(({ runs }, i) => [
      ...(i ? [run(" ")] : []),
      ...runs.map((one) => ({ ...one, text: one.text.replaceAll("\n", " ") })),
    ]);
  });
}
