// HTML becomes text, and text HTML: of EPUB's chapters, and of what Word, Google Docs and pages copy.
//
// Emphasis, headings, lists, quotes and rules are kept; the rest of the looks is left out.

import { marksOf } from "../candidates/quotes.js";
import { run } from "./emphasis.js";
import { byLines, CALL, callOf, paragraphsOf, rowOf, textOfParagraphs, withoutBold } from "./paragraphs.js";
import { inSigns, signFontOf } from "./symbols.js";
import { escaped } from "./xml.js";

/** @import { Marks } from "../candidates/quotes.js" */
/** @import { Run } from "./emphasis.js" */
/** @import { Paragraph } from "./paragraphs.js" */

/** How an element's text looks; null: as around it. `isPre`: its blanks count; `font`: of signs, "" another.
    @typedef {{italic: boolean | null, bold: boolean | null, isPre: boolean | null,
      isHidden?: boolean | null, font?: string | null}} Look */

/** @type {(words: string) => Set<string>} */
const names = (words) => new Set(words.split(" "));
const LEFT_OUT = names(
  "head script x-style template noscript iframe object svg select button input textarea rt rp del title nav",
);
const BLOCKS = names(
  "address article aside blockquote body caption center dd details div dl dt fieldset figcaption figure " +
    "footer form h1 h2 h3 h4 h5 h6 header hgroup hr html li main ol p pre section summary table tbody " +
    "tfoot thead tr ul",
);
const APART = names("p blockquote ul ol dl pre h1 h2 h3 h4 h5 h6 table hr"); // as browsers show them
/** @type {Record<string, Look>} */
const LOOKS = Object.fromEntries([
  ...["i", "em", "cite", "dfn", "var"].map((name) => [name, { italic: true, bold: null, isPre: null }]),
  ...["b", "strong"].map((name) => [name, { italic: null, bold: true, isPre: null }]),
  ["pre", { italic: null, bold: null, isPre: true }],
]);
export const SPACED = "spaced"; // the class of our own paragraphs behind a blank line

// The page's Content-Security-Policy refuses styles and handlers of events in what is parsed here, too, and
// the console would tell each: so they get other names before.

const STYLE_TAGS = /<(\/?)style\b/gi;
const ATTRIBUTES = /\b(style|on[a-z]+)(?=\s*=)(?<=<[a-z][^<>]*\s\1)/gi;
const STYLE = "data-style";

/** @type {(source: string) => Document} */
export function parsedHtml(source) {
  const named = source.replaceAll(STYLE_TAGS, "<$1x-style").replaceAll(ATTRIBUTES, "data-$1");
  return new DOMParser().parseFromString(named, "text/html");
}

/** How elements look by style sheets, those of the document itself behind `others`: many books and pages have
    italics only there. `isShown`: tells an element that is shown though a sheet hides it.
    @type {(parsed: Document, others?: string[], isShown?: (element: Element) => boolean) =>
      Map<Element, Look>} */
export function looksIn(parsed, others = [], isShown = () => false) {
  const own = [...parsed.querySelectorAll("x-style")].map(cssIn);
  /** @type {Map<Element, Look>} */
  const looks = new Map();
  for (const { style, selectorText } of [...others, ...own].flatMap(rulesOf)) {
    const look = lookOf(style);
    const given = Object.entries(look).filter(([, value]) => value !== null);
    if (!given.length) continue;
    for (const element of parsed.querySelectorAll(selectorText))
      looks.set(element, {
        ...(looks.get(element) ?? look),
        ...Object.fromEntries(given),
        ...(isShown(element) && { isHidden: false }),
      });
  }
  return looks;
}

/** A sheet's rules; Word puts them into a comment.
    @type {(sheet: Element) => string} */
const cssIn = (sheet) => [...sheet.childNodes].map(({ nodeValue }) => nodeValue ?? "").join("");

/** The rules of a style sheet.
    @type {(css: string) => CSSStyleRule[]} */
function rulesOf(css) {
  const sheet = new CSSStyleSheet();
  sheet.replaceSync(css.replaceAll(/@import[^;]*;?/gi, "")); // of which a sheet of this kind complains
  return [...sheet.cssRules].filter((rule) => rule instanceof CSSStyleRule);
}

/** What an element's attribute says. `isSpaced`: whether space is before it; null: as elements of its name.
    @typedef {{look: Look | null, isSpaced: boolean | null}} Own */
/** @type {Map<string, Own>} */
const known = new Map();
const MOST = 1000; // that are remembered

/** @type {(element: Element) => Own} */
function ownOf(element) {
  const css = element.getAttribute(STYLE) ?? "";
  const found = known.get(css);
  if (found) return found;
  const style = css ? rulesOf(`x { ${css} }`)[0]?.style : null;
  const own = {
    look: style ? lookOf(style) : null,
    isSpaced: style?.marginTop ? !/^0(?![.\d])/.test(style.marginTop) : null,
  };
  if (known.size > MOST) known.clear();
  known.set(css, own);
  return own;
}

