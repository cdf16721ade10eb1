// The server, as the studio sees it: JSON calls, and the event stream of a request.

export class ApiError extends Error {
  constructor(status, error) {
    super(error?.message ?? `the server answers ${status}`);
    this.status = status;
    this.param = error?.param ?? null;
    this.code = error?.code ?? null;
  }
}

const KEY = "studio.key";
export const key = () => localStorage.getItem(KEY) ?? "";
export const setKey = (value) => (value ? localStorage.setItem(KEY, value) : localStorage.removeItem(KEY));

export async function send(method, path, body, signal, more = {}) {
  const headers = key() ? { ...more, Authorization: `Bearer ${key()}` } : { ...more };
  if (body !== undefined) headers["Content-Type"] = "application/json";
  const response = await fetch(path, { method, headers, signal, body: body && JSON.stringify(body) });
  if (response.ok) return response;
  const answer = await response.json().catch(() => null);
  throw new ApiError(response.status, answer?.error);
}

export const call = async (method, path, body, signal) => (await send(method, path, body, signal)).json();

/** The events of a request, in the batches in which they arrive; ApiError when it is refused. */
export async function* events(body, signal, path = "v1/events") {
  const response = await send("POST", path, body, signal);
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let held = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const frames = (held + value).split("\n\n");
    held = frames.pop();
    const batch = frames
      .filter((frame) => frame.startsWith("data: "))
      .map((frame) => JSON.parse(frame.slice(6)));
    if (batch.length) yield batch;
    if (batch.at(-1)?.event === "done") return; // the end of the body may take its time
  }
}
