// Zip files: what is written is read again, and a damaged one is refused at once.

import assert from "node:assert/strict";
import { test } from "node:test";
import { deflateRawSync } from "node:zlib";

import { unzipped, zipped } from "#studio/files/zip.js";
import { randomOf } from "./trees.js";

const readZipped = async (buffer, path) => {
  const bytes = await unzipped(buffer).read(path);
  return bytes && new TextDecoder().decode(bytes);
};
const bytesOf = (parts) => new Blob(parts).arrayBuffer();
const FILES = { "a/é.txt": "Once upon a 🦊\n".repeat(20), empty: "", "b.xml": "<b/>" };

/** A zip of these files with the first one compressed, as other programs write it. */
async function deflated(files, packed = deflateRawSync(Object.values(files)[0])) {
  const data = new Uint8Array(await bytesOf(zipped(files)));
  const [[path, text]] = Object.entries(files);
  const [name, plain] = [path, text].map((one) => Buffer.byteLength(one));
  const begin = 30 + name;
  const made = Buffer.concat([data.subarray(0, begin), packed, data.subarray(begin + plain)]);
  const shift = plain - packed.length;
  const end = made.length - 22;
  const central = made.readUInt32LE(end + 16) - shift;
  made.writeUInt32LE(central, end + 16);
  made.writeUInt16LE(8, central + 10);
  made.writeUInt32LE(packed.length, central + 20);
  for (let at = central + 46 + name; at < end; at += 46 + made.readUInt16LE(at + 28))
    made.writeUInt32LE(made.readUInt32LE(at + 42) - shift, at + 42);
  return made.buffer.slice(made.byteOffset, made.byteOffset + made.length);
}

const BOTH = [await bytesOf(zipped(FILES)), await deflated(FILES)];

test("each file that was written is read again", async () => {
  for (const buffer of BOTH) {
    for (const [path, text] of Object.entries(FILES)) assert.equal(await readZipped(buffer, path), text);
    assert.equal(await readZipped(buffer, "c"), null);
  }
});

test("a comment behind the last record is no damage", async () => {
  const [buffer] = BOTH;
  for (const length of [1, 22, 65_535])
    assert.equal(await readZipped(await bytesOf([buffer, new Uint8Array(length)]), "b.xml"), FILES["b.xml"]);
  const far = await bytesOf([buffer, new Uint8Array(70_000)]);
  await assert.rejects(readZipped(far, "b.xml"), { message: "it is incomplete: its end is missing" });
});

test("a zip file that is cut at any byte is refused", async () => {
  for (const buffer of BOTH)
    for (let end = 0; end < buffer.byteLength; end++)
      await assert.rejects(readZipped(buffer.slice(0, end), "a/é.txt"), {
        message: end < 4 ? "it is no zip file" : "it is incomplete: its end is missing",
      });
});

test("a zip file without some of its bytes is refused as damaged, or read as it was", async () => {
  for (const buffer of BOTH)
    for (let from = 0; from < buffer.byteLength - 22; from++)
      await readOrRefused(await bytesOf([buffer.slice(0, from), buffer.slice(from + 1 + (from % 40))]));
});

test("a zip file with any byte changed is refused as damaged, or read as it was", async () => {
  for (const buffer of BOTH)
    for (let at = 0; at < buffer.byteLength; at++)
      for (const bits of [1, 0xff]) {
        const changed = new Uint8Array(buffer.slice());
        changed[at] ^= bits;
        await readOrRefused(changed.buffer);
      }
});

const SAID = new RegExp(
  `^(${[
    "it is no zip file",
    "it is incomplete: its end is missing",
    "the zip file is damaged",
    "the zip file has a password; save it without one",
    "the zip file uses the compression \\d+; 0 and 8 can be read",
  ].join("|")})$`,
);

/** A text is there as it was, or not at all. */
async function readOrRefused(buffer) {
  const path = "a/é.txt";
  const text = await readZipped(buffer, path).catch((error) => {
    assert.match(error.message, SAID);
    return null;
  });
  if (text !== null) assert.equal(text, FILES[path]);
}

test("random texts are read as they were written", async () => {
  for (let seed = 1; seed <= 40; seed++) {
    const random = randomOf(seed);
    const files = Object.fromEntries([1, 2, 3].map((i) => [`${i}${random.words(1)}`, random.words(9)]));
    for (const [path, text] of Object.entries(files))
      assert.equal(await readZipped(await bytesOf(zipped(files)), path), text);
  }
});

test("a file that is too large is refused while it is read", async () => {
  const large = await deflated({ "a.xml": "" }, deflateRawSync(Buffer.alloc(129e6)));
  await assert.rejects(readZipped(large, "a.xml"), /have more than 128000000 bytes/);
  const [a] = Object.keys(FILES);
  const few = unzipped(BOTH[1], 500); // bytes of all files that are read, the same one twice
  assert.equal((await few.read(a)).length, 340);
  await assert.rejects(few.read(a), /have more than 500 bytes/);
});
