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
    @type {() => () => Promise<void> | void} */
export function pauses() {
  let since = performance.now();
  return () => {
    if (performance.now() - since < PAUSE_MS) return;
    return new Promise((resolve) =>
      setTimeout(() => {
        since = performance.now();
        resolve();
      }),
    );
  };
}
