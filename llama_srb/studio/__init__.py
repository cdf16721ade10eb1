"""The studio: a web page to write with n candidates. Its files, read once, and the headers that guard them.

Plain HTML, CSS and ES modules, no build step; vendor/ is written by scripts/studio_libraries.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from importlib import resources
from importlib.resources.abc import Traversable

TYPES = {
    ".html": "text/html",
    ".css": "text/css",
    ".js": "text/javascript",
    ".svg": "image/svg+xml",
    ".webmanifest": "application/manifest+json",
}

# What a model writes is put into text nodes only; should that ever fail, nothing of it may run or be fetched.
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "manifest-src 'self'; worker-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS: Mapping[str, str] = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
    "Service-Worker-Allowed": "../",  # worker.js serves the page, too, which is above its own folder
}


@dataclass(frozen=True, slots=True)
class File:
    """One file as it is answered."""

    content_type: str
    data: bytes
    etag: str


def files() -> dict[str, File]:
    """All files by their path: "app.js", "vendor/htm.js", …; "files.json" has the paths, for worker.js.

    worker.js begins with a hash of all files, so that the browser takes a new version for another worker.
    """
    found = {path: _file(path, entry.read_bytes()) for path, entry in _walk(resources.files(__name__), "")}
    version = sha256("".join(found[path].etag for path in sorted(found)).encode()).hexdigest()[:32]
    worker = f'const VERSION = "{version}";\n'.encode() + found["worker.js"].data
    names = json.dumps(sorted(found)).encode()
    return {**found, "worker.js": _file("worker.js", worker), "files.json": _file("files.json", names)}


def _walk(folder: Traversable, under: str) -> list[tuple[str, Traversable]]:
    found: list[tuple[str, Traversable]] = []
    for entry in folder.iterdir():
        path = under + entry.name
        if entry.is_dir():
            found += _walk(entry, path + "/")
        elif _suffix(path) in TYPES:
            found.append((path, entry))
    return found


def _suffix(path: str) -> str:
    return path[path.rfind(".") :]


def _file(path: str, data: bytes) -> File:
    return File(TYPES.get(_suffix(path), "application/json"), data, sha256(data).hexdigest()[:32])
