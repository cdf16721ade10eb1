// Rich text (.rtf) becomes text, with emphasis, headings, items and notes. It is read without a page.

import { run } from "./emphasis.js";
import { callOf, textIn, withNotes, withoutBold } from "./paragraphs.js";
import { inSigns, signFontOf } from "./symbols.js";
import { pauses } from "./xml.js";

/** @import { Run } from "./emphasis.js" */
/** @import { Paragraph } from "./paragraphs.js" */

/** What holds in a group. `skip`: characters that stand for a \u; `to`: where its text goes, `around`:
    where that around it goes.
    @typedef {{italic: boolean, bold: boolean, hidden: boolean, skip: number, font: number, to: To,
      around: To}} State */
/** @typedef {"text" | "none" | "fonts" | "font" | "styles" | "style" | "label" | "note" | "info" |
      "title"} To */

/** @typedef {object} Reader
    @property {State} state
    @property {State[]} outer
    @property {string} charset
    @property {Map<number, string>} fonts charsets
    @property {Map<number, string>} signs fonts of signs
    @property {number} font the usual one
    @property {Map<number, string>} styles names
    @property {number[]} bytes of characters that are written as bytes, which may belong together
    @property {string} collected a name, a label
    @property {number} number of the style or font that is being described
    @property {number} left characters to skip
    @property {Paragraph[]} all
    @property {Run[]} runs
    @property {string} label of an item
    @property {string} title
    @property {number} heading
    @property {Run[][]} notes */

const NONE = new Set(
  (
    "colortbl pict object objdata header headerl headerr headerf footer footerl footerr footerf " +
    "ftnsep ftnsepc fldinst listtable listoverridetable revtbl rsidtbl generator themedata " +
    "colorschememapping datastore latentstyles xmlnstbl bkmkstart bkmkend nonshppict sp filetbl mmathPr " +
    "tc xe atnid atnauthor annotation atrfstart atrfend atnref atndate shprslt " +
    "userprops pntxtb pntxta pn pgptbl defchp defpap"
  ).split(" "),
);
const STARRED = new Set(["shpinst", "shptxt", "ud", "fldrslt", "footnote"]); // of those with \* that are read
/** @type {Record<string, To>} */
const PLACES = {
  fonttbl: "fonts",
  stylesheet: "styles",
  listtext: "label",
  pntext: "label",
  footnote: "note",
  info: "info",
};
const COLLECTED = new Set(["style", "label", "font", "title"]);
/** @type {Record<string, string>} */
const SIGNS = {
  tab: "\t",
  cell: "\t",
  nestcell: "\t",
  line: "\n",
  lquote: "‘",
  rquote: "’",
  ldblquote: "“",
  rdblquote: "”",
  bullet: "•",
  endash: "–",
  emdash: "—",
  emspace: "\u2003",
  enspace: "\u2002",
  qmspace: "\u2005",
  "~": "\u00a0",
  _: "\u2011",
  "-": "\u00ad",
  "{": "{",
  "}": "}",
  "\\": "\\",
  zwj: "\u200d",
  zwnj: "\u200c",
  ltrmark: "\u200e",
  rtlmark: "\u200f",
};
const ENDS = new Set(["par", "sect", "page", "row", "nestrow", "\n", "\r"]);

/** @type {Record<number, string>} */
const CODEPAGES = {
  932: "shift_jis",
  936: "gbk",
  949: "euc-kr",
  950: "big5",
  10000: "macintosh",
  65001: "utf-8",
  874: "windows-874",
};
/** @type {Record<number, number>} */
const CHARSETS = {
  0: 1252,
  77: 10000,
  128: 932,
  129: 949,
  134: 936,
  136: 950,
  161: 1253,
  162: 1254,
  163: 1258,
  177: 1255,
  178: 1256,
  186: 1257,
  204: 1251,
  222: 874,
  238: 1250,
};
/** @type {(page: number) => string} */
const charsetOf = (page) =>
  CODEPAGES[page] ?? (page >= 1250 && page <= 1258 ? `windows-${page}` : "windows-1252");
/** Some programs put no braces around a font: then its words stand in the table itself.
    @type {(state: State) => boolean} */
const isFont = ({ to }) => to === "font" || to === "fonts";

/** The title and the text of an .rtf.
    @type {(buffer: ArrayBuffer) => Promise<{title: string, text: string}>} */
