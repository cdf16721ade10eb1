// The service worker: keeps the studio's files, so that the page opens without a connection. A file of the
// server is preferred to a kept one. It keeps nothing else and answers no other request.

const NAME = "llama-srb studio";
const PATIENCE_MS = 3000; // with a server that cannot be reached
const FOLDER = new URL("./", location.href);
const PAGE = new URL("../", FOLDER);

addEventListener("install", (event) => event.waitUntil(keepAll().then(() => skipWaiting())));
addEventListener("activate", (event) => event.waitUntil(clients.claim()));
addEventListener("fetch", (event) => isOurs(event.request) && event.respondWith(newest(event.request)));

async function keepAll() {
  const names = await (await fetch("files.json")).json();
  const cache = await caches.open(NAME);
  await cache.addAll([PAGE, ...names.map((name) => new URL(name, FOLDER))]);
}

function isOurs({ method, url }) {
  const { origin, pathname } = new URL(url);
  const isFile = pathname === PAGE.pathname || pathname.startsWith(FOLDER.pathname);
  return method === "GET" && origin === location.origin && isFile;
}

/** The server's file, which is kept; without an answer the kept one. */
async function newest(request) {
  const cache = await caches.open(NAME);
  try {
    const answer = await fetch(request, { signal: AbortSignal.timeout(PATIENCE_MS) });
    if (answer.ok) await cache.put(request.url, answer.clone());
    return answer;
  } catch {
    return (await cache.match(request.url, { ignoreSearch: true, ignoreVary: true })) ?? Response.error();
  }
}
