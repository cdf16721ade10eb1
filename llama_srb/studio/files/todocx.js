// A text becomes a Word file (.docx) in which italic, bold, headings and lists are Word's own.

import { DOT, LITERAL, SCENE_BREAK, SPACE_BEFORE } from "./docx.js";
import { LEVELS, runsOf } from "./emphasis.js";
import { CALL, notesOf, paragraphsOf } from "./paragraphs.js";
import { escaped, pauses, XML } from "./xml.js";
import { zipped } from "./zip.js";

/** @import { Run } from "./emphasis.js" */
/** @import { Paragraph } from "./paragraphs.js" */

const WORDS = "http://schemas.openxmlformats.org/wordprocessingml/2006/main";
const PARTS = "http://schemas.openxmlformats.org/package/2006";
const OFFICE = "http://schemas.openxmlformats.org/officeDocument/2006/relationships";
const TYPE = "application/vnd.openxmlformats-officedocument.wordprocessingml";
export const DOCX = "application/vnd.openxmlformats-officedocument.wordprocessingml.document";
const BEFORE = 280; // twentieths of a point: the space for a blank line

/** The parts of a .docx with this text.
    @type {(title: string, text: string) => Promise<BlobPart[]>} */
export async function toDocx(title, text) {
  const { body, notes } = notesOf(text);
  const lists = new Lists();
  const paragraphs = [];
  const pause = pauses();
  for (const one of paragraphsOf(body)) {
    paragraphs.push(paragraph(one, lists));
    const wait = pause();
    if (wait) await wait;
  }
  const parts = [
    ["styles", styles()],
    ["numbering", lists.xml()],
    ...(notes.length ? [["footnotes", footnotes(notes)]] : []),
  ];
  return zipped({
    "[Content_Types].xml": `${XML}<Types xmlns="${PARTS}/content-types">${[
      ["rels", "application/vnd.openxmlformats-package.relationships+xml"],
      ["xml", "application/xml"],
    ]
      .map(([end, kind]) => `<Default Extension="${end}" ContentType="${kind}"/>`)
      .join("")}${[
      ["/word/document.xml", `${TYPE}.document.main+xml`],
      ...parts.map(([name]) => [`/word/${name}.xml`, `${TYPE}.${name}+xml`]),
      ["/docProps/core.xml", "application/vnd.openxmlformats-package.core-properties+xml"],
    ]
      .map(([part, kind]) => `<Override PartName="${part}" ContentType="${kind}"/>`)
      .join("")}</Types>`,
    "_rels/.rels": relations([
      [`${OFFICE}/officeDocument`, "word/document.xml"],
      [`${PARTS}/relationships/metadata/core-properties`, "docProps/core.xml"],
    ]),
    "docProps/core.xml": `${XML}<cp:coreProperties xmlns:cp="${PARTS}/metadata/core-properties"
      xmlns:dc="http://purl.org/dc/elements/1.1/"><dc:title>${escaped(title)}</dc:title></cp:coreProperties>`,
    "word/_rels/document.xml.rels": relations(parts.map(([name]) => [`${OFFICE}/${name}`, `${name}.xml`])),
    ...Object.fromEntries(parts.map(([name, xml]) => [`word/${name}.xml`, xml])),
    "word/document.xml":
      `${XML}<w:document xmlns:w="${WORDS}"><w:body>${paragraphs.join("")}` +
      `<w:sectPr><w:pgSz w:w="11906" w:h="16838"/>` +
      `<w:pgMar w:top="1440" w:right="1440" w:bottom="1440" w:left="1440" w:header="708" w:footer="708" ` +
      `w:gutter="0"/></w:sectPr></w:body></w:document>`,
  });
}

/** @type {(list: string[][]) => string} */
const relations = (list) =>
  `${XML}<Relationships xmlns="${PARTS}/relationships">${list
    .map(([type, target], i) => `<Relationship Id="r${i + 1}" Type="${type}" Target="${target}"/>`)
    .join("")}</Relationships>`;

// ---- paragraphs --------------------------------------------------------------------------------------

const STYLES = { heading: "Heading", quote: "Quote", bullet: "ListBullet", number: "ListNumber" };