export async function fromRtf(buffer) {
  const source = new TextDecoder("latin1").decode(buffer);
  const token = /\\([a-zA-Z]+)(-?\d+)? ?|\\'([0-9a-fA-F]{2})|\\(.)|([{}])|([\r\n]+)|([^\\{}\r\n]+)/gs;
  /** @type {State} */
  const state = { italic: false, bold: false, hidden: false, skip: 1, font: -1, to: "text", around: "none" };
  /** @type {Reader} */
  const reader = {
    state,
    outer: [],
    charset: "windows-1252",
    fonts: new Map(),
    signs: new Map(),
    font: -1,
    styles: new Map(),
    bytes: [],
    collected: "",
    number: -1,
    left: 0,
    all: [],
    runs: [],
    label: "",
    title: "",
    heading: 0,
    notes: [],
  };
  const pause = pauses();
  let isStarred = false;
  for (let found = token.exec(source); found; found = token.exec(source)) {
    const [, word, value, hex, sign, brace, , text] = found;
    if (hex === undefined) flushBytes(reader);
    if (brace) group(reader, brace);
    else if (sign === "*") isStarred = true;
    else if (word === "bin") token.lastIndex += Number(value ?? 0);
    else if (word !== undefined) control(reader, word, value === undefined ? null : Number(value), isStarred);
    else if (hex !== undefined) byte(reader, Number.parseInt(hex, 16));
    else if (sign !== undefined) symbol(reader, sign);
    else if (text !== undefined) written(reader, text);
    if (sign !== "*") isStarred = false;
    const wait = pause();
    if (wait) await wait;
  }
  flushBytes(reader);
  end(reader, false);
  const text = withNotes(await textIn(reader.all), reader.notes.map(withoutEnd));
  return { title: reader.title, text };
}

/** @type {(runs: Run[]) => Run[]} */
function withoutEnd(runs) {
  const all = runs.slice(0, runs.findLastIndex(({ text }) => text.trim()) + 1);
  return all.map((one, i) => (i < all.length - 1 ? one : { ...one, text: one.text.trimEnd() }));
}

/** @type {(reader: Reader, brace: string) => void} */
function group(reader, brace) {
  if (brace === "{") {
    const { to } = reader.state;
    reader.outer.push(reader.state);
    reader.state = { ...reader.state, to: to === "fonts" ? "font" : to === "styles" ? "style" : to };
    if (to === "fonts" || to === "styles")
      Object.assign(reader, { collected: "", number: to === "styles" ? 0 : -1 });
    return;
  }
  const before = reader.outer.pop();
  if (!before) return;
  const { to } = reader.state;
  if (to === "style" && before.to === "styles") reader.styles.set(reader.number, nameOf(reader));
  if (to === "font" && before.to === "fonts") reader.signs.set(reader.number, signFontOf(nameOf(reader)));
  if (to === "label" && before.to !== "label") {
    reader.label = reader.collected.trim();
    reader.collected = "";
  }
  if (to === "title" && before.to === "info") reader.title = reader.collected;
  reader.state = before;
}

/** @type {(reader: Reader) => string} */
const nameOf = ({ collected }) => collected.replace(/;$/, "").trim();

/** @type {(reader: Reader, word: string, value: number | null, isStarred: boolean) => void} */
function control(reader, word, value, isStarred) {
  const { state } = reader;
  if (word === "u") return unicode(reader, value ?? 0);
  if (word === "ansicpg") reader.charset = charsetOf(value ?? 1252);
  else if (word === "mac") reader.charset = "macintosh";
  else if (word === "uc") state.skip = value ?? 1;
  else if (word === "deff") reader.font = state.font = value ?? -1;
  else if (word === "f" && isFont(state)) reader.number = value ?? 0;
  else if (word === "fcharset") learnFont(reader, CHARSETS[value ?? 0]);
  else if (word === "cpg" && isFont(state)) learnFont(reader, value);
  else if (word === "f") state.font = value ?? reader.font;
  else if (word === "s" && state.to === "style") reader.number = value ?? 0;
  else if (word === "s") reader.heading = headingOf(reader.styles.get(value ?? 0) ?? "");
  else if (word === "outlinelevel") reader.heading = (value ?? 9) < 9 ? Math.min(6, (value ?? 0) + 1) : 0;
  else if (word === "b" || word === "i") state[word === "b" ? "bold" : "italic"] = value !== 0;
  else if (word === "v" || word === "deleted") state.hidden = value !== 0;
  else if (word === "plain")
    Object.assign(state, { italic: false, bold: false, hidden: false, font: reader.font });
  else if (word === "pard") reader.heading = 0;
  else if (word === "upr")
    Object.assign(state, { around: state.to, to: "none" }); // the same twice
  else if (word === "ud") state.to = state.around;
  else if (ENDS.has(word)) end(reader);
  else if (word === "footnote" && state.to === "text") note(reader);
  else if (word === "title" && state.to === "info") place(reader, "title");
  else if (PLACES[word]) place(reader, PLACES[word]);
  else if (NONE.has(word) || (isStarred && !STARRED.has(word))) state.to = "none";
  else if (word in SIGNS) written(reader, SIGNS[word], true);
}

