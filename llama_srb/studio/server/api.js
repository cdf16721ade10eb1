// The server, as the studio sees it: JSON calls, and the event stream of a request.

/** An event of a stream: its kind in `event`, which says what else it has (docs/api.md).
    @typedef {Record<string, any> & {event: string}} StreamEvent */

/** A request that the server has refused, or an error event.
    @typedef {{message?: string, param?: string | null, code?: string | null}} Fault */

export class ApiError extends Error {
  /** @param {number} status  @param {Fault} [error] */
  constructor(status, error) {
    super(error?.message ?? `the server answers ${status}`);
    this.status = status;
    this.param = error?.param ?? null;
    this.code = error?.code ?? null;
  }
}

const ANSWER_MS = 60_000; // for a short answer: a line that has died, as in a sleep, says nothing
const KEY = "studio.key";
export const key = () => localStorage.getItem(KEY) ?? "";
/** @type {(value: string) => void} */
export const setKey = (value) => (value ? localStorage.setItem(KEY, value) : localStorage.removeItem(KEY));

/** The server's answer; ApiError when it refuses. `more`: headers.
    @type {(method: string, path: string, body?: object, signal?: AbortSignal,
      more?: Record<string, string>) => Promise<Response>} */
export async function send(method, path, body, signal, more = {}) {
  const headers = { ...more };
  if (key()) headers.Authorization = `Bearer ${key()}`;
  if (body !== undefined) headers["Content-Type"] = "application/json";
  const response = await fetch(path, {
    method,
    headers,
    signal,
    body: body === undefined ? body : JSON.stringify(body),
  });
  if (response.ok) return response;
  const answer = await response.json().catch(() => null);
  throw new ApiError(response.status, answer?.error);
}

/** Whether an error says that the server, or the way to it, does not answer.
    @type {(error: Error) => boolean} */
export const isAway = (error) => error instanceof TypeError || error.name === "TimeoutError"; // of fetch

/** The JSON of an answer. Without a signal a GET or a DELETE, whose answers are short, is given up in time.
    @type {(method: string, path: string, body?: object, signal?: AbortSignal) => Promise<any>} */
export async function call(method, path, body, signal) {
  const bound = method === "POST" ? undefined : AbortSignal.timeout(ANSWER_MS);
  return (await send(method, path, body, signal ?? bound)).json();
}

/** The events of a request, in the batches in which they arrive; ApiError when it is refused.
    @type {(body: object, signal?: AbortSignal, path?: string) => AsyncGenerator<StreamEvent[], void>} */
export async function* events(body, signal, path = "v1/events") {
  const response = await send("POST", path, body, signal);
  const bytes = /** @type {ReadableStream} */ (response.body);
  const reader = bytes.pipeThrough(new TextDecoderStream()).getReader();
  let held = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const frames = (held + value).split("\n\n");
    held = frames.pop() ?? "";
    /** @type {StreamEvent[]} */
    const batch = frames
      .filter((frame) => frame.startsWith("data: "))
      .map((frame) => JSON.parse(frame.slice(6)));
    if (batch.length) yield batch;
    if (batch.at(-1)?.event === "done") return; // the end of the body may take its time
  }
}