/** @type {(one: Paragraph, lists: Lists) => string} */
function paragraph({ kind, level, runs, spaced }, lists) {
  if (kind === "break")
    return `<w:p>${properties("SceneBreak", spaced)}${runXml(runs).replaceAll("*", DOT)}</w:p>`;
  const list = lists.next(kind, level);
  const content = runXml(runs);
  if (kind === "text") return `<w:p>${spaced ? properties("SpaceBefore", false) : ""}${content}</w:p>`;
  const style = STYLES[kind] + (kind === "heading" ? level : "");
  return `<w:p>${properties(style, spaced, list)}${content}</w:p>`;
}

/** @type {(style: string, spaced?: boolean, list?: number | null) => string} */
const properties = (style, spaced, list = null) =>
  `<w:pPr><w:pStyle w:val="${style}"/>${
    list === null ? "" : `<w:numPr><w:ilvl w:val="0"/><w:numId w:val="${list}"/></w:numPr>`
  }${spaced ? `<w:spacing w:before="${BEFORE}"/>` : ""}</w:pPr>`;

/** @type {(runs: Run[]) => string} */
const runXml = (runs) => runs.map(lookXml).join("");

/** A run; where it calls a note, with the number of the note.
    @type {(one: Run) => string} */
function lookXml({ text, italic, bold, literal }) {
  /** @type {(style: string) => string} */
  const look = (style) => {
    const all = `${style && `<w:rStyle w:val="${style}"/>`}${bold ? "<w:b/>" : ""}${italic ? "<w:i/>" : ""}`;
    return all && `<w:rPr>${all}</w:rPr>`;
  };
  return text
    .split(CALL) // text, number, text, …
    .map((part, i) =>
      i % 2
        ? `<w:r>${look("FootnoteReference")}<w:footnoteReference w:id="${part}"/></w:r>`
        : part && `<w:r>${look(literal ? LITERAL : "")}${textXml(part)}</w:r>`,
    )
    .join("");
}

/** @type {(text: string) => string} */
const textXml = (text) =>
  escaped(text)
    .split("\t")
    .map((part) => part && `<w:t xml:space="preserve">${part}</w:t>`)
    .join("<w:tab/>");

/** @type {(notes: string[]) => string} */
function footnotes(notes) {
  const lines = [
    ["separator", "<w:separator/>"],
    ["continuationSeparator", "<w:continuationSeparator/>"],
  ].map(
    ([type, sign], i) =>
      `<w:footnote w:type="${type}" w:id="${i - 1}"><w:p><w:r>${sign}</w:r></w:p></w:footnote>`,
  );
  const all = notes.map(
    (text, i) =>
      `<w:footnote w:id="${i + 1}"><w:p>${properties("FootnoteText")}` +
      `<w:r><w:rPr><w:rStyle w:val="FootnoteReference"/></w:rPr><w:footnoteRef/></w:r>` +
      `<w:r><w:t xml:space="preserve"> </w:t></w:r>${runXml(runsOf(text, false))}</w:p></w:footnote>`,
  );
  return `${XML}<w:footnotes xmlns:w="${WORDS}">${[...lines, ...all].join("")}</w:footnotes>`;
}

// ---- lists -------------------------------------------------------------------------------------------

const BULLETS = 1; // the list of all bullets; each row of numbers has a list of its own

/** The lists of a text, which Word counts: a number that does not follow the last one begins another. */
class Lists {
  constructor() {
    /** @type {number[]} */
    this.starts = [];
    this.last = -1;
  }

  /** The list of a paragraph; null if it is no item.
      @type {(kind: string, level: number) => number | null} */
  next(kind, level) {
    if (kind === "bullet") return BULLETS;
    if (kind !== "number") return null;
    if (level !== this.last + 1 || !this.starts.length) this.starts.push(level);
    this.last = level;
    return BULLETS + this.starts.length;
  }

