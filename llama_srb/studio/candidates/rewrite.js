// Rewrites of a passage: candidates in place of a selected text, with what stands before and behind it.
//
// What a request says depends on what the story's model can do: the text between two texts, a chat, or only
// continuations, which the server orders by how likely the text behind is. The old text stays as a branch.

import { unescaped } from "../files/emphasis.js";
import { endOf, KINDS } from "../settings/lengths.js";
import { model } from "../story/session.js";
import { childrenOf, isPartOf, pathTo, tailOf, textFrom, textOf } from "../story/tree.js";

const BEHIND = 60; // words of the text behind that say whether a rewrite leads over to it
const SENT = 4000; // characters on each side, for a model that reads both
const SPARE = 24; // tokens that a rewrite may have more than the old text
const ENDED = /[.!?…。！？]+["'”’»)\]*」』]*$/;

/** Where a selected text begins and ends: without the space behind it, and with the spaces before it, which
    belong to its first word. null: nothing is selected but spaces. */
export function passageIn(text, from, to) {
  const selected = text.slice(from, to);
  const first = from + selected.length - selected.trimStart().length;
  const [gap = ""] = /[ \t]*$/.exec(text.slice(0, first)) ?? [];
  return selected.trim() ? [first - gap.length, from + selected.trimEnd().length] : null;
}

/** Gives the beginning of a rewrite, text as well as tokens, the space that the passage begins with. */
export function beginLike(passage, node) {
  const [gap = ""] = /^[ \t]*/.exec(passage) ?? [];
  const spaced = (text) => gap + text.trimStart();
  node.text = spaced(node.text);
  const first = node.tokens?.findIndex(({ text }) => text.trim());
  const begin = ({ text, top, ...token }, i) => ({
    ...token,
    text: i < first ? "" : spaced(text),
    top: top?.map((one) => ({ ...one, text: spaced(one.text) })),
  });
  node.tokens = node.tokens?.map((token, i) => (i > first ? token : begin(token, i)));
}

/** The fields of a request for rewrites of a passage that stands behind a node. */
export function rewriteFields(story, id, passage, n = 1) {
  const before = unescaped(textOf(story, id));
  const behind = unescaped(behindPassage(story, id, passage));
  const plain = { prompt: before, continue: undefined };
  const way = WAYS[wayOf(model()?.meta)](before, unescaped(passage), behind, n);
  return { ...plain, ...lengthLike(passage), ...way };
}

/** The text behind a passage that stands behind a node as it was, or rewritten; all that is behind the node,
    if something else stands there. */
export function behindPassage(story, id, passage) {
  const tail = tailOfPassage(story, id, passage);
  if (tail !== undefined) return textFrom(story, tail);
  const rest = textOf(story).slice(textOf(story, id).length);
  return rest.slice(rest.startsWith(passage) ? passage.length : 0);
}

/** The node that begins the text behind such a passage; null: none, it is the end of the text. undefined: it
    ends within a node, or does not stand there, as when the writer has put something else in its place. */
export function tailOfPassage(story, id, passage) {
  const path = pathTo(story).slice(pathTo(story, id).length);
  const version = path[0]?.replaces;
  if (version === passage) return path[lastPart(path) + 1] ?? null;
  let text = "";
  const last = path.findIndex((node) => (text += node.text).length >= passage.length);
  if (text === passage) return path[last + 1] ?? null;
  if (!version) return undefined;
  for (const one of childrenOf(story, id)) {
    const tail = one.replaces === passage && tailOf(story, one.id); // of another passage is the version
    if (tail) return tail;
  }
  return undefined;
}

/** Where the last part of the first node of a path is, which may have been cut since. */
const lastPart = (path) => path.findLastIndex(({ id }) => isPartOf(id, path[0].id));

// ---- lengths -----------------------------------------------------------------------------------------

/** The fields for a text as long as a passage: as many sentences, if it ends with one, else tokens. `written`
    of it is there already. */
export function lengthLike(passage, written = "") {
  const isWhole = ENDED.test(passage);
  const count = Math.max(1, sentencesIn(passage) - sentencesIn(written));
  const kind = isWhole ? KINDS.sentences : KINDS.tokens;
  return { end: undefined, ...endOf({ kind, count }, Math.ceil(passage.length / 2) + SPARE) };
}

const MARKS = /([^\s.!?…。！？]*)([.!?…。！？]+)(["'”’»)\]*」』]*)(\s*)/g;
const WIDE = /[。！？]$/; // no space stands behind these
const GOES_ON = /^\p{Ll}/u;
const QUOTE_GOES_ON = /^[とっ]/;
const BEFORE_NAMES =
  /(?<!\p{L})(?:mr|mrs|ms|mx|dr|prof|st|rev|gen|col|capt|lt|sgt|maj|gov|sen|hon|mt|messrs|mme|mlle|vs)$/iu;
const BEFORE_NUMBERS =
  /(?<!\p{L})(?:nos?|nr|vol|ch|fig|pp?|art|sec|jan|feb|mar|apr|jun|jul|aug|sept?|oct|nov|dec)$/iu;
const INITIAL = /(?<!\p{L})(?!I)\p{Lu}$/u;

/** How many sentences end in a text, by the rules of the server's `end`: also at a blank line. */
function sentencesIn(text) {
  const ends = [...text.matchAll(MARKS)].filter((found) => endsAt(found, text));
  const untitled = text
    .split(/\n\s*\n/)
    .slice(0, -1)
    .filter((part) => part.trim() && !ENDED.test(part));
  return ends.length + untitled.length;
}

/** Whether a sentence ends at these marks, closing quotes and spaces. */
function endsAt({ 0: all, 1: word, 2: marks, 3: quotes, 4: spaces, index }, text) {
  const behind = text.slice(index + all.length);
  if (!behind || spaces.includes("\n")) return true;
  if (!spaces && !WIDE.test(marks)) return false;
  if (GOES_ON.test(behind) || (quotes && QUOTE_GOES_ON.test(behind))) return false;
  if (marks !== "." || quotes) return true;
  if (BEFORE_NAMES.test(word) || INITIAL.test(word)) return false;
  return !(/^\d/.test(behind) && BEFORE_NUMBERS.test(word));
}

// ---- requests ----------------------------------------------------------------------------------------

const wayOf = (meta) => (meta?.infill ? "infill" : meta?.chat_template ? "chat" : "plain");

const WAYS = {
  infill: (before, _old, behind) => ({
    prompt: before.slice(-SENT),
    suffix: behind.slice(0, SENT),
    story: undefined,
    token_healing: undefined,
  }),
  chat: (before, old, behind) => ({
    messages: [{ role: "user", content: instruction(before, old, behind) }],
    enable_thinking: false,
    prompt: undefined,
    story: undefined,
    token_healing: undefined,
  }),
  plain: (before, old, behind, n) => {
    const text = (behind.match(/\s*\S+/g) ?? []).slice(0, BEHIND).join("");
    return {
      ...(/^[ \t]/.test(old) && { prompt: `${before} `, token_healing: true }), // another word begins
      ...(text && n > 1 && { rank_by: { following: { text } } }),
    };
  },
};

const instruction = (before, old, behind) =>
  "Rewrite one passage of a story in other words, so that it fits between the text before it and the text " +
  `behind it. Answer with the new passage only.\n\nBefore:\n${before.slice(-SENT)}\n\nBehind:\n` +
  `${behind.slice(0, SENT)}\n\nThe passage:\n${old.trim()}`;
