// The marks in a story's text, as data: which lines are headings, quotes, items or scene breaks, and which
// words are emphasised. It knows neither files nor pages.
//
// A line is a paragraph. The marks are a small part of CommonMark, in which a text of plain prose means
// itself:
//
// - *italic*, **bold**, ***both***. A star opens before a character that is not blank and closes behind one.
//   A star that is not closed in its line is a star; four and more are stars; _ is never a mark.
// - "# " to "###### " begin a heading, "> " a quote, "- " and "7. " an item; *** and * * * are scene breaks.
// - \* is a star that is no mark; \#, \>, \- and 7\. begin a line that is no heading, no quote and no item. A
//   backslash before such an escape is doubled. Every other backslash is a backslash.
//
// Escapes are rare: a text that comes from elsewhere gets them only in lines that would be read otherwise.
// The writer sees them; a model never does, since prompts are made of `unescaped` texts.

/** Characters with the same emphasis. `literal`: each stands behind a backslash in the text.
    @typedef {{text: string, italic: boolean, bold: boolean, literal: boolean}} Run */

/** A line of a text. `level`: of a heading, the number of an item.
    @typedef {{kind: "text" | "heading" | "quote" | "bullet" | "number" | "break", level: number,
      runs: Run[]}} Block */

export const LEVELS = 6; // of headings