  xml() {
    const levels = [
      ["bullet", "-"],
      ["decimal", "%1."],
    ].map(
      ([format, text], i) =>
        `<w:abstractNum w:abstractNumId="${i}"><w:multiLevelType w:val="singleLevel"/><w:lvl w:ilvl="0">` +
        `<w:start w:val="1"/><w:numFmt w:val="${format}"/><w:lvlText w:val="${text}"/>` +
        `<w:lvlJc w:val="left"/>` +
        `<w:pPr><w:ind w:left="360" w:hanging="360"/></w:pPr></w:lvl></w:abstractNum>`,
    );
    const numbers = this.starts.map(
      (start, i) =>
        `<w:num w:numId="${BULLETS + i + 1}"><w:abstractNumId w:val="1"/>` +
        `<w:lvlOverride w:ilvl="0"><w:startOverride w:val="${start}"/></w:lvlOverride></w:num>`,
    );
    return (
      `${XML}<w:numbering xmlns:w="${WORDS}">${levels.join("")}` +
      `<w:num w:numId="${BULLETS}"><w:abstractNumId w:val="0"/></w:num>${numbers.join("")}</w:numbering>`
    );
  }
}

// ---- styles ------------------------------------------------------------------------------------------

/** @type {(id: string, name: string, content: string, isOwn?: boolean) => string} */
const style = (id, name, content, isOwn = false) =>
  `<w:style w:type="paragraph"${isOwn ? ' w:customStyle="1"' : ""} w:styleId="${id}">` +
  `<w:name w:val="${name}"/>` +
  `<w:basedOn w:val="Normal"/>${content}</w:style>`;
/** @type {(id: string, name: string, content: string, isOwn?: boolean) => string} */
const character = (id, name, content, isOwn = false) =>
  `<w:style w:type="character"${isOwn ? ' w:customStyle="1"' : ""} w:styleId="${id}">` +
  `<w:name w:val="${name}"/>` +
  `${content}</w:style>`;

/** @type {() => string} */
function styles() {
  const headings = Array.from({ length: LEVELS }, (_, i) =>
    style(
      `Heading${i + 1}`,
      `heading ${i + 1}`,
      `<w:next w:val="Normal"/><w:qFormat/><w:pPr><w:keepNext/><w:spacing w:before="120" w:after="120"/>` +
        `<w:outlineLvl w:val="${i}"/></w:pPr><w:rPr><w:b/><w:sz w:val="${33 - 3 * i}"/></w:rPr>`,
    ),
  );
  return `${XML}<w:styles xmlns:w="${WORDS}"><w:docDefaults><w:rPrDefault><w:rPr><w:rFonts
    w:ascii="Times New Roman" w:hAnsi="Times New Roman" w:eastAsia="Times New Roman" w:cs="Times New Roman"/>
    <w:sz w:val="24"/></w:rPr></w:rPrDefault><w:pPrDefault/></w:docDefaults>
    <w:style w:type="paragraph" w:default="1" w:styleId="Normal">
    <w:name w:val="Normal"/><w:qFormat/></w:style>
    <w:style w:type="character" w:default="1" w:styleId="DefaultParagraphFont">
    <w:name w:val="Default Paragraph Font"/><w:semiHidden/></w:style>${[
      ...headings,
      style(
        "SpaceBefore",
        SPACE_BEFORE,
        `<w:next w:val="Normal"/><w:qFormat/><w:pPr><w:spacing w:before="${BEFORE}"/></w:pPr>`,
        true,
      ),
      style(
        "SceneBreak",
        SCENE_BREAK,
        `<w:next w:val="Normal"/><w:qFormat/><w:pPr><w:spacing w:before="120" w:after="120"/>` +
          `<w:jc w:val="center"/></w:pPr>`,
        true,
      ),
      style(
        "Quote",
        "Quote",
        `<w:qFormat/><w:pPr><w:ind w:left="720" w:right="720"/></w:pPr><w:rPr><w:i/></w:rPr>`,
      ),
      style("ListBullet", "List Bullet", ""),
      style("ListNumber", "List Number", ""),
      style("FootnoteText", "footnote text", `<w:rPr><w:sz w:val="20"/></w:rPr>`),
      character(
        "FootnoteReference",
        "footnote reference",
        `<w:rPr><w:vertAlign w:val="superscript"/></w:rPr>`,
      ),
      character(LITERAL, LITERAL, "", true),
    ].join("")}</w:styles>`;
}
