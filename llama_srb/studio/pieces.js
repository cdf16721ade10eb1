// A long text in pieces that end with a line, so that a change costs the time of one piece.

const LEAST = 2000; // characters; a piece ends with the first line that ends behind them
let serial = 0;

/** Cuts a list of [kind, text] into pieces, each a list of the same form. Other kinds of parts, whose second
    value is no text, stay between their neighbours. */
export function piecesOf(parts, isText = () => true) {
  const pieces = [[]];
  let length = 0;
  for (const [kind, value] of parts) {
    if (!isText(kind)) pieces.at(-1).push([kind, value]);
    for (let rest = isText(kind) ? value : ""; rest; ) {
      const line = rest.indexOf("\n", Math.max(0, LEAST - length));
      const end = line < 0 ? rest.length : line + 1;
      pieces.at(-1).push([kind, rest.slice(0, end)]);
      length += end;
      if (line >= 0) {
        pieces.push([]);
        length = 0;
      }
      rest = rest.slice(end);
    }
  }
  return pieces;
}

/** Makes a function that calls `make` for each piece that it was not called with the last time; `make` gets a
    key, too, which is the piece's own for as long as it does not change. */
export function remembering(make) {
  let known = new Map();
  return (pieces) => {
    const next = new Map();
    const made = pieces.map((piece) => {
      const sign = piece.flat().join("\u0001");
      const one = known.get(sign)?.pop() ?? make(piece, ++serial);
      if (next.has(sign)) next.get(sign).push(one);
      else next.set(sign, [one]);
      return one;
    });
    known = next;
    return made;
  };
}

/** Makes a function that counts the words of each of some texts, and again only where they have changed. It
    remembers pieces of the last texts only, since a piece keeps the whole text that it is of. */
export function counting() {
  let known = new Map(); // piece → words
  return (texts) => {
    const next = new Map();
    const wordsOf = (piece) => {
      const count = known.get(piece) ?? (piece.match(/\S+/g) ?? []).length;
      next.set(piece, count);
      return count;
    };
    const counts = texts.map((text) =>
      piecesOf([["", text]]).reduce((sum, piece) => sum + wordsOf(piece[0]?.[1] ?? ""), 0),
    );
    known = next;
    return counts;
  };
}
