// Random texts as the studio exports them: `node documents.mjs FOLDER COUNT` writes N.docx and N.epub.

import "../studio/pure/page.js";
import { writeFileSync } from "node:fs";
import { toDocx } from "#studio/files/todocx.js";
import { toEpub } from "#studio/files/toepub.js";
import { randomOf } from "../studio/pure/trees.js";

const [, , folder, count] = process.argv;
const SIGNS = `* * ** *** \\ a b _ # <&>"' ]]> • 🦊 né 日本 [^1] Chapter`.split(" ");
SIGNS.push(" ", "\t", "\u00a0", "\u2028", "\u0085", "\ufeff", "\u202e", "\n\n[^1]: a", "\n", "\n\n", "\n\n\n");
SIGNS.push(...["# ", "## ", "> ", "- ", "7. ", "***\n", "* * *\n"].map((mark) => `\n${mark}`));

const save = async (name, parts) => writeFileSync(`${folder}/${name}`, await new Blob(await parts).bytes());

const NOTES = "# A[^1]\n\na\n\n# B\n\n- b *c[^2]*\n\n[^1]: # x *y* & <z>\n[^2]: y";
const awake = setInterval(() => {}, 1000); // the timers of page.js keep no program running

for (let i = 0; i < Number(count); i++) {
  const random = randomOf(i);
  const text = i ? Array.from({ length: random.below(80) }, () => random.pick(SIGNS)).join("") : NOTES;
  const about = { id: `${i}`, title: `T & <${i}>`, author: "A & B", language: "de", changed: 0 };
  await save(`${i}.docx`, toDocx(about.title, text));
  await save(`${i}.epub`, toEpub(about, text));
}
clearInterval(awake);
