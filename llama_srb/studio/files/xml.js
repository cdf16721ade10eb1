// XML within zip files: parts are decoded and parsed, texts become XML. It knows no format.

/** @typedef {import("./zip.js").Zip} Zip */

export const XML = '<?xml version="1.0" encoding="UTF-8" standalone="yes"?>\n';

/** @type {Record<string, string>} */
const SPECIAL = { "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;" };
const FORBIDDEN = /[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\u{10000}-\u{10ffff}]/gu; // in XML

/** @type {(text: string) => string} */
export const escaped = (text) => text.replace(FORBIDDEN, "").replace(/[&<>"]/g, (sign) => SPECIAL[sign]);

const MARKS = [
  ["utf-16le", 0xff, 0xfe],
  ["utf-16be", 0xfe, 0xff],
];

/** The text of a part, in the charset that it says.
    @type {(bytes: Uint8Array) => string} */
export function decoded(bytes) {
  const marked = MARKS.find(([, a, b]) => bytes[0] === a && bytes[1] === b)?.[0];
  const begin = new TextDecoder("latin1").decode(bytes.subarray(0, 200));
  const said = /^[^<]*<\?xml[^>]*encoding=["']([\w.:-]+)/.exec(begin)?.[1];
  try {
    return new TextDecoder(String(marked ?? said ?? "utf-8")).decode(bytes);
  } catch {
    throw new Error(`it has the charset ${said}, which is not known here`);
  }
}

/** A part of a zip file as XML; null if it is not there, Error if it is damaged.
    @type {(zip: Zip, part: string | undefined, type?: DOMParserSupportedType) => Promise<Document | null>} */
export async function readXml(zip, part, type = "application/xml") {
  const bytes = part ? await zip.read(part) : null;
  if (!bytes) return null;
  const parsed = new DOMParser().parseFromString(decoded(bytes), type);
  if (parsed.querySelector("parsererror")) throw new Error(`its ${part} is damaged`);
  return parsed;
}

/** The title in a part about the document; "" for none. No text is refused because that part is damaged.
    @type {(zip: Zip, part: string | undefined) => Promise<string>} */
export async function titleIn(zip, part) {
  const about = await readXml(zip, part).catch(() => null);
  return allOf(about, "title")[0]?.textContent ?? "";
}

const CHUNK = 500_000; // characters that are parsed at once
/** @type {[begin: string, end: string][]} */
const NO_TAGS = [
  ["<!--", "-->"],
  ["<![CDATA[", "]]>"],
  ["<?", "?>"],
];

/** The first element with this local name, in parts: each has some of its children, so that the page answers
    while a long document is parsed. Error if there is none, or it is damaged.
    @type {(zip: Zip, part: string, name: string) => AsyncGenerator<Element>} */
export async function* inParts(zip, part, name) {
  const bytes = await zip.read(part);
  if (!bytes) throw new Error(`it has no ${part}`);
  const xml = decoded(bytes);
  /** @type {string[]} */
  const open = []; // the names of the elements around a place
  let [head, depth, from] = ["", -1, 0];
  /** @type {(end: number) => Element} */
  const parsed = (end) => {
    const tail = open
      .slice(0, depth)
      .reverse()
      .map((one) => `</${one}>`)
      .join("");
    const whole = new DOMParser().parseFromString(head + xml.slice(from, end) + tail, "application/xml");
    const found = allOf(whole, name)[0];
    if (!found || whole.querySelector("parsererror")) throw new Error(`its ${part} is damaged`);
    from = end;
    return found;
  };
  for (const { at, end, tag, isEnd, isEmpty } of tagsOf(xml)) {
    if (isEnd && open.length === depth) {
      yield parsed(at);
      return;
    }
    if (isEnd) open.pop();
    else if (!isEmpty) open.push(tag);
    if (depth < 0 && !isEnd && tag.slice(tag.indexOf(":") + 1) === name) {
      [head, depth, from] = [xml.slice(0, end), open.length, end];
      if (isEmpty) throw new Error(`its ${part} is empty`);
    }
    if (open.length === depth && end - from > CHUNK) {
      yield parsed(end);
      await new Promise((resolve) => setTimeout(resolve));
    }
  }
  throw new Error(`its ${part} is damaged`);
}

/** @typedef {{at: number, end: number, tag: string, isEnd: boolean, isEmpty: boolean}} Tag */
/** The tags of XML, in their order.
    @type {(xml: string) => Generator<Tag>} */
function* tagsOf(xml) {
  for (let at = xml.indexOf("<"); at >= 0; at = xml.indexOf("<", at + 1)) {
    const none = NO_TAGS.find(([begin]) => xml.startsWith(begin, at));
    if (none) {
      at = xml.indexOf(none[1], at);
      if (at < 0) return;
      continue;
    }
    let end = xml.indexOf(">", at) + 1;
    while (end > 0 && !isWhole(xml.slice(at, end))) end = xml.indexOf(">", end) + 1;
    if (end <= 0) return;
    const isEnd = xml[at + 1] === "/";
    const tag = /[^\s/>]+/.exec(xml.slice(at + (isEnd ? 2 : 1), Math.min(end, at + 200)))?.[0] ?? "";
    yield { at, end, tag, isEnd, isEmpty: xml[end - 2] === "/" };
  }
}

/** Whether a tag ends here: not within an attribute's value.
    @type {(tag: string) => boolean} */
const isWhole = (tag) =>
  tag.includes('"') || tag.includes("'") ? /^(?:[^"']|"[^"]*"|'[^']*')*$/.test(tag) : true;

/** The path that a reference in a part means: relative to the part, percent-encoded, without a fragment.
    @type {(part: string, reference: string) => string} */
export function resolved(part, reference) {
  const { pathname } = new URL(reference, new URL(part, "zip:///"));
  try {
    return decodeURIComponent(pathname).replace(/^\/+/, "");
  } catch {
    return pathname.replace(/^\/+/, "");
  }
}

/** The children of an element with a name, in any namespace.
    @type {(element: Element | null | undefined, name: string) => Element[]} */
export const childrenOf = (element, name) =>
  [...(element?.children ?? [])].filter(({ localName }) => localName === name);
/** @type {(element: Element | null | undefined, ...path: string[]) => Element | undefined} */
export const childOf = (element, ...path) =>
  path.reduce((/** @type {Element | undefined} */ at, name) => childrenOf(at, name)[0], element ?? undefined);
/** All elements with a name within one, in any namespace.
    @type {(within: Document | Element | null | undefined, name: string) => Element[]} */
export const allOf = (within, name) => [...(within?.getElementsByTagNameNS("*", name) ?? [])];

const PAUSE_MS = 40; // of work, after which the page may answer

/** Lets the page answer now and then during long work.
    @type {(most?: number) => () => Promise<void> | void} */
export function pauses(most = PAUSE_MS) {
  let since = performance.now();
  return () => {
    if (performance.now() - since < most) return;
    return new Promise((resolve) =>
      setTimeout(() => {
        since = performance.now();
        resolve();
      }),
    );
  };
}
