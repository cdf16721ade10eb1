// Only one tab at a time may change a story, so that no tab overwrites another's text. The tabs use messages,
// because the browser's locks do not exist on plain http from another machine.

import { newId } from "./tree.js";

const ANSWER_MS = 150; // of other tabs, which are asked what they have open
const PATIENCE_MS = 3000; // of a tab that wants a story, with one that does not answer
const SETTLED_MS = 300; // until what a page wrote while it went away can be read here
const own = { tab: newId(), since: Date.now(), born: Date.now() };
const channel = new BroadcastChannel("llama-srb studio");
/** @type {string | null} */
let story = null; // that is open here
let held = false; // by this tab
/** Another tab has the story; wants it (false: no); is gone.
    @typedef {{lost(): void, give(): Promise<boolean>, reopen(): void}} Handler */
/** @type {Handler} */
let handler;
/** @type {((value?: any) => void) | null} */
let free = null; // called when the other tab has let go

/** @type {(kind: string, fields?: object) => void} */
const tell = (kind, fields = {}) => channel.postMessage({ kind, story, ...own, ...fields });

/** @type {(other: any) => boolean} */
const earlier = (other) => own.since < other.since || (own.since === other.since && own.tab < other.tab);

/** @type {Record<string, (other: any) => unknown>} */
const HEARD = {
  open(other) {
    if (held && earlier(other)) tell("held", { to: other.tab });
  },
  held({ to }) {
    if (to !== own.tab) return;
    held = false;
    handler.lost();
  },
  async give({ tab }) {
    if (!held || !(await handler.give())) return;
    held = false;
    handler.lost();
    tell("free", { to: tab });
  },
  free: ({ to }) => to === own.tab && free?.(),
  gone: () => held || setTimeout(handler.reopen, SETTLED_MS),
};

channel.onmessage = ({ data }) => {
  if (data.kind === "who") tell("open here", { to: data.tab, held, hidden: document.hidden });
  else if (data.kind === "open here") data.to === own.tab && others?.push(data);
  else if (data.story === story) HEARD[data.kind]?.(data);
};
/** @type {any[] | null} */
let others = null; // the answers of other tabs

/** @type {(tab: any) => any[]} */
const placeOf = ({ hidden, born, tab }) => [hidden, born, tab];

/** Whether the first two values that differ are in order.
    @type {(a: any[], b: any[]) => boolean} */
function isBefore(a, b) {
  const i = a.findIndex((value, i) => value !== b[i]);
  return i >= 0 && a[i] < b[i];
}

/** What this tab may exchange with the server, so that no two tabs do: whether it has its own story, whether
    it is the first tab (of those that are seen, since others wait), and the stories that others have.
    @type {() => Promise<{own: boolean, isFirst: boolean, elsewhere: Set<string>}>} */
export async function duties() {
  /** @type {any[]} */
  const answers = [];
  others = answers;
  tell("who");
  await new Promise((resolve) => setTimeout(resolve, ANSWER_MS));
  others = null;
  return {
    own: held,
    isFirst: !answers.some((other) => isBefore(placeOf(other), placeOf({ ...own, hidden: document.hidden }))),
    elsewhere: new Set(answers.filter((other) => other.held).map((other) => other.story)),
  };
}

addEventListener("pagehide", () => held && tell("gone"));
addEventListener("pageshow", ({ persisted }) => persisted && handler.reopen());

/** @type {(methods: Handler) => void} */
export const watchTabs = (methods) => void (handler = methods);

/** Announces that this tab opens a story; a tab that holds it answers.
    @type {(id: string) => void} */
export function hold(id) {
  if (held && story !== id) tell("gone");
  Object.assign(own, story === id ? {} : { since: Date.now() });
  story = id;
  held = true;
  tell("open");
}

/** Waits until the tab that holds the story has stored and released it. */
export async function take() {
  tell("give");
  await new Promise((resolve) => {
    free = resolve;
    setTimeout(resolve, PATIENCE_MS);
  });
}