/** What holds where a reader is. `quoted`: how many quotations are around it.
    @typedef {{italic: boolean, bold: boolean, isPre: boolean, font: string, kind: Paragraph["kind"],
      level: number, quoted: number}} Place */
/** `isLine`: the line counts, though it has no words; `item`: the mark of a list's item, which the next line
    takes.
    @typedef {{all: Paragraph[], runs: Run[], isLine: boolean, spaced: boolean,
      item: {kind: "bullet" | "number", level: number} | null} & Known} Reader */
/** `isApart`: paragraphs are apart, as pages show them; `looks`: how elements look by style sheets; `calls`:
    the numbers of notes where they are called; `marks`: the quotation marks of what is read.
    @typedef {{isApart: boolean, looks: Map<Element, Look>, calls: Map<Element, number>,
      marks: Marks}} Known */

const PLACE = /** @type {Place} */ ({
  ...{ italic: false, bold: false, isPre: false, font: "", kind: "text", level: 0, quoted: 0 },
});

/** The quotation marks of a document: as its text has them, or its language.
    @type {(within: Element) => Marks} */
export function marksIn(within) {
  const named = within.closest("[lang], [xml\\:lang]");
  const lang = named?.getAttribute("lang") ?? named?.getAttribute("xml:lang") ?? "";
  return marksOf(within.textContent ?? "", lang);
}

/** The paragraphs within an element, be it hidden itself.
    @type {(within: Element, known?: Partial<Known>, place?: Place) => Paragraph[]} */
export function paragraphsWithin(within, known = {}, place = PLACE) {
  /** @type {Reader} */
  const reader = {
    ...{
      isApart: false,
      looks: new Map(),
      calls: new Map(),
      marks: known.marks ?? marksIn(within),
      ...known,
    },
    ...{ all: [], runs: [], isLine: false, spaced: false, item: null },
  };
  readElement(reader, within, place);
  flush(reader, place);
  return reader.all.flatMap(byLines);
}

/** @type {(reader: Reader, element: Element, outer: Place) => void} */
function readElement(reader, element, outer) {
  const name = element.localName.toLowerCase();
  if (LEFT_OUT.has(name)) return;
  const isBlock = BLOCKS.has(name);
  const place = placeIn(element, name, outer, reader.looks.get(element));
  if (isBlock) {
    flush(reader, outer);
    reader.spaced ||= !!reader.all.at(-1)?.runs.length && isSpaced(reader, element, name);
  }
  if (name === "tr") readRow(reader, element, place);
  else if (name === "br") addLine(reader);
  else if (name === "hr")
    reader.all.push({ kind: "break", level: 0, runs: [run("***")], spaced: taken(reader) });
  else if (isListMark(element)) reader.item = itemOf(element.textContent ?? "");
  else if (isNoteCall(element)) add(reader, callIn(reader, element), place);
  else if (name === "q") readQuoted(reader, element, place);
  else readChildren(reader, element, name, place);
  if (isBlock) flush(reader, place);
  if (name === "li") reader.item = null;
}

/** @type {(reader: Reader, element: Element, place: Place) => void} */
function readQuoted(reader, element, place) {
  const [open, close] = reader.marks[place.quoted % 2];
  add(reader, open, place);
  readChildren(reader, element, "q", { ...place, quoted: place.quoted + 1 });
  add(reader, close, place);
}

/** @type {(reader: Reader, row: Element, place: Place) => void} */
function readRow(reader, row, place) {
  const cells = [...row.children].filter((one) => /^t[dh]$/i.test(one.localName) && !isHidden(reader, one));
  const read = rowOf(cells.map((cell) => paragraphsWithin(cell, reader, place)));
  if (!read.some(({ runs }) => runs.some(({ text }) => text.trim()))) return;
  read[0].spaced = taken(reader);
  reader.all.push(...read);
}

/** @type {(reader: Reader, element: Element, name: string, place: Place) => void} */
function readChildren(reader, element, name, place) {
  let number = numberIn(element, "start") ?? 1;
  for (const child of element.childNodes) {
    if (child instanceof Element) {
      if (isHidden(reader, child)) continue;
      if (child.localName.toLowerCase() === "li") {
        flush(reader, place);
        number = numberIn(child, "value") ?? number;
        reader.item = name === "ol" ? { kind: "number", level: number++ } : { kind: "bullet", level: 0 };
      }
      readElement(reader, child, place);
    } else if (child instanceof Text) add(reader, inSigns(child.nodeValue ?? "", place.font, true), place);
  }
}

