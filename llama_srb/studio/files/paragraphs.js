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

// Footnotes are text: [^1] where the note is called, and anywhere a line "[^1]: …" with its words. While a
// document is read or written a call has a sign that no text has, so that a [^1] that is no call is not one.

const SIGN = "\uffff";
export const CALL = /\[\^\uffff(\d+)\]/g;
const CALLS = /\[\^([^\s[\]^*\\]+)\]/g; // in a text
const NOTE = /^\[\^([^\s[\]^*\\]+)\]: (.*)$/s; // a line

/** @type {(number: number) => string} */
export const callOf = (number) => `[^${SIGN}${number}]`;

/** A text without the notes that it calls, with calls as `callOf` writes them, in the order of `notes`; a
    warning for each call without a note, and each note without a call, which stay as they are.
    @type {(text: string) => {body: string, notes: string[], warnings: string[]}} */
export function notesOf(text) {
  if (!text.includes("[^")) return { body: text, notes: [], warnings: [] }; // as most, and long ones
  const lines = text.replaceAll(SIGN, "").split("\n");
  const found = lines.map((line) => NOTE.exec(line));
  /** @type {Map<string, number>} */
  const places = new Map();
  for (const [i, one] of found.entries()) if (one && !places.has(one[1])) places.set(one[1], i);
  /** @type {string[]} */
  const notes = [];
  const taken = new Set();
  const warnings = new Set();
  const marked = lines.map((line, i) => {
    if (found[i]) return line;
    return line.replaceAll(CALLS, (call, label) => {
      const place = places.get(label);
      if (place === undefined) warnings.add(`${call} has no line “${call}: …”`);
      else taken.add(place);
      return place === undefined ? call : callOf(notes.push(found[place]?.[2] ?? ""));
    });
  });
  for (const [i, one] of found.entries())
    if (one && !taken.has(i))
      warnings.add(
        taken.has(places.get(one[1]))
          ? `another line “[^${one[1]}]: …” is before it`
          : `[^${one[1]}] is not in the text, only its line “[^${one[1]}]: …”`,
      );
  return { body: without(marked, taken), notes, warnings: [...warnings] };
}

/** The text of lines without some of them. Where blank lines are on both sides of a gap, one goes, too.
    @type {(lines: string[], taken: Set<number>) => string} */
function without(lines, taken) {
  /** @type {string[]} */
  const kept = [];
  for (let i = 0; i < lines.length; i++) {
    if (!taken.has(i)) {
      kept.push(lines[i]);
      continue;
    }
    for (let next = i + 1; taken.has(next) || lines[next] === ""; next++) if (taken.has(next)) i = next;
    if (lines[i + 1]) continue;
    if (!kept.length) i++;
    else if (!kept.at(-1)) kept.pop();
  }
  return kept.join("\n");
}

/** A document's text with its notes behind a blank line. They have the numbers that no other [^1] of the text
    has.
    @type {(text: string, notes: Run[][]) => string} */
export function withNotes(text, notes) {
  const lines = notes.map((runs, i) => `\n${callOf(i + 1)}: ${textOfRuns(begun(runs), false)}`);
  const whole = notes.length ? `${text}\n${lines.join("")}` : text;
  const others = new Set([...whole.matchAll(CALLS)].map(([, label]) => label));
  let last = 0;
  const numbers = notes.map(() => {
    do last++;
    while (others.has(String(last)));
    return last;
  });
  return whole.replaceAll(CALL, (_, number) => `[^${numbers[number - 1] ?? number}]`);
}

/** Where a text ends before the notes at its end; null if none stand there.
    @type {(text: string) => number | null} */
export function endBeforeNotes(text) {
  const lines = text.split("\n");
  const last = lines.findLastIndex((line) => line.trim() && !NOTE.test(line));
  const hasNotes = lines.slice(last + 1).some((line) => NOTE.test(line));
  return hasNotes ? lines.slice(0, last + 1).join("\n").length : null;
}

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
    .replaceAll(CALLS, "")
    .trim();
