// A text becomes an EPUB 3: a chapter a file, from one heading of the first level to the next.

import { blockOf, runsOf } from "./emphasis.js";
import { GENERATOR } from "./epub.js";
import { htmlOf, runsHtml, SPACED } from "./html.js";
import { notesOf, plainOf } from "./paragraphs.js";
import { escaped, pauses } from "./xml.js";
import { zipped } from "./zip.js";

export const EPUB = "application/epub+zip";
const XML = '<?xml version="1.0" encoding="UTF-8"?>\n';
const STYLE = `p, h1, h2, h3, h4, h5, h6, li { white-space: pre-wrap; }
p { margin: 0; }
.${SPACED} { margin-top: 1em; }
.break { text-align: center; }
blockquote { margin: 0 2em; }
a[role="doc-noteref"] { vertical-align: super; font-size: smaller; }
`;

/** What an EPUB says of a book. `language`: as "en" or "de-AT".
    @typedef {{id: string, title: string, author: string, language: string, changed: number}} About */

/** The parts of an .epub with this text.
    @type {(about: About, text: string) => Promise<BlobPart[]>} */
export async function toEpub(about, text) {
  const { body, notes } = notesOf(text);
  const chapters = chaptersOf(body);
  /** @type {Record<string, string>} */
  const files = {};
  const pause = pauses();
  for (const [i, chapter] of chapters.entries()) {
    files[`book/chapter${i + 1}.xhtml`] = chapterXml(about, chapter, notes);
    const wait = pause();
    if (wait) await wait;
  }
  return zipped({
    mimetype: EPUB,
    "META-INF/container.xml":
      `${XML}<container version="1.0" xmlns="urn:oasis:names:tc:opendocument:xmlns:container"><rootfiles>` +
      `<rootfile full-path="book/book.opf" media-type="application/oebps-package+xml"/></rootfiles>` +
      `</container>`,
    "book/book.opf": packageXml(about, chapters),
    "book/nav.xhtml": contentsXml(about, chapters),
    "book/style.css": STYLE,
    ...files,
  });
}

/** @typedef {{title: string, text: string}} Chapter */

/** @type {(text: string) => Chapter[]} */
function chaptersOf(text) {
  /** @type {string[][]} */
  const parts = [[]];
  for (const line of text.split("\n")) {
    const { kind, level } = blockOf(line);
    if (kind === "heading" && level === 1 && parts[parts.length - 1].some((one) => one.trim()))
      parts.push([]);
    parts[parts.length - 1].push(line);
  }
  return parts.map((lines, i) => ({
    title: titleOf(lines) || (i ? "…" : "Beginning"),
    text: lines.join("\n"),
  }));
}

/** @type {(lines: string[]) => string} */
function titleOf(lines) {
  const line = lines.find((one) => one.trim()) ?? "";
  return blockOf(line).kind === "heading" ? plainOf(line) : "";
}

/** @type {(about: About, title: string, head: string, body: string) => string} */
const pageXml = ({ language }, title, head, body) =>
  `${XML}<!DOCTYPE html>\n<html xmlns="http://www.w3.org/1999/xhtml" ` +
  `xmlns:epub="http://www.idpf.org/2007/ops" lang="${escaped(language)}" xml:lang="${escaped(language)}">` +
  `<head><title>${escaped(title)}</title>${head}</head><body>${body}</body></html>`;

/** @type {(about: About, chapter: Chapter, notes: string[]) => string} */
function chapterXml(about, { title, text }, notes) {
  /** @type {string[]} */
  const called = [];
  /** @type {(number: string) => string} */
  const call = (number) => {
    called.push(noteXml(number, notes[Number(number) - 1]));
    return `<a epub:type="noteref" role="doc-noteref" id="call${number}" href="#note${number}">${number}</a>`;
  };
  /** @type {(one?: import("./paragraphs.js").Paragraph) => string} */
  const look = (one) => {
    const names = [one?.spaced && SPACED, one?.kind === "break" && "break"].filter(Boolean);
    return names.length ? ` class="${names.join(" ")}"` : "";
  };
  const body = htmlOf(text, look, call) + called.join("");
  return pageXml(about, title, '<link rel="stylesheet" type="text/css" href="style.css"/>', body);
}

/** @type {(number: string, text: string) => string} */
const noteXml = (number, text) =>
  `\n<aside epub:type="footnote" role="doc-footnote" id="note${number}"><p>` +
  `<a role="doc-backlink" href="#call${number}">${number}</a> ${runsHtml(runsOf(text, false))}</p></aside>`;

/** @type {(about: About, chapters: Chapter[]) => string} */
function contentsXml(about, chapters) {
  const items = chapters.map(
    ({ title }, i) => `<li><a href="chapter${i + 1}.xhtml">${escaped(title)}</a></li>`,
  );
  return pageXml(
    about,
    about.title,
    "",
    `<nav epub:type="toc"><h1>${escaped(about.title)}</h1><ol>${items.join("")}</ol></nav>`,
  );
}

/** @type {(about: About, chapters: Chapter[]) => string} */
function packageXml({ id, title, author, language, changed }, chapters) {
  const names = chapters.map((_, i) => `chapter${i + 1}`);
  const items = names.map(
    (name) => `<item id="${name}" href="${name}.xhtml" media-type="application/xhtml+xml"/>`,
  );
  const time = `${new Date(changed).toISOString().slice(0, 19)}Z`;
  return (
    `${XML}<package xmlns="http://www.idpf.org/2007/opf" version="3.0" unique-identifier="id">` +
    `<metadata xmlns:dc="http://purl.org/dc/elements/1.1/">` +
    `<dc:identifier id="id">${escaped(`urn:llama-srb:${id}`)}</dc:identifier>` +
    `<dc:title>${escaped(title)}</dc:title><dc:language>${escaped(language)}</dc:language>` +
    `${author && `<dc:creator>${escaped(author)}</dc:creator>`}` +
    `<meta property="dcterms:modified">${time}</meta>` +
    `<meta name="generator" content="${GENERATOR}"/></metadata>` +
    `<manifest><item id="nav" href="nav.xhtml" media-type="application/xhtml+xml" properties="nav"/>` +
    `<item id="style" href="style.css" media-type="text/css"/>${items.join("")}</manifest>` +
    `<spine>${names.map((name) => `<itemref idref="${name}"/>`).join("")}</spine></package>`
  );
}