/** @type {(element: Element, name: string) => number | null} */
function numberIn(element, name) {
  const number = Number.parseInt(element.getAttribute(name) ?? "", 10);
  return Number.isNaN(number) ? null : number;
}

/** Word's comments are left out, and its rules before them and before notes.
    @type {(reader: Reader, element: Element) => boolean} */
const isHidden = ({ looks }, element) =>
  element.hasAttribute("hidden") ||
  (ownOf(element).look?.isHidden ?? looks.get(element)?.isHidden ?? false) ||
  /^(MsoCommentReference|mso(comanchor|comoff))$/i.test(element.className) ||
  /mso-element:\s*comment/i.test(element.getAttribute(STYLE) ?? "") ||
  (element.localName === "hr" && /mso-element:/i.test(element.parentElement?.getAttribute(STYLE) ?? ""));

/** Whether an element is the mark that Word puts before an item of a list.
    @type {(element: Element) => boolean} */
const isListMark = (element) => /mso-list:\s*ignore/i.test(element.getAttribute(STYLE) ?? "");

/** @type {(mark: string) => Reader["item"]} */
function itemOf(mark) {
  const number = /^\s*(\d{1,4})[.)]/.exec(mark)?.[1];
  return number ? { kind: "number", level: Number(number) } : { kind: "bullet", level: 0 };
}

/** @type {(element: Element) => boolean} */
export const isNoteCall = (element) =>
  element.getAttribute("role") === "doc-noteref" ||
  /\bnoteref\b/.test(element.getAttribute("epub:type") ?? "");

/** @type {(reader: Reader, element: Element) => string} */
function callIn({ calls }, element) {
  const number = calls.get(element);
  return number ? callOf(number) : `[${element.textContent?.replace(/[[\]\s]/g, "")}]`;
}

/** Whether space is before an element: as browsers show pages, but not where Word and Google say that there
    is none; else as our own files say.
    @type {(reader: Reader, element: Element, name: string) => boolean} */
function isSpaced({ isApart }, element, name) {
  if (!isApart) return element.classList.contains(SPACED);
  const { isSpaced: own } = ownOf(element);
  if (own !== null) return own;
  return APART.has(name) && !element.parentElement?.closest("li") && !/^Mso/.test(element.className);
}

/** @type {(reader: Reader) => boolean} */
function taken(reader) {
  const { spaced } = reader;
  reader.spaced = false;
  return spaced;
}

/** @type {(element: Element, name: string, outer: Place, sheet: Look | undefined) => Place} */
function placeIn(element, name, outer, sheet) {
  const place = { ...outer };
  const word = /^Mso(Title|(?:Intense)?Quote|Heading[789])$/.exec(element.className)?.[1];
  const level = /^h([1-6])$/.exec(name)?.[1] ?? { T: "1", H: "6" }[word?.[0] ?? ""];
  if (level) Object.assign(place, { kind: "heading", level: Number(level) });
  if (name === "blockquote" || word?.endsWith("Quote")) place.kind = "quote";
  const face = element.getAttribute("face"); // of an old `font`
  if (face) place.font = signFontOf(face);
  for (const look of [LOOKS[name], sheet, ownOf(element).look]) {
    place.italic = look?.italic ?? place.italic;
    place.bold = look?.bold ?? place.bold;
    place.isPre = look?.isPre ?? place.isPre;
    place.font = look?.font ?? place.font;
  }
  return place;
}

/** @type {Record<string, number>} */
const WEIGHTS = { bold: 700, bolder: 700, normal: 400, lighter: 400 };

/** Whether a value says how it looks: "inherit" leaves it to the element's name and what is around it.
    @type {(value: string) => boolean} */
const says = (value) => value !== "" && !/^(inherit|unset|revert|var)/.test(value);

/** @type {(style: CSSStyleDeclaration) => Look} */
const lookOf = ({ display, fontFamily, fontStyle, fontWeight, whiteSpace }) => ({
  isHidden: says(display) ? display === "none" : null,
  italic: says(fontStyle) ? /^(italic|oblique)/.test(fontStyle) : null,
  bold: says(fontWeight) ? (WEIGHTS[fontWeight] ?? Number(fontWeight)) >= 600 : null,
  isPre: says(whiteSpace) ? /^(pre|break-spaces)/.test(whiteSpace) : null,
  font: says(fontFamily) ? signFontOf(fontFamily) : null,
});

/** @type {(reader: Reader, text: string, place: Place) => void} */
function add(reader, text, { italic, bold, isPre }) {
  const last = reader.runs.at(-1)?.text ?? "\n";
  const words = isPre
    ? text
    : text.replaceAll(/[ \t\n\r\f]+/g, " ").replace(/^ /, /[ \n\t]$/.test(last) ? "" : " ");
  if (words) reader.runs.push(run(words, italic, bold));
  // Word's empty paragraphs have such a blank
  reader.isLine ||= words !== "" && (isPre || words.includes("\u00a0"));
}

