// A text as paragraphs, as documents have them: Word, EPUB, OpenDocument, RTF, HTML. It knows none of these.

import { blockOf, lineOf, run, textOfRuns } from "./emphasis.js";
import { pauses } from "./xml.js";

/** @import { Block, Run } from "./emphasis.js" */

/** A paragraph. `spaced`: one blank line stands before it.
    @typedef {Block & {spaced?: boolean}} Paragraph */

/** The paragraphs of a text: a line is one. A single blank line between two others is space before the
    second, each of more is an empty paragraph.
    @type {(text: string) => Generator<Paragraph>} */
export function* paragraphsOf(text) {
  const lines = text.split("\n");
  let spaced = false;
  for (const [i, line] of lines.entries()) {
    const isSpace = line === "" && lines[i - 1] && lines[i + 1];
    if (!isSpace) yield { ...blockOf(line), ...(spaced && { spaced }) };
    spaced = !!isSpace;
  }
}

/** @type {(paragraphs: Paragraph[]) => string} */
export const textOfParagraphs = (paragraphs) => paragraphs.map(partOf).join("");

/** @type {(one: Paragraph, i: number) => string} */
const partOf = (one, i) => `${i ? "\n" : ""}${i && one.spaced ? "\n" : ""}${lineOf(one)}`;

/** The text of another program's paragraphs; the page answers meanwhile.
    @type {(paragraphs: Paragraph[]) => Promise<string>} */
export async function textIn(paragraphs) {
  const parts = [];
  const pause = pauses();
  for (const one of paragraphs) {
    for (const line of byLines(one)) parts.push(partOf(line, parts.length));
    const wait = pause();
    if (wait) await wait;
  }
  return parts.join("").replaceAll("\r", "");
}

const IN_ONE_LINE = new Set(["heading", "bullet", "number"]);

/** What a paragraph of another program becomes: one for each of its lines, where it has line breaks.
    @type {(paragraph: Paragraph) => Paragraph[]} */
export function byLines({ kind, level, runs, spaced }) {
  if (!runs.some(({ text }) => text.includes("\n"))) return [{ kind, level, runs, spaced }];
  if (IN_ONE_LINE.has(kind))
    return [
      { kind, level, runs: runs.map((one) => ({ ...one, text: one.text.replaceAll("\n", " ") })), spaced },
    ];
  /** @type {Run[][]} */
  const lines = [[]];
  for (const one of runs)
    for (const [i, text] of one.text.split("\n").entries()) {
      if (i) lines.push([]);
      if (text) lines[lines.length - 1].push({ ...one, text });
    }
  return lines.map((runs, i) => ({ kind, level, runs, spaced: spaced && !i }));
}

/** The text of paragraphs that are put into a line, between what stands there before and behind: a heading, a
    quote, an item and a scene break take lines of their own. One paragraph amid words is only its words.
    `blanks`: what stands before and behind words.
    @type {(paragraphs: Paragraph[], before: string, behind: string, blanks?: string[]) => string} */
export function textWithin(paragraphs, before, behind, [blank, blankBehind] = ["", ""]) {
  const [first, ...others] = paragraphs;
  const isWords = !others.length && before.trim() && behind.trim() && first.kind !== "break";
  const isMarked = (/** @type {Paragraph} */ { kind }) => kind !== "text" && !isWords;
  const begins = before || blank; // no mark of a line
  const line = begins && !isMarked(first) ? textOfRuns(first.runs, false) : lineOf(first);
  const all = [line, ...others.map((one) => partOf(one, 1))].join("");
  return (
    (isMarked(first) ? (before && "\n") + all : blank + all.replace(/^ +/, "")).replace(/ +$/, "") +
    (isMarked(others.at(-1) ?? first) ? behind.trim() && "\n" : blankBehind)
  );
}

/** A row of a table, of its cells' lines: a line with tabs, unless one of its cells has several.
    @type {(cells: Paragraph[][]) => Paragraph[]} */
export function rowOf(cells) {
  if (cells.length === 1 || cells.some((cell) => cell.length > 1)) return cells.flat();
  const runs = cells.flatMap((cell, i) => [...(i ? [run("\t")] : []), ...(cell[0]?.runs ?? [])]);
  return [{ kind: "text", level: 0, runs }];
}

/** A heading's runs without the bold that all of it has.
    @type {(runs: Run[]) => Run[]} */
export function withoutBold(runs) {
  const isBold = runs.every(({ bold, text }) => bold || !text.trim());
  return isBold ? runs.map((one) => ({ ...one, bold: false })) : runs;
}

// Footnotes are text: [^1] where the note is called, and behind a blank line at the end a line for each.

const NOTES = /\n\n((?:\[\^\d+\]: \S[^\n]*\n)*\[\^\d+\]: \S[^\n]*)$/;
export const CALL = /\[\^(\d+)\]/g;

/** A text without the notes at its end, and these: none, if one of them is not called once, in their order.
    @type {(text: string) => {body: string, notes: string[]}} */
export function notesOf(text) {
  const found = NOTES.exec(text);
  if (!found) return { body: text, notes: [] };
  const lines = found[1].split("\n");
  const calls = (/** @type {string} */ part) => [...part.matchAll(CALL)].map(([, number]) => number).join();
  const numbers = lines.map((_, i) => String(i + 1)).join();
  const isSound = calls(text.slice(0, found.index)) === numbers && calls(found[1]) === numbers;
  if (!isSound) return { body: text, notes: [] };
  return { body: text.slice(0, found.index), notes: lines.map((line) => line.slice(line.indexOf(":") + 2)) };
}

/** @type {(notes: Run[][]) => string} */
export const textOfNotes = (notes) =>
  notes.map((runs, i) => `${i ? "\n" : "\n\n"}[^${i + 1}]: ${textOfRuns(begun(runs), false)}`).join("");

/** Runs without the blanks before the first word.
    @type {(runs: Run[]) => Run[]} */
function begun(runs) {
  const first = runs.findIndex(({ text }) => text.trim());
  if (first < 0) return [];
  return runs.slice(first).map((one, i) => (i ? one : { ...one, text: one.text.trimStart() }));
}

/** A line's words as a title has them: without its marks, its escapes and the calls of notes.
    @type {(line: string) => string} */
export const plainOf = (line) =>
  blockOf(line)
    .runs.map(({ text }) => text)
    .join("")
    .replaceAll(CALL, "")
    .trim();

/** @type {(number: number) => string} */
export const callOf = (number) => `[^${number}]`;
