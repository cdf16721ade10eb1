// Zip files, as those of .docx: read with the browser's own decompression, written without compression.

const LOCAL = 0x04034b50;
const CENTRAL = 0x02014b50;
const END = 0x06054b50;
const LONGEST_COMMENT = 65_557; // bytes from the last record's beginning to the end of a file
const MOST = 64e6; // bytes of one file after decompression

/** @typedef {Uint8Array<ArrayBuffer>} Bytes */

const DAMAGED = "the zip file is damaged";

/** The text of one file in a zip; null if it is not there. Error when the zip is none, or damaged.
    @type {(buffer: ArrayBuffer, wanted: string) => Promise<string | null>} */
export async function readZipped(buffer, wanted) {
  try {
    return await find(buffer, wanted);
  } catch (error) {
    const isOfBytes = [RangeError, TypeError].includes(error.constructor); // not there, or not compressed
    throw isOfBytes ? new Error(DAMAGED) : error;
  }
}

/** @type {(buffer: ArrayBuffer, wanted: string) => Promise<string | null>} */
async function find(buffer, wanted) {
  const data = new DataView(buffer);
  let at = buffer.byteLength - 22;
  const first = Math.max(0, buffer.byteLength - LONGEST_COMMENT);
  while (at >= first && data.getUint32(at, true) !== END) at--;
  if (at < first) throw new Error("it is no zip file");
  let entry = data.getUint32(at + 16, true);
  for (let left = data.getUint16(at + 10, true); left > 0; left--) {
    if (data.getUint32(entry, true) !== CENTRAL) throw new Error(DAMAGED);
    const [name, extra, comment] = [28, 30, 32].map((place) => data.getUint16(entry + place, true));
    const path = new TextDecoder().decode(new Uint8Array(buffer, entry + 46, name));
    if (path === wanted) return decompressed(buffer, data, entry);
    entry += 46 + name + extra + comment;
  }
  return null;
}

/** @type {(buffer: ArrayBuffer, data: DataView, entry: number) => Promise<string>} */
async function decompressed(buffer, data, entry) {
  const method = data.getUint16(entry + 10, true);
  const size = data.getUint32(entry + 20, true);
  const local = data.getUint32(entry + 42, true);
  const begin = local + 30 + data.getUint16(local + 26, true) + data.getUint16(local + 28, true);
  const packed = new Blob([new Uint8Array(buffer, begin, size)]);
  if (method !== 0 && method !== 8)
    throw new Error(`the zip file uses the compression ${method}; 0 and 8 can be read`);
  const content = await (method ? await inflated(packed) : packed).arrayBuffer();
  if (checksum(new Uint8Array(content)) !== data.getUint32(entry + 16, true)) throw new Error(DAMAGED);
  return new TextDecoder().decode(content);
}

/** @type {(packed: Blob) => Promise<Blob>} */
async function inflated(packed) {
  const reader = packed.stream().pipeThrough(new DecompressionStream("deflate-raw")).getReader();
  const parts = [];
  let length = 0;
  for (let next = await reader.read(); !next.done; next = await reader.read()) {
    length += next.value.length;
    if (length > MOST) throw new Error(`a file in the zip file has more than ${MOST} bytes`);
    parts.push(next.value);
  }
  return new Blob(parts);
}

/** A zip file of texts by path.
    @type {(files: Record<string, string>) => Bytes[]} */
export function zipped(files) {
  const parts = [];
  const central = [];
  let offset = 0;
  for (const [path, text] of Object.entries(files)) {
    const [name, content] = [path, text].map((one) => new TextEncoder().encode(one));
    const facts = [0, 0, 0x21, checksum(content), content.length, content.length, name.length, 0];
    const local = record(LOCAL, [20, 0x800, ...facts], "2222244422");
    parts.push(local, name, content);
    central.push(record(CENTRAL, [20, 20, 0x800, ...facts, 0, 0, 0, 0, offset], "2222224442222244"), name);
    offset += local.length + name.length + content.length;
  }
  const size = central.reduce((sum, one) => sum + one.length, 0);
  const count = Object.keys(files).length;
  return [...parts, ...central, record(END, [0, 0, count, count, size, offset, 0], "2222442")];
}

/** A record of a zip file: its mark, and numbers of two or four bytes.
    @type {(mark: number, values: number[], sizes: string) => Bytes} */
function record(mark, values, sizes) {
  const bytes = new Uint8Array(4 + [...sizes].reduce((sum, size) => sum + Number(size), 0));
  const data = new DataView(bytes.buffer);
  data.setUint32(0, mark, true);
  let at = 4;
  values.forEach((value, i) => {
    if (sizes[i] === "2") data.setUint16(at, value, true);
    else data.setUint32(at, value, true);
    at += Number(sizes[i]);
  });
  return bytes;
}

const TABLE = Uint32Array.from({ length: 256 }, (_, i) => {
  let value = i;
  for (let bit = 0; bit < 8; bit++) value = value & 1 ? 0xedb88320 ^ (value >>> 1) : value >>> 1;
  return value;
});

/** @type {(bytes: Uint8Array) => number} */
function checksum(bytes) {
  let value = 0xffffffff;
  for (const byte of bytes) value = TABLE[(value ^ byte) & 255] ^ (value >>> 8);
  return (value ^ 0xffffffff) >>> 0;
}
