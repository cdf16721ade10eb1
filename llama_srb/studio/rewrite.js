// Rewrites of a passage: candidates in place of a selected text, with what stands before and behind it.
//
// What a request says depends on what the story's model can do: the text between two texts, a chat, or only
// continuations, which the server orders by how likely the text behind is. The old text stays as a branch.

import { endOf, KINDS } from "./lengths.js";
import { model } from "./session.js";
import { textOf } from "./tree.js";

const BEHIND = 60; // words of the text behind that say whether a rewrite leads over to it
const SENT = 4000; // characters on each side, for a model that reads both
const SPARE = 24; // tokens that a rewrite may have more than the old text
const ENDED = /[.!?…。！？]+["'”’»)\]*」』]*$/;
const ENDS = /[.!?…]+["'”’»)\]*]*(?=\s|$)|[。！？]+[」』]*/g;

/** Where a selected text begins and ends: without the space behind it, and with the spaces before it, which
    belong to its first word. null: nothing is selected but spaces. */
export function passageIn(text, from, to) {
  const selected = text.slice(from, to);
  const first = from + selected.length - selected.trimStart().length;
  const [gap] = /[ \t]*$/.exec(text.slice(0, first));
  return selected.trim() ? [first - gap.length, from + selected.trimEnd().length] : null;
}

/** The beginning of a rewrite, with the space that the old text begins with. */
export const beginning = (text, old) => /^[ \t]*/.exec(old)[0] + text.trimStart();

/** The fields of a request for rewrites of `old`, which stands behind a node. */
export function rewriteFields(story, id, old) {
  const before = textOf(story, id);
  const behind = textOf(story).slice(before.length + old.length);
  const room = Math.ceil(old.length / 2) + SPARE;
  const sentences = ENDED.test(old) ? (old.match(ENDS) ?? [old]).length : 0;
  const kind = sentences ? KINDS.sentences : KINDS.tokens;
  const length = endOf({ kind, count: sentences }, room);
  const plain = { prompt: before, continue: undefined };
  return { ...plain, ...length, ...WAYS[wayOf(model()?.meta)](before, old, behind) };
}

const wayOf = (meta) => (meta?.infill ? "infill" : meta?.chat_template ? "chat" : "plain");

const WAYS = {
  infill: (before, old, behind) => ({
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
  plain: (before, old, behind) => {
    const text = (behind.match(/\s*\S+/g) ?? []).slice(0, BEHIND).join("");
    return text ? { rank_by: { following: { text } } } : {};
  },
};

const instruction = (before, old, behind) =>
  "Rewrite one passage of a story in other words, so that it fits between the text before it and the text " +
  `behind it. Answer with the new passage only.\n\nBefore:\n${before.slice(-SENT)}\n\nBehind:\n` +
  `${behind.slice(0, SENT)}\n\nThe passage:\n${old.trim()}`;