/** @type {[kind: Block["kind"], mark: RegExp, levelOf: (mark: string) => number][]} */
const MARKS = [
  ["heading", /^(#{1,6}) (?=.)/s, (mark) => mark.length],
  ["quote", /^(>) (?=.)/s, () => 0],
  ["bullet", /^(-) (?=.)/s, () => 0],
  ["number", /^(0|[1-9]\d{0,3})\. (?=.)/s, Number],
];
const BREAK = /^(\*\*\*|\* \* \*)$/;
const BEGINS = [/^()(\\*)(?=#{1,6} .|[>-] .)/s, /^(0|[1-9]\d{0,3})(\\*)(?=\. .)/s]; // where an escape may be
const BEGUN = "(?=#{1,6} [^\\n]|[>-] [^\\n])"; // what else would begin a line
const NUMBERED = "(?<=(?<![^\\n])(?:0|[1-9]\\d{0,3})\\\\+)(?=\\. [^\\n])";
const ESCAPED = `(?<![^\\n])\\\\+${BEGUN}|\\\\+${NUMBERED}|\\\\+(?=\\*)`;
const ESCAPES = new RegExp(ESCAPED, "g"); // of a whole text
const SIGNS = new RegExp(`${ESCAPED}|\\*+`, "g"); // of a line

/** @type {(text: string, italic?: boolean, bold?: boolean, literal?: boolean) => Run} */
export const run = (text, italic = false, bold = false, literal = false) => ({ text, italic, bold, literal });

/** @type {(line: string) => Block} */
export function blockOf(line) {
  if (BREAK.test(line)) return { kind: "break", level: 0, runs: [run(line)] };
  for (const [kind, mark, levelOf] of MARKS) {
    const found = mark.exec(line);
    if (found) return { kind, level: levelOf(found[1]), runs: runsOf(line.slice(found[0].length), false) };
  }
  return { kind: "text", level: 0, runs: runsOf(line) };
}

/** The line of a block: `blockOf` gives the same block again, unless a text looks like a break.
    @type {(block: Block) => string} */
export function lineOf({ kind, level, runs }) {
  const text = textOfRuns(runs, kind === "text");
  if (kind === "heading" && text) return `${"#".repeat(Math.min(level, LEVELS))} ${text}`;
  if (kind === "quote" && text) return `> ${text}`;
  if (kind === "bullet" && text) return `- ${text}`;
  if (kind === "number" && text) return `${level}. ${text}`;
  const [, head, slashes] = BEGINS.map((begin) => begin.exec(text)).find(Boolean) ?? [];
  const isEscaped = head ? runs[0].text === head && runs[1]?.literal : runs[0]?.literal;
  if (head === undefined || isEscaped) return text;
  return head + "\\".repeat(slashes.length || 1) + text.slice(head.length);
}

/** A mark of a line: `at` and `size` in the line, what it opens or closes.
    @typedef {{at: number, size: number, opens: boolean, closes: boolean, italic: boolean,
      bold: boolean}} Mark */

/** The runs of a line, or of what stands behind its mark.
    @type {(line: string, isWhole?: boolean) => Run[]} */
export function runsOf(line, isWhole = true) {
  if (!/[*\\]/.test(line)) return line ? [run(line)] : [];
  const { marks, literals } = signsOf(line, isWhole);
  return cut(line, marks, literals);
}

/** @typedef {{at: number, size: number, text: string}} Literal an escape, and what it stands for */

/** The stars and the escapes of a line.
    @type {(line: string, isWhole: boolean) => {marks: Mark[], literals: Literal[]}} */
function signsOf(line, isWhole) {
  /** @type {Literal[]} */
  const literals = [];
  /** @type {Mark[]} */
  const marks = [];
  for (const { 0: found, index: at } of line.matchAll(SIGNS)) {
    const last = literals.at(-1);
    const taken = last && last.at + last.size > at ? 1 : 0; // a star that is escaped
    if (found[0] === "*") marks.push(markOf(line, at + taken, found.length - taken));
    else if (isWhole || line[at + found.length] === "*") {
      const size = found.length + (found.length % 2);
      const text = line.slice(at, at + size);
      literals.push({ at, size, text: text.replaceAll(/\\(.)/gs, "$1") });
    }
  }
  pair(marks, "italic", [1, 3]);
  pair(marks, "bold", [2, 3]);
  return { marks, literals };
}

/** @type {[kind: "italic" | "bold", name: string, size: number][]} */
const EMPHASES = [
  ["italic", "em", 1],
  ["bold", "strong", 2],
];

/** What a line shows: [kind, from, to] with the kinds "em", "strong", "heading", and "sign" for what marks
    them.
    @type {(line: string) => [kind: string, from: number, to: number][]} */
export function shownIn(line) {
  if (BREAK.test(line)) return [["sign", 0, line.length]];
  const [head] = /^#{1,6} (?=.)/s.exec(line) ?? [""];
  const [begin] = MARKS.map(([, mark]) => mark.exec(line)?.[0] ?? "").filter(Boolean);
  const from = begin?.length ?? 0;
  /** @type {[kind: string, from: number, to: number][]} */
  const shown = head
    ? [
        ["heading", 0, line.length],
        ["sign", 0, head.length],
      ]
    : [];
  const { marks, literals } = signsOf(line.slice(from), !from);
  for (const { at, size } of literals) shown.push(["sign", from + at, from + at + size / 2]);
  /** @type {Record<string, number | undefined>} */
  const open = {}; // where an emphasis that is open begins
  for (const mark of marks) {
    const kinds = EMPHASES.filter(([kind]) => mark[kind]);
    const closing = kinds.filter(([, name]) => open[name] !== undefined).reverse(); // the inner one first
    const opening = kinds.filter(([, name]) => open[name] === undefined);
    const taken = kinds.reduce((sum, [, , size]) => sum + size, 0);
    let at = from + mark.at + (closing.length ? 0 : mark.size - taken); // other stars stand outside
    for (const [, name, size] of closing) {
      shown.push(["sign", at, at + size], [name, open[name] ?? at, at]);
      open[name] = undefined;
      at += size;
    }
    for (const [, name, size] of opening) {
      shown.push(["sign", at, at + size]);
      open[name] = at += size;
    }
  }
  return shown;
}

/** @type {(line: string, at: number, size: number) => Mark} */
const markOf = (line, at, size) => ({
  at,
  size,
  opens: /\S/.test(line[at + size] ?? ""),
  closes: /\S/.test(line[at - 1] ?? ""),
  italic: false,
  bold: false,
});

/** Finds which marks of these sizes open and close an emphasis: the nearest ones belong together.
    @type {(marks: Mark[], kind: "italic" | "bold", sizes: number[]) => void} */
function pair(marks, kind, sizes) {
  /** @type {Mark | null} */
  let opener = null;
  for (const mark of marks.filter(({ size }) => sizes.includes(size))) {
    if (opener && mark.closes) {
      opener[kind] = mark[kind] = true;
      opener = null;
    } else if (mark.opens) opener = mark;
  }
}

/** @type {(line: string, marks: Mark[], literals: Literal[]) => Run[]} */
function cut(line, marks, literals) {
  const signs = [...marks.filter(({ italic, bold }) => italic || bold), ...literals];
  /** @type {Run[]} */
  const runs = [];
  let [at, italic, bold] = [0, false, false];
  /** @type {(text: string, literal?: boolean) => void} */
  const add = (text, literal) => void (text && runs.push(run(text, italic, bold, literal)));
  for (const sign of signs.sort((a, b) => a.at - b.at)) {
    add(line.slice(at, sign.at));
    at = sign.at + sign.size;
    if ("text" in sign) add(sign.text, true);
    else {
      // of three stars, of which one or two are a mark, the others stand outside of it
      const others = "*".repeat(sign.size - (sign.italic ? 1 : 0) - (sign.bold ? 2 : 0));
      const closes = sign.italic ? italic : bold;
      if (!closes) add(others);
      if (sign.italic) italic = !italic;
      if (sign.bold) bold = !bold;
      if (closes) add(others);
    }
  }
  add(line.slice(at));
  return merged(runs);
}

/** Runs of the same kind that follow each other are one.
    @type {(runs: Run[]) => Run[]} */
export function merged(runs) {
  /** @type {Run[]} */
  const all = [];
  for (const one of runs) {
    const last = all.at(-1);
    if (last && isSame(last, one)) last.text += one.text;
    else if (one.text) all.push({ ...one });
  }
  return all;
}

/** @type {(a: Run, b: Run) => boolean} */
const isSame = (a, b) => a.italic === b.italic && a.bold === b.bold && a.literal === b.literal;

/** Runs whose emphasis neither begins nor ends with a blank, as marks want it: on blanks nobody sees it.
    @type {(runs: Run[]) => Run[]} */
function tidy(runs) {
  const all = merged(runs);
  if (!all.some(({ italic, bold }) => italic || bold)) return all;
  const parts = all.flatMap((one) => partsOf(one.text).map((text) => ({ ...one, text })));
  const isBlank = parts.map(({ text }) => !/\S/.test(text));
  for (const way of [parts.keys(), [...parts.keys()].reverse()]) {
    let beside = run("");
    for (const i of way) {
      const part = parts[i];
      if (isBlank[i])
        Object.assign(part, { italic: part.italic && beside.italic, bold: part.bold && beside.bold });
      beside = part;
    }
  }
  return merged(parts);
}

/** The blanks at the begin, the words, the blanks at the end.
    @type {(text: string) => string[]} */
function partsOf(text) {
  const begin = text.length - text.trimStart().length;
  const end = Math.max(begin, text.trimEnd().length);
  return [text.slice(0, begin), text.slice(begin, end), text.slice(end)].filter(Boolean);
}

/** The text of runs with marks, and with escapes where it would be read otherwise.
    @type {(runs: Run[], isWhole?: boolean) => string} */
export function textOfRuns(runs, isWhole = true) {
  const all = tidy(runs);
  const text = written(all, false);
  if (!/[*\\]/.test(text)) return text;
  const again = runsOf(text, isWhole);
  return again.length === all.length &&
    again.every((one, i) => isSame(one, all[i]) && one.text === all[i].text)
    ? text
    : written(all, true);
}

const STARS = /(?<=\s)\*+(?=\s)|(\\*)\*/g;
/** Stars with an escape; those between blanks need none.
    @type {(found: string, slashes?: string) => string} */
const starsOf = (found, slashes) => (slashes === undefined ? found : `${slashes}${slashes}\\*`);

/** @type {(runs: Run[], escapes: boolean) => string} */
function written(runs, escapes) {
  let [text, italic, bold] = ["", false, false];
  for (const [i, one] of [...runs, run("")].entries()) {
    const marks = (one.italic !== italic ? 1 : 0) + (one.bold !== bold ? 2 : 0);
    const before = runs[i - 1];
    if (escapes && before && !before.literal && (marks || one.literal)) text += /\\*$/.exec(text)?.[0] ?? "";
    text += "*".repeat(marks);
    if (one.literal) text += one.text.replaceAll(/./gs, "\\$&");
    else text += escapes ? one.text.replaceAll(STARS, starsOf) : one.text;
    ({ italic, bold } = one);
  }
  return text;
}

/** The text as a model reads it: without the backslashes of escapes.
    @type {(text: string) => string} */
export const unescaped = (text) =>
  text.includes("\\") ? text.replaceAll(ESCAPES, (found) => "\\".repeat(found.length >> 1)) : text;

/** The place in a text of a place in its unescaped one.
    @type {(text: string, place: number) => number} */
export function placeInText(text, place) {
  if (!text.includes("\\")) return place;
  for (const { 0: found, index } of text.matchAll(ESCAPES)) {
    if (index >= place) break;
    place += found.length - (found.length >> 1);
  }
  return place;
}
