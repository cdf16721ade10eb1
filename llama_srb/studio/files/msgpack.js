// MessagePack as msgpackr writes it: with records, whose names are said once, and with all short strings at
// the end. It reads what NovelAI's documents have; of dates and the like nothing is kept.

const RECORD = 0x72;
const STRINGS = 0x62;
const WRAPPED = new Set([20, 30, 31, 40, 41, 42, 0x73]); // a value follows, that of a class or a set
const LABEL = 0x69; // a value that is named again by NAMED
const NAMED = 0x70;
const DEEPEST = 200;
const DAMAGED = "its document is damaged";

/** The value in some bytes; maps are Maps. Error if they are damaged.
    @type {(bytes: Uint8Array) => any} */
export function unpacked(bytes) {
  try {
    return new Reader(bytes).value();
  } catch (error) {
    throw error instanceof RangeError ? new Error(DAMAGED) : error; // bytes that are not there
  }
}

/** @typedef {"Uint8" | "Uint16" | "Uint32" | "Int8" | "Int16" | "Int32" | "Float32" | "Float64" |
      "BigInt64" | "BigUint64"} Kind of a number */

class Reader {
  /** @param {Uint8Array} bytes */
  constructor(bytes) {
    this.bytes = bytes;
    this.data = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
    this.at = 0;
    this.depth = 0;
    /** @type {Map<number, string[]>} */
    this.records = new Map();
    /** @type {Map<number, any>} */
    this.labels = new Map();
    /** @type {[string, string] | null} */
    this.strings = null; // with and without characters of two bytes
    this.used = [0, 0];
  }

  /** @type {() => any} */
  value() {
    if (++this.depth > DEEPEST) throw new Error(DAMAGED);
    const made = this.read(this.number("Uint8"));
    this.depth--;
    return made;
  }

  /** @type {(token: number) => any} */
  read(token) {
    const record = this.records.get(token);
    if (record) return this.object(record);
    if (token < 0x80) return token;
    if (token < 0x90) return this.map(token & 15);
    if (token < 0xa0) return this.array(token & 15);
    if (token < 0xc0) return this.string(token & 31);
    if (token >= 0xe0) return token - 256;
    const found = READERS[token];
    if (!found) throw new Error(DAMAGED);
    return found(this);
  }

  /** @type {(kind: Kind) => number} */
  number(kind) {
    const value = Number(this.data[`get${kind}`](this.at));
    this.at += Number(/\d+/.exec(kind)?.[0]) / 8;
    return value;
  }

  /** @type {(length: number) => Uint8Array} */
  take(length) {
    if (length > this.bytes.length - this.at) throw new Error(DAMAGED);
    this.at += length;
    return this.bytes.subarray(this.at - length, this.at);
  }

  /** @type {(length: number) => string} */
  string(length) {
    return new TextDecoder().decode(this.take(length));
  }

  /** @type {(length: number) => any[]} */
  array(length) {
    if (length > this.bytes.length) throw new Error(DAMAGED);
    return Array.from({ length }, () => this.value());
  }

  /** @type {(length: number) => Map<any, any>} */
  map(length) {
    if (length > this.bytes.length) throw new Error(DAMAGED);
    const made = new Map();
    for (let i = 0; i < length; i++) {
      const key = this.value();
      made.set(key, this.value());
    }
    return made;
  }

  /** @type {(keys: string[]) => Map<string, any>} */
  object(keys) {
    return new Map(keys.map((key) => [key, this.value()]));
  }

  /** A string of those at the end.
      @type {() => string} */
  bundled() {
    const length = this.value();
    if (!this.strings || !Number.isInteger(length)) throw new Error(DAMAGED);
    const which = length > 0 ? 1 : 0;
    const begin = this.used[which];
    this.used[which] += Math.abs(length);
    return this.strings[which].slice(begin, this.used[which]);
  }

  /** @type {(length: number) => any} */
  extension(length) {
    const type = this.number("Uint8");
    if (type === RECORD && length <= 2) return this.record(length);
    const begin = this.at;
    const data = this.take(length);
    if (type === STRINGS && length === 4) {
      const after = this.at;
      this.at = begin + this.data.getUint32(begin);
      this.strings = [String(this.value()), String(this.value())];
      this.used = [0, 0];
      this.at = after;
      return this.value();
    }
    if (WRAPPED.has(type) && length === 1) return this.value();
    if (type === NAMED && length === 4) return this.labels.get(this.data.getUint32(begin)) ?? null;
    if (type !== LABEL || data.length !== 4) return null;
    const made = this.value();
    this.labels.set(this.data.getUint32(begin), made);
    return made;
  }

  /** @type {(length: number) => any} */
  record(length) {
    const id = this.take(length)[0];
    const keys = this.value();
    if (!Array.isArray(keys)) throw new Error(DAMAGED);
    this.records.set(id, keys.map(String));
    return this.object(keys.map(String));
  }
}

/** @type {Record<number, (reader: Reader) => any>} */
const READERS = {
  192: () => null,
  193: (one) => one.bundled(),
  194: () => false,
  195: () => true,
  196: (one) => one.take(one.number("Uint8")),
  197: (one) => one.take(one.number("Uint16")),
  198: (one) => one.take(one.number("Uint32")),
  199: (one) => one.extension(one.number("Uint8")),
  200: (one) => one.extension(one.number("Uint16")),
  201: (one) => one.extension(one.number("Uint32")),
  202: (one) => one.number("Float32"),
  203: (one) => one.number("Float64"),
  204: (one) => one.number("Uint8"),
  205: (one) => one.number("Uint16"),
  206: (one) => one.number("Uint32"),
  207: (one) => one.number("BigUint64"),
  208: (one) => one.number("Int8"),
  209: (one) => one.number("Int16"),
  210: (one) => one.number("Int32"),
  211: (one) => one.number("BigInt64"),
  212: (one) => one.extension(1),
  213: (one) => one.extension(2),
  214: (one) => one.extension(4),
  215: (one) => one.extension(8),
  216: (one) => one.extension(16),
  217: (one) => one.string(one.number("Uint8")),
  218: (one) => one.string(one.number("Uint16")),
  219: (one) => one.string(one.number("Uint32")),
  220: (one) => one.array(one.number("Uint16")),
  221: (one) => one.array(one.number("Uint32")),
  222: (one) => one.map(one.number("Uint16")),
  223: (one) => one.map(one.number("Uint32")),
};