/** A font without a charset of its own has that of the file.
    @type {(reader: Reader, page: number | null | undefined) => void} */
function learnFont({ fonts, number }, page) {
  if (page) fonts.set(number, charsetOf(page));
}

/** @type {(reader: Reader, to: To) => void} */
function place(reader, to) {
  if (reader.state.to === "none") return;
  reader.state.to = to;
  reader.collected = "";
}

/** @type {(reader: Reader) => void} */
function note(reader) {
  written(reader, callOf(reader.notes.push([])), true);
  reader.state.to = "note";
}

/** @type {(name: string) => number} */
const headingOf = (name) => {
  const found = /^(?:heading ([1-9])|title)$/i.exec(name);
  return found ? Math.min(6, Number(found[1] ?? 1)) : 0;
};

/** @type {(reader: Reader, sign: string) => void} */
function symbol(reader, sign) {
  if (ENDS.has(sign)) end(reader);
  else if (sign in SIGNS) written(reader, SIGNS[sign], true);
}

/** A character by its number; what follows for older programs is skipped.
    @type {(reader: Reader, value: number) => void} */
function unicode(reader, value) {
  const one = String.fromCharCode(value < 0 ? value + 0x10000 : value);
  written(reader, inSigns(one, reader.signs.get(reader.state.font)), true);
  reader.left = reader.state.skip;
}

/** @type {(reader: Reader, value: number) => void} */
function byte(reader, value) {
  if (reader.left > 0) reader.left--;
  else reader.bytes.push(value);
}

/** @type {(reader: Reader) => void} */
function flushBytes(reader) {
  const { bytes, charset, fonts, signs, state } = reader;
  if (!bytes.length) return;
  const font = signs.get(state.font);
  const text = font
    ? inSigns(String.fromCharCode(...bytes), font, true)
    : new TextDecoder(fonts.get(state.font) ?? charset).decode(new Uint8Array(bytes));
  reader.bytes = [];
  written(reader, text, true);
}

/** @type {(reader: Reader, text: string, isSign?: boolean) => void} */
function written(reader, text, isSign = false) {
  let words = text;
  if (!isSign) {
    const skipped = Math.min(reader.left, words.length);
    words = inSigns(words.slice(skipped), reader.signs.get(reader.state.font), true);
    reader.left -= skipped;
  }
  const { to, hidden, italic, bold } = reader.state;
  if (!words || hidden) return;
  if (to === "text") reader.runs.push(run(words, italic, bold));
  else if (to === "note") reader.notes.at(-1)?.push(run(words.replaceAll("\n", " "), italic, bold));
  else if (COLLECTED.has(to)) reader.collected += words;
}

/** Ends a paragraph.
    @type {(reader: Reader, isKept?: boolean) => void} */
function end(reader, isKept = true) {
  const { state, heading } = reader;
  if (state.to === "note") return void reader.notes.at(-1)?.push(run(" "));
  if (state.to !== "text" || (!isKept && !reader.runs.length)) return;
  const { runs, label } = labelled(reader);
  Object.assign(reader, { runs: [], label: "" });
  const number = /^(0|[1-9]\d{0,3})\.$/.exec(label)?.[1];
  if (heading && runs.length) reader.all.push({ kind: "heading", level: heading, runs: withoutBold(runs) });
  else if (number) reader.all.push({ kind: "number", level: Number(number), runs });
  else if (label) reader.all.push({ kind: "bullet", level: 0, runs });
  else reader.all.push({ kind: "text", level: 0, runs });
}

/** A paragraph's runs and the label of an item, which some programs write as text before a tab. A row's last
    cell ends with a tab, too.
    @type {(reader: Reader) => {runs: Run[], label: string}} */
function labelled({ runs, label }) {
  if (!runs.some(({ text }) => text.trim())) return { runs: [], label };
  const own = runs.map((one) => ({ ...one }));
  if (own.at(-1)?.text === "\t") own.pop();
  const found = /^([•▪◦·]|\d{1,4}\.)$/.exec(own[0].text.trim());
  if (label || !found || own[1]?.text !== "\t") return { runs: own, label };
  return { runs: own.slice(2), label: found[1] };
}
