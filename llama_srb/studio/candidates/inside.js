// Looking inside a candidate: its tokens coloured by surprise, their entropy, the alternatives of one.

import { html, useEffect, useRef, useState, visible } from "../ui/ui.js";
import { branch } from "./asking.js";

const STEPS_OF_COLOUR = 6;

/** 0 for a certain token to 5 for a surprise. */
const surprise = (logprob) => Math.min(STEPS_OF_COLOUR - 1, Math.floor(-(logprob ?? 0) / 0.9));

/** Entropy in nats over the alternatives that the server sent; all other tokens count as one. */
function entropy({ top }) {
  const p = (top ?? []).map(({ logprob }) => Math.exp(logprob));
  const rest = Math.max(0, 1 - p.reduce((sum, x) => sum + x, 0));
  return [...p, rest].reduce((sum, x) => (x > 0 ? sum - x * Math.log(x) : sum), 0);
}

export function Tokens({ node }) {
  const [open, setOpen] = useState(null);
  const bar = useRef();
  const { tokens } = node;
  useEffect(() => bar.current.style.setProperty("background", strip(tokens)), [tokens.length]);
  return html`<div class="entropy" ref=${bar} title="Entropy, token by token" aria-hidden="true"></div>
    <div class="text" dir="auto" onKeyDown=${onKey}>${tokens.map(
      (token, i) => html`<span role="button" key=${i}
      class=${`token surprise-${surprise(token.logprob)}`} tabindex=${i === (open ?? 0) ? 0 : -1}
      title=${likely(token)} aria-expanded=${String(open === i)}
      onClick=${() => setOpen(open === i ? null : i)}>${token.text}</span>
      ${open === i && html`<${Alternatives} node=${node} i=${i} done=${() => setOpen(null)} />`}`,
    )}</div>`;
}

/** Arrows go from token to token, Enter opens one. */
function onKey(event) {
  if (!event.target.matches(".token")) return;
  const all = [...event.currentTarget.querySelectorAll(".token")];
  const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
  if (!step && event.key !== "Enter" && event.key !== " ") return;
  event.preventDefault();
  event.stopPropagation();
  if (step) all[all.indexOf(event.target) + step]?.focus();
  else event.target.click();
}

function strip(tokens) {
  const stops = tokens.map((token, i) => {
    const strength = Math.round(Math.min(1, entropy(token) / 3) * 100);
    const colour = `color-mix(in srgb, var(--warm) ${strength}%, transparent)`;
    return `${colour} ${(100 * i) / tokens.length}% ${(100 * (i + 1)) / tokens.length}%`;
  });
  return `linear-gradient(to right, ${stops.join(", ")})`;
}

/** A token with its likeliest alternatives, for its tooltip. */
const likely = ({ text, logprob, top = [] }) =>
  [{ text, logprob }, ...top.filter((other) => other.text !== text)]
    .map((one) => `${visible(one.text)}  ${percent(one.logprob)}`)
    .join("\n");

const percent = (logprob) => `${(100 * Math.exp(logprob ?? 0)).toFixed(1)} %`;

function Alternatives({ node, i, done }) {
  const { top = [], text } = node.tokens[i];
  return html`<span class="alternatives" role="group" aria-label=${`Instead of ${text}`}>
    ${top.map(
      (one) => html`<button type="button" disabled=${one.text === text}
      onClick=${({ currentTarget }) => {
        currentTarget.closest(".card").focus();
        done();
        branch(node.id, i, one);
      }}><span>${visible(one.text)}</span>
      <span>${percent(one.logprob)}</span></button>`,
    )}
    ${!top.length && "no alternatives were asked for"}</span>`;
}
