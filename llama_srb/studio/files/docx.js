// Texts as .docx: a paragraph a line, headings as lines with #. It knows no story.

import { readZipped, zipped } from "./zip.js";

const WORDS = "http://schemas.openxmlformats.org/wordprocessingml/2006/main";
const PARTS = "http://schemas.openxmlformats.org/package/2006";
const OFFICE = "http://schemas.openxmlformats.org/officeDocument/2006/relationships";
const TYPE = "application/vnd.openxmlformats-officedocument.wordprocessingml";
export const DOCX = "application/vnd.openxmlformats-officedocument.wordprocessingml.document";
const XML = '<?xml version="1.0" encoding="UTF-8" standalone="yes"?>\n';
const LEVELS = 6;

/** The text of a .docx.
    @type {(buffer: ArrayBuffer) => Promise<string>} */
export async function fromDocx(buffer) {
  const parsed = await readXml(buffer, "word/document.xml");
  if (parsed === null) throw new Error("it has no word/document.xml");
  const names = namesOf(await readXml(buffer, "word/styles.xml"));
  const lines = [...parsed.getElementsByTagNameNS(WORDS, "p")].map((one) => lineOf(one, names));
  return lines.join("\n").replaceAll("\r", "");
}

/** @type {(buffer: ArrayBuffer, part: string) => Promise<Document | null>} */
async function readXml(buffer, part) {
  const xml = await readZipped(buffer, part);
  if (xml === null) return null;
  const parsed = new DOMParser().parseFromString(xml, "application/xml");
  if (parsed.querySelector("parsererror")) throw new Error(`its ${part} is damaged`);
  return parsed;
}

/** The names of styles by their ids. Ids are words of Word's language, but headings' names are English.
    @type {(styles: Document | null) => Map<string | null, string | null>} */
function namesOf(styles) {
  const all = [...(styles?.getElementsByTagNameNS(WORDS, "style") ?? [])];
  /** @type {(one: Element | undefined, name: string) => string | null} */
  const attributeOf = (one, name) => one?.getAttributeNS(WORDS, name) ?? null;
  return new Map(
    all.map((one) => [
      attributeOf(one, "styleId"),
      attributeOf(one.getElementsByTagNameNS(WORDS, "name")[0], "val"),
    ]),
  );
}

/** @type {Record<string, (part: Element) => string | null>} */
const SIGNS = {
  t: ({ textContent }) => textContent,
  tab: () => "\t",
  br: () => "\n",
  noBreakHyphen: () => "-",
};

/** @type {(paragraph: Element, names: Map<string | null, string | null>) => string} */
function lineOf(paragraph, names) {
  const [style] = paragraph.getElementsByTagNameNS(WORDS, "pStyle");
  const id = style?.getAttributeNS(WORDS, "val") ?? "";
  const level = /^(?:heading|title) ?(\d?)/i.exec(names.get(id) ?? id);
  const runs = [...paragraph.getElementsByTagNameNS(WORDS, "r")];
  const text = runs
    .flatMap((run) => [...run.children])
    .map((part) => SIGNS[part.localName]?.(part) ?? "")
    .join("");
  return level && text ? `${"#".repeat(Math.min(LEVELS, Number(level[1] || 1)))} ${text}` : text;
}

/** The parts of a .docx with this text.
    @type {(title: string, text: string) => BlobPart[]} */
export function toDocx(title, text) {
  const lines = text.split("\n").map(paragraphOf).join("");
  const styles = Array.from({ length: LEVELS }, (_, i) => headingStyle(i + 1)).join("");
  return zipped({
    "[Content_Types].xml": `${XML}<Types xmlns="${PARTS}/content-types">${[
      ["rels", "application/vnd.openxmlformats-package.relationships+xml"],
      ["xml", "application/xml"],
    ]
      .map(([end, kind]) => `<Default Extension="${end}" ContentType="${kind}"/>`)
      .join("")}${[
      ["/word/document.xml", `${TYPE}.document.main+xml`],
      ["/word/styles.xml", `${TYPE}.styles+xml`],
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
    "word/_rels/document.xml.rels": relations([[`${OFFICE}/styles`, "styles.xml"]]),
    "word/styles.xml": `${XML}<w:styles xmlns:w="${WORDS}"><w:style w:type="paragraph" w:default="1"
      w:styleId="Normal"><w:name w:val="Normal"/></w:style>${styles}</w:styles>`,
    "word/document.xml": `${XML}<w:document xmlns:w="${WORDS}"><w:body>${lines}</w:body></w:document>`,
  });
}

/** @type {(list: [type: string, target: string][]) => string} */
const relations = (list) =>
  `${XML}<Relationships xmlns="${PARTS}/relationships">${list
    .map(([type, target], i) => `<Relationship Id="r${i + 1}" Type="${type}" Target="${target}"/>`)
    .join("")}</Relationships>`;

/** @type {(level: number) => string} */
const headingStyle = (level) =>
  `<w:style w:type="paragraph" w:styleId="Heading${level}"><w:name w:val="heading ${level}"/>` +
  `<w:basedOn w:val="Normal"/><w:pPr><w:keepNext/><w:spacing w:before="360" w:after="120"/>` +
  `<w:outlineLvl w:val="${level - 1}"/></w:pPr>` +
  `<w:rPr><w:b/><w:sz w:val="${36 - 3 * level}"/></w:rPr></w:style>`;

/** @type {(line: string) => string} */
function paragraphOf(line) {
  const [, marks, title] = /^(#{1,6}) +(.*)$/.exec(line) ?? [];
  const style = marks ? `<w:pPr><w:pStyle w:val="Heading${marks.length}"/></w:pPr>` : "";
  const runs = escaped(title ?? line)
    .split("\t")
    .map((text) => `<w:r><w:t xml:space="preserve">${text}</w:t></w:r>`);
  return `<w:p>${style}${runs.join("<w:r><w:tab/></w:r>")}</w:p>`;
}

/** @type {Record<string, string>} */
const SPECIAL = { "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;" };
const FORBIDDEN = /[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\u{10000}-\u{10ffff}]/gu; // in XML

/** @type {(text: string) => string} */
const escaped = (text) => text.replace(FORBIDDEN, "").replace(/[&<>"]/g, (sign) => SPECIAL[sign]);