/** @type {(reader: Reader) => void} */
function addLine(reader) {
  reader.runs.push(run("\n"));
  reader.isLine = true;
}

/** Ends a line.
    @type {(reader: Reader, place: Place) => void} */
function flush(reader, { kind, level, isPre }) {
  const all = trimmed(reader.runs, isPre);
  const runs = kind === "heading" ? withoutBold(all) : all;
  const hasWords = runs.some(({ text }) => isPre || text.trim());
  if (hasWords)
    reader.all.push({
      kind,
      level,
      ...(kind === "heading" ? null : reader.item),
      runs,
      spaced: taken(reader),
    });
  else if (reader.isLine) {
    reader.spaced = false; // an empty line is the space already
    reader.all.push({ kind: "text", level: 0, runs: isPre ? runs : [] });
  }
  if (hasWords) reader.item = null;
  Object.assign(reader, { runs: [], isLine: false });
}

/** Runs without the line break at the end, which shows nothing, and without blanks there.
    @type {(runs: Run[], isPre: boolean) => Run[]} */
function trimmed(runs, isPre) {
  const all = runs.map((one) => ({ ...one }));
  const blanks = () => {
    for (let last = all.at(-1); last && !isPre; last = all.at(-1)) {
      last.text = last.text.replace(/ +$/, "");
      if (last.text) break;
      all.pop();
    }
  };
  blanks();
  const last = all.at(-1);
  if (last) last.text = last.text.replace(/\n$/, "");
  if (last?.text === "") all.pop();
  blanks();
  return all;
}

// ---- text from and to other programs -----------------------------------------------------------------

const CLOSE = /<meta\s[^<>]*\bLibreOffice\b/i; // whose paragraphs follow each other without space, as Word's

/** The paragraphs of HTML, as of the clipboard.
    @type {(html: string, marks?: Marks) => Paragraph[]} */
export function fromClipboard(html, marks) {
  const parsed = parsedHtml(html);
  const known = { isApart: !CLOSE.test(html), looks: looksIn(parsed), ...(marks && { marks }) };
  return paragraphsWithin(parsed.body, known);
}

/** @type {(html: string) => string} */
export const fromHtml = (html) => textOfParagraphs(fromClipboard(html)).replaceAll("\r", "");

/** The text as HTML, for the clipboard.
    @type {(text: string) => string} */
export const toHtml = (text) =>
  htmlOf(text, (one) => {
    if (!one) return ' style="margin:0 2em"';
    const centred = one.kind === "break" ? ";text-align:center" : "";
    return ` style="white-space:pre-wrap;margin:${one.spaced ? "1em 0 0" : "0"}${centred}"`;
  });

/** What stands where a note is called.
    @typedef {(number: string) => string} Call */

/** The text as HTML. `look`: the attributes of a paragraph, or of what is around some.
    @type {(text: string, look: (paragraph?: Paragraph) => string, call?: Call) => string} */
export function htmlOf(text, look, call) {
  const all = [...paragraphsOf(text)];
  return all
    .map((one, i) => {
      const list = LISTS[one.kind];
      const begins = list && all[i - 1]?.kind !== one.kind ? `<${list}${look()}>` : "";
      const ends = list && all[i + 1]?.kind !== one.kind ? `</${list}>` : "";
      return begins + paragraphHtml(one, look(one), look(), call) + ends;
    })
    .join("\n");
}

/** @type {Partial<Record<Paragraph["kind"], string>>} */
const LISTS = { bullet: "ul", number: "ol" };

/** @type {(paragraph: Paragraph, look: string, around: string, call?: Call) => string} */
function paragraphHtml({ kind, level, runs }, look, around, call) {
  const words = runsHtml(runs, call) || "<br/>";
  if (kind === "heading") return `<h${level}${look}>${words}</h${level}>`;
  if (kind === "quote") return `<blockquote${around}><p${look}>${words}</p></blockquote>`;
  if (kind === "bullet") return `<li${look}>${words}</li>`;
  if (kind === "number") return `<li value="${level}"${look}>${words}</li>`;
  return `<p${look}>${words}</p>`;
}

/** @type {(runs: Run[], call?: Call) => string} */
export const runsHtml = (runs, call) =>
  runs
    .map(({ text, italic, bold }) => {
      const parts = call ? text.split(CALL) : [text]; // text, number, text, …
      const words = parts.map((part, i) => (i % 2 && call ? call(part) : escaped(part))).join("");
      const inner = italic ? `<em>${words}</em>` : words;
      return bold ? `<strong>${inner}</strong>` : inner;
    })
    .join("");
