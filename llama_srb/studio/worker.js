// The service worker: keeps the studio's files, so that the page opens without a connection. The server's
// files are preferred to the kept ones; a page has all of its files from where it comes from itself, so that
// it is of one version. It keeps nothing else and answers no other request.
//
// The server writes VERSION before this line: a hash of all files. So a new version is another worker, which
// keeps its files anew.

const OURS = "llama-srb studio";
const NAME = `${OURS} ${VERSION}`;
const PATIENCE_MS = 3000; // with a server that cannot be reached
const FOLDER = new URL("./", location.href);
const PAGE = new URL("../", FOLDER);

addEventListener("install", (event) => event.waitUntil(keepAll().then(() => skipWaiting())));
addEventListener("activate", (event) => event.waitUntil(removeOld().then(() => clients.claim())));
addEventListener("fetch", (event) => isOurs(event.request) && event.respondWith(answered(event)));

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

async function removeOld() {
  const names = await caches.keys();
  const old = names.filter((name) => name.startsWith(OURS) && name !== NAME);
  await Promise.all(old.map((name) => caches.delete(name)));
}

const withoutServer = new Set(); // the ids of pages that were kept ones

/** A page from the server, if that is quick, else the kept one; a file from where its page is from. */
async function answered(event) {
  const { request, clientId, resultingClientId } = event;
  if (request.mode !== "navigate")
    return withoutServer.has(clientId) ? ((await kept(request)) ?? fetch(request)) : newest(event);
  const page = await newest(event, AbortSignal.timeout(PATIENCE_MS));
  if (page.isKept) withoutServer.add(resultingClientId);
  return page;
}

const kept = async (request) =>
  (await caches.open(NAME)).match(request.url, { ignoreSearch: true, ignoreVary: true });

/** The server's file, which is kept; without one, or with the error of a proxy, the kept one. */
async function newest(event, signal = undefined) {
  const { request } = event;
  const answer = await fetch(request, { signal }).catch(() => null);
  if (answer && answer.status < 500) {
    if (answer.ok) event.waitUntil(keep(request, answer.clone()));
    return answer;
  }
  const own = await kept(request);
  return own ? Object.assign(own, { isKept: true }) : (answer ?? Response.error());
}

/** Keeps a file; that the browser has no room for it is no reason not to answer. */
async function keep(request, answer) {
  try {
    await (await caches.open(NAME)).put(request.url, answer);
  } catch {}
}
