// How the lines that are seen look: each in its own direction, with its emphasis.

import { shownIn } from "../files/emphasis.js";
import { Decoration, ViewPlugin } from "../vendor/codemirror.js";

const LINE = Decoration.line({ attributes: { dir: "auto" } });
const KINDS = Object.fromEntries(
  ["em", "strong", "heading", "sign"].map((name) => [name, Decoration.mark({ class: name })]),
);

function* ranges({ state, visibleRanges }) {
  for (const { from, to } of visibleRanges)
    for (let at = from; at <= to; ) {
      const line = state.doc.lineAt(at);
      yield LINE.range(line.from);
      for (const [kind, begin, end] of shownIn(line.text))
        if (end > begin) yield KINDS[kind].range(line.from + begin, line.from + end);
      at = line.to + 1;
    }
}

export const looks = ViewPlugin.define(
  (view) => ({
    drawn: Decoration.set([...ranges(view)], true),
    update({ docChanged, viewportChanged, view }) {
      if (docChanged || viewportChanged) this.drawn = Decoration.set([...ranges(view)], true);
    },
  }),
  { decorations: ({ drawn }) => drawn },
);
