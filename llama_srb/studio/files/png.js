// The texts in a PNG: characters are shared as pictures, with their JSON in a chunk.

const KEYS = ["ccv3", "chara", "naidata"]; // version 3 first, which has all of version 2; then a lorebook

/** The JSON in a picture; Error if there is none.
    @type {(buffer: ArrayBuffer) => string} */
export function jsonInPng(buffer) {
  const texts = textsOf(buffer);
  const found = KEYS.map((key) => texts.get(key)).find((text) => text !== undefined);
  if (found === undefined) throw new Error("it is a picture (PNG) without a character in it");
  try {
    return new TextDecoder().decode(Uint8Array.from(atob(found), (sign) => sign.charCodeAt(0)));
  } catch {
    throw new Error("the character in the picture is damaged");
  }
}

/** @type {(buffer: ArrayBuffer) => Map<string, string>} */
function textsOf(buffer) {
  const data = new DataView(buffer);
  const texts = new Map();
  for (let at = 8; at + 12 <= buffer.byteLength; ) {
    const length = data.getUint32(at);
    const [type, content] = [new Uint8Array(buffer, at + 4, 4), at + 8];
    if (content + length > buffer.byteLength) break;
    if (String.fromCharCode(...type) === "tEXt") {
      const text = new TextDecoder("latin1").decode(new Uint8Array(buffer, content, length));
      const end = text.indexOf("\0");
      if (end > 0) texts.set(text.slice(0, end).toLowerCase(), text.slice(end + 1));
    }
    at = content + length + 4;
  }
  return texts;
}
