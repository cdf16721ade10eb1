// Emphasis in a line of text, as in Markdown: *italic*, **bold**, # headings. Its signs stay in the text.
//
// A * that is not closed in its line is a *, and so is one behind a \. A _ is always a _.

/** @typedef {[kind: string, from: number, to: number]} Emphasis "em", "strong", "heading", or "sign" */

const HEADING = /^#{1,6} +(?=\S)/;

/** What is emphasized in a line, and the signs of that.
    @type {(line: string) => Emphasis[]} */
export function emphasisOf(line) {
  /** @type {Emphasis[]} */
  const found = [];
  const [marks] = HEADING.exec(line) ?? [""];
  if (marks) found.push(["heading", 0, line.length], ["sign", 0, marks.length]);
  /** @type {{at: number, left: number}[]} */
  const open = []; // runs of * that may begin something, with how many are left of each
  for (const { 0: run, index } of line.matchAll(/\\\*|\*+/g)) {
    if (run.startsWith("\\")) continue;
    let [at, left] = [index, run.length];
    while (left && open.length && /\S/.test(line[index - 1] ?? " ")) {
      const first = open[open.length - 1];
      const signs = Math.min(first.left, left, 2);
      const begin = first.at + first.left;
      found.push(
        [signs === 2 ? "strong" : "em", begin, at],
        ["sign", begin - signs, begin],
        ["sign", at, at + signs],
      );
      first.left -= signs;
      if (!first.left) open.pop();
      at += signs;
      left -= signs;
    }
    if (left && /\S/.test(line[index + run.length] ?? " ")) open.push({ at, left });
  }
  return found;
}
