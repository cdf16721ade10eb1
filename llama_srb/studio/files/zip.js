// Zip files, as those of .docx: read with the browser's own decompression, written without compression.

const LOCAL = 0x04034b50;
const CENTRAL = 0x02014b50;
const END = 0x06054b50;
const LONGEST_COMMENT = 65_557; // bytes from the last record's beginning to the end of a file
const MOST = 128e6; // bytes of all files that are read, after decompression

/** @typedef {Uint8Array<ArrayBuffer>} Bytes */

const DAMAGED = "the zip file is damaged";

/** An opened zip file: the paths in it, and the bytes of one; null if it is not there. All files that are
    read have a bound together, so that a small zip file cannot fill the memory.
    @typedef {{paths: string[], read: (path: string) => Promise<Uint8Array | null>}} Zip */

/** @typedef {{data: DataView, entries: Map<string, number>, left: number, most: number}} Opened
    `left`: of the `most` bytes that may come */

/** Opens a zip file; Error when it is none, or damaged.
    @type {(buffer: ArrayBuffer, most?: number) => Zip} */
export function unzipped(buffer, most = MOST) {
  const opened = { data: new DataView(buffer), entries: sound(() => entriesOf(buffer)), left: most, most };
  const paths = [...opened.entries.keys()];
  return {
    paths,
    read: async (path) => {
      const lower = path.toLowerCase();
      const at =
        opened.entries.get(path) ??
        opened.entries.get(paths.find((one) => one.toLowerCase() === lower) ?? ""); // as readers of .docx do
      if (at === undefined) return null;
      try {
        return await decompressed(opened, at);
      } catch (error) {
        throw soundError(error);
      }
    },
  };
}

/** @type {(error: any) => Error} */
const soundError = (error) =>
  [RangeError, TypeError].includes(error.constructor) ? new Error(DAMAGED) : error; // bytes are not there

/** @type {<T>(work: () => T) => T} */
function sound(work) {
  try {
    return work();
  } catch (error) {
    throw soundError(error);
  }
}

/** @type {(data: DataView) => boolean} */
const begins = (data) => data.byteLength >= 4 && data.getUint32(0, true) === LOCAL;

/** Where the central directory has each path.
    @type {(buffer: ArrayBuffer) => Map<string, number>} */
function entriesOf(buffer) {
  const data = new DataView(buffer);
  let at = buffer.byteLength - 22;
  const first = Math.max(0, buffer.byteLength - LONGEST_COMMENT);
  while (at >= first && data.getUint32(at, true) !== END) at--;
  if (at < first)
    throw new Error(begins(data) ? "it is incomplete: its end is missing" : "it is no zip file");
  const entries = new Map();
  let entry = data.getUint32(at + 16, true);
  for (let left = data.getUint16(at + 10, true); left > 0; left--) {
    if (data.getUint32(entry, true) !== CENTRAL) throw new Error(DAMAGED);
    const [name, extra, comment] = [28, 30, 32].map((place) => data.getUint16(entry + place, true));
    const path = new TextDecoder().decode(new Uint8Array(buffer, entry + 46, name)).replaceAll("\\", "/");
    if (!entries.has(path)) entries.set(path, entry);
    entry += 46 + name + extra + comment;
  }
  return entries;
}

/** @type {(opened: Opened, entry: number) => Promise<Uint8Array>} */
async function decompressed(opened, entry) {
  const { data } = opened;
  const isEncrypted = data.getUint16(entry + 8, true) & 1;
  const method = data.getUint16(entry + 10, true);
  const size = data.getUint32(entry + 20, true);
  const local = data.getUint32(entry + 42, true);
  const begin = local + 30 + data.getUint16(local + 26, true) + data.getUint16(local + 28, true);
  if (isEncrypted) throw new Error("the zip file has a password; save it without one");
  if (method !== 0 && method !== 8)
    throw new Error(`the zip file uses the compression ${method}; 0 and 8 can be read`);
  const packed = new Uint8Array(/** @type {ArrayBuffer} */ (data.buffer), begin, size);
  const content = await taken(opened, method ? inflating(packed) : new Blob([packed]).stream());
  if (checksum(content) !== data.getUint32(entry + 16, true)) throw new Error(DAMAGED);
  return content;
}

/** @type {(packed: Uint8Array<ArrayBuffer>) => ReadableStream<Uint8Array>} */
const inflating = (packed) => new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate-raw"));

/** The bytes of a stream, up to those that are left for all files.
    @type {(opened: Opened, stream: ReadableStream<Uint8Array>) => Promise<Uint8Array>} */
async function taken(opened, stream) {
  const reader = stream.getReader();
  const parts = [];
  let length = 0;
  for (let next = await reader.read(); !next.done; next = await reader.read()) {
    length += next.value.length;
    if (length > opened.left) {
      reader.cancel().catch(() => {});
      throw new Error(
        `the files in the zip file have more than ${opened.most} bytes, the most that are read`,
      );
    }
    parts.push(next.value);
  }
  opened.left -= length;
  const all = new Uint8Array(length);
  let at = 0;
  for (const part of parts) {
    all.set(part, at);
    at += part.length;
  }
  return all;
}

/** A zip file of texts by path, in their order.
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
