// EPUB files become text: the chapters in the order of the book, whatever their files are called.

import { run } from "./emphasis.js";
import { isNoteCall, looksIn, marksIn, paragraphsWithin, parsedHtml } from "./html.js";
import { textIn, withNotes } from "./paragraphs.js";
import { allOf, decoded, escaped, pauses, readXml, resolved } from "./xml.js";
import { unzipped } from "./zip.js";

/** @import { Run } from "./emphasis.js" */
/** @import { Look } from "./html.js" */
/** @import { Paragraph } from "./paragraphs.js" */
/** @import { Zip } from "./zip.js" */

const FONTS = ["http://www.idpf.org/2008/embedding", "http://ns.adobe.com/pdf/enc#RC"]; // obfuscated only
export const GENERATOR = "llama-srb studio";
const CHAPTERS = /^(application\/xhtml\+xml|text\/html|application\/html)$/i;

// Chapters are XHTML, but many are no XML, so all are read as HTML, which has no empty elements but these.
const EMPTY =
  /<(?!(?:area|base|br|col|embed|hr|img|input|link|meta|source|track|wbr)\b)([a-z][\w:-]*)(\s[^<>]*?)?\/>/gi;
const CDATA = /<!\[CDATA\[(.*?)\]\]>/gs;

/** The title and the text of an EPUB.
    @type {(buffer: ArrayBuffer) => Promise<{title: string, text: string}>} */
export async function fromEpub(buffer) {
  const zip = unzipped(buffer);
  await refuseEncrypted(zip);
  const container = await readXml(zip, "META-INF/container.xml");
  const path = allOf(container, "rootfile")[0]?.getAttribute("full-path");
  const book = path ? await readXml(zip, decodeURIComponent(path)) : null;
  if (!path || !book) throw new Error("it has no list of its chapters (META-INF/container.xml)");
  const isOurs = allOf(book, "meta").some(
    (one) => one.getAttribute("name") === "generator" && one.getAttribute("content") === GENERATOR,
  );
  /** @type {Paragraph[]} */
  const all = [];
  /** @type {Run[][]} */
  const notes = [];
  const pause = pauses();
  for (const chapter of chaptersOf(book, path)) {
    const read = await paragraphsOf(zip, chapter, notes);
    if (!isOurs && all.length && read[0]) read[0].spaced = true;
    for (const one of read) all.push(one);
    const wait = pause();
    if (wait) await wait;
  }
  if (!all.length) throw new Error("it has no chapters with text");
  const title = allOf(book, "title")[0]?.textContent?.trim() ?? "";
  return { title, text: withNotes(await textIn(all), notes) };
}

/** @type {(zip: Zip) => Promise<void>} */
async function refuseEncrypted(zip) {
  const found = await readXml(zip, "META-INF/encryption.xml");
  const methods = allOf(found, "EncryptedData").map((one) =>
    allOf(one, "EncryptionMethod")
      .find((method) => method.parentElement === one)
      ?.getAttribute("Algorithm"),
  );
  if (methods.some((method) => !FONTS.includes(method ?? "")))
    throw new Error("it is encrypted (DRM); only the program of its shop can read it");
}

/** The paths of the chapters in their order; a file that is named twice, for two parts of it, is there once.
    @type {(book: Document, path: string) => string[]} */
function chaptersOf(book, path) {
  const items = new Map(allOf(book, "item").map((one) => [one.getAttribute("id"), one]));
  const named = allOf(book, "itemref").map((one) => items.get(one.getAttribute("idref")));
  const chapters = named.filter(
    (one) =>
      one &&
      CHAPTERS.test(one.getAttribute("media-type")?.trim() ?? "") &&
      !/\bnav\b/.test(one.getAttribute("properties") ?? ""),
  );
  return [...new Set(chapters.map((one) => resolved(path, one?.getAttribute("href") ?? "")))];
}

/** The paragraphs of a chapter; the notes that stand in it become the next `notes`.
    @type {(zip: Zip, path: string, notes: Run[][]) => Promise<Paragraph[]>} */
async function paragraphsOf(zip, path, notes) {
  const bytes = await zip.read(path);
  if (!bytes) throw new Error(`its chapter ${path} is missing`);
  const source = decoded(bytes)
    .replaceAll(EMPTY, "<$1$2></$1>")
    .replaceAll(CDATA, (_, text) => escaped(text));
  const parsed = parsedHtml(source);
  const looks = await looksOf(zip, path, parsed);
  const marks = marksIn(parsed.body);
  /** @type {Map<Element, number>} */
  const calls = new Map();
  for (const call of allOf(parsed, "a").filter(isNoteCall)) {
    const note = parsed.getElementById(/^#(.+)/.exec(call.getAttribute("href") ?? "")?.[1] ?? "");
    if (!note || !isNote(note) || note.contains(call)) continue;
    for (const back of note.querySelectorAll('[role="doc-backlink"]')) back.remove();
    calls.set(call, notes.push(inLine(paragraphsWithin(note, { looks, marks }))));
    takeOut(note);
  }
  return paragraphsWithin(parsed.body, { looks, calls, marks });
}

/** Removes a note, and what is around it if nothing but a rule is left there.
    @type {(note: Element) => void} */
function takeOut(note) {
  /** @type {Element | null} */
  let gone = note;
  while (gone && gone.localName !== "body") {
    /** @type {Element | null} */
    const around = gone.parentElement;
    gone.remove();
    gone = around?.textContent?.trim() ? null : around;
  }
}

/** @type {(element: Element) => boolean} */
const isNote = (element) =>
  /\b(foot|end|rear)note\b/.test(`${element.getAttribute("epub:type")} ${element.getAttribute("role")}`);

/** The runs of a note's paragraphs, which are one line.
    @type {(paragraphs: Paragraph[]) => Run[]} */
const inLine = (paragraphs) => paragraphs.flatMap(({ runs }, i) => (i ? [run(" "), ...runs] : runs));

/** How elements look by the style sheets of a chapter.
    @type {(zip: Zip, path: string, parsed: Document) => Promise<Map<Element, Look>>} */
async function looksOf(zip, path, parsed) {
  const links = allOf(parsed, "link").filter((one) => /stylesheet/i.test(one.getAttribute("rel") ?? ""));
  const files = await Promise.all(
    links.map((one) => zip.read(resolved(path, one.getAttribute("href") ?? "")).catch(() => null)),
  );
  return looksIn(
    parsed,
    files.flatMap((bytes) => (bytes ? [new TextDecoder().decode(bytes)] : [])),
    isNote, // which programs show when one asks for it
  );
}
