// What a file is, by its bytes: names lie. Those that have no text for a story are refused with a sentence.

import { unzipped } from "./zip.js";

/** @import { Zip } from "./zip.js" */

/** What can be read here.
    @typedef {"docx" | "epub" | "odt" | "rtf" | "png" | "html" | "json" | "text"} Kind */

/** @type {(bytes: Uint8Array, at: number, sign: string) => boolean} */
const has = (bytes, at, sign) => [...sign].every((one, i) => bytes[at + i] === one.charCodeAt(0));

const SAVE_AS = "save it as Word (.docx), EPUB or a text, and import that";
/** Beginnings of binary files: at, sign, what it is, what to do. Words of a text may be such a sign, so it
    counts only beside characters that no text has.
    @type {[at: number, sign: string, what: string, then?: string][]} */
const REFUSED = [
  [0, "\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "an old Word file (.doc), or one with a password", SAVE_AS],
  [60, "BOOKMOBI", "a Kindle book (MOBI)", "convert it to EPUB, and import that"],
  [0, "TPZ", "a Kindle book", "convert it to EPUB, and import that"],
  [0, "\xeaDRMION\xee", "a Kindle book (KFX)", "convert it to EPUB, and import that"],
  [0, "\xff\xd8\xff", "a picture (JPEG)"],
  [0, "GIF8", "a picture (GIF)"],
  [0, "BM", "a picture (BMP)"],
  [0, "II*\0", "a picture (TIFF)"],
  [0, "MM\0*", "a picture (TIFF)"],
  [8, "WEBP", "a picture (WebP)"],
  [4, "ftyp", "a film, a recording or a picture (MP4, HEIC)"],
  [0, "\x1f\x8b", "a compressed file (gzip)", "unpack it, and import what is in it"],
  [0, "7z\xbc\xaf\x27\x1c", "a 7z archive", "unpack it, and import what is in it"],
  [0, "Rar!", "a RAR archive", "unpack it, and import what is in it"],
  [0, "ID3", "a recording (MP3)"],
  [0, "OggS", "a recording (Ogg)"],
  [0, "fLaC", "a recording (FLAC)"],
  [8, "WAVE", "a recording (WAV)"],
  [0, "SQLite format 3", "a database"],
  [0, "\x7fELF", "a program"],
  [0, "MZ\x90", "a program"],
  [0, "\0\x01\0\0", "a font"],
  [0, "OTTO", "a font"],
  [0, "GGUF", "a model (GGUF)", "the server loads it, by --model"],
];

/** Parts of zip files.
    @type {[part: RegExp, what: string, then?: string][]} */
const ZIPS = [
  [/^Index\/Document\.iwa$|^Index\.zip$|^index\.apxl$|^index\.xml$/, "a Pages document", SAVE_AS],
  [/^xl\/workbook\./, "a spreadsheet (Excel)"],
  [/^ppt\/presentation\./, "a presentation (PowerPoint)"],
  [/^card\.json$/, "a character (CHARX)", "save it as PNG or JSON, and import that"],
];

const HEAD = 68; // bytes, in which each of these kinds has a control character
const IN_TEXTS = new Set([...Array(5).keys()].map((i) => 9 + i)); // tab, line breaks, form feed
/** @type {(bytes: Uint8Array) => boolean} */
const isBinary = (bytes) => bytes.subarray(0, HEAD).some((one) => one < 32 && !IN_TEXTS.has(one));

const COMMENTS = "(?:<!--.*?-->\\s*)*";
/** What a page begins with; `html` and `head` need not be written. */
const HTML = new RegExp(
  `^(<\\?xml[^>]*>\\s*)?${COMMENTS}<(!doctype html|html|head|title|meta|body)[\\s>]`,
  "is",
);
/** A part of a page, which its name tells from a text that begins with a tag. */
const PART = new RegExp(`^${COMMENTS}<[a-z][a-z\\d]*[\\s>]`, "is");
/** An XML file: its first line says so, or its first element. */
const XML = new RegExp(
  `^(<\\?xml|${COMMENTS}(<!doctype[^>]*>\\s*)?<(svg\\b|[a-z][^\\s<>]*\\s[^<>]*xmlns\\b))`,
  "is",
);

/** @type {(what: string, then?: string) => Error} */
const refusal = (what, then) => new Error(`it is ${what}${then ? `; ${then}` : ""}`);

/** What a file is; Error with a sentence about what cannot be read.
    @type {(name: string, buffer: ArrayBuffer) => Promise<Kind>} */
export async function kindOf(name, buffer) {
  const bytes = new Uint8Array(buffer);
  if (has(bytes, 0, "PK\x03\x04")) return kindOfZip(unzipped(buffer));
  if (has(bytes, 0, "\x89PNG\r\n\x1a\n")) return "png";
  const refused = isBinary(bytes) && REFUSED.find(([at, sign]) => has(bytes, at, sign));
  if (refused) throw refusal(refused[2], refused[3]);
  const begin = new TextDecoder("latin1")
    .decode(bytes.subarray(0, 1000))
    .replace(/^\xef\xbb\xbf/, "")
    .trimStart();
  if (/^%PDF-\d\.\d\s*[\r\n]/.test(begin))
    throw refusal("a PDF, which has no paragraphs", "import the document that it was made of");
  if (/^\{\\rtf\d?(?![a-z])/.test(begin)) return "rtf";
  if (/\.(docx|epub|odt)$/i.test(name)) throw new Error("it is no zip file");
  if (HTML.test(begin) || (/\.x?html?$/i.test(name) && PART.test(begin))) return "html";
  if (XML.test(begin))
    throw refusal(/<svg\b/i.test(begin) ? "a picture (SVG)" : "an XML file, which is not known here");
  if (/\.(json|lorebook|story|scenario)$/i.test(name) || /^(\{\s*"[^"\n]*"\s*:|\[\s*\{\s*")/.test(begin))
    return "json";
  return "text";
}

const MIMES = /** @type {const} */ ({
  "application/epub+zip": "epub",
  "application/vnd.oasis.opendocument.text": "odt",
  "application/vnd.oasis.opendocument.text-template": "odt",
});

/** @type {(zip: Zip) => Promise<Kind>} */
async function kindOfZip(zip) {
  /** @type {(path: string) => Promise<string>} */
  const text = async (path) => new TextDecoder().decode((await zip.read(path)) ?? new Uint8Array());
  const mime = (await text("mimetype")).trim();
  const known = Object.entries(MIMES).find(([name]) => name === mime.toLowerCase());
  if (known) return known[1];
  if (/wordprocessingml/.test(await text("[Content_Types].xml"))) return "docx";
  const refused = ZIPS.find(([part]) => zip.paths.some((path) => part.test(path)));
  if (refused) throw refusal(refused[1], refused[2]);
  if (mime.startsWith("application/vnd.oasis.opendocument"))
    throw refusal("an OpenDocument file without text");
  if (zip.paths.some((path) => /^META-INF\/container\.xml$/i.test(path))) return "epub";
  throw refusal("a zip file of a kind that is not known here", "unpack it, and import what is in it");
}
