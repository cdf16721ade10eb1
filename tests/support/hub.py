"""A hub for tests, on loopback: the routes of Hugging Face's by which huggingface_hub finds and reads files.

A file's address redirects to a second port, as the hub's does to its store, which may cut connections.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from hashlib import sha256

from aiohttp import web

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@dataclass
class Hub:
    """Repositories and what was asked. cuts: bytes after which the next answers of the store end early."""

    repositories: dict[str, dict[str, bytes]] = field(default_factory=dict)
    token: str | None = None  # wanted by each request
    gated: bool = False
    checksums: dict[str, str] = field(default_factory=dict)  # of files, instead of the right ones
    sizes: dict[str, object] = field(default_factory=dict)  # the same
    listing: bytes | None = None  # instead of the list of files
    cuts: list[int] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)
    stored: list[web.BaseRequest] = field(default_factory=list)  # what the store was asked
    url: str = ""
    store: str = ""

    @property
    def ranges(self) -> list[str | None]:
        return [request.headers.get("Range") for request in self.stored]

    async def front(self, request: web.BaseRequest) -> web.StreamResponse:
        """The list of files, or a redirect to the store."""
        self.asked.append(request.path)
        if self.token and request.headers.get("Authorization") != f"Bearer {self.token}":
            return _refusal(401, "GatedRepo" if self.gated else "RepoNotFound")
        head, *rest = request.path.strip("/").split("/")
        name = "/".join(rest[1:3]) if head == "api" else "/".join([head, *rest[:1]])
        if (files := self.repositories.get(name)) is None:
            return _refusal(404, "RepoNotFound")
        if head == "api" and self.listing is not None:
            return web.Response(body=self.listing, content_type="application/json")
        if head == "api":
            return web.json_response({"id": name, "sha": COMMIT, "siblings": self._siblings(files)})
        return web.Response(status=302, headers={"Location": f"{self.store}{request.path}"})

    def _siblings(self, files: dict[str, bytes]) -> list[dict[str, object]]:
        return [
            {
                "rfilename": name,
                "size": self.sizes.get(name, len(data)),
                "lfs": {
                    "sha256": self.checksums.get(name, sha256(data).hexdigest()),
                    "size": self.sizes.get(name, len(data)),
                    "pointerSize": 134,
                },
            }
            for name, data in files.items()
        ]

    async def back(self, request: web.BaseRequest) -> web.StreamResponse:
        """A file, or the rest of it, which may end early."""
        self.stored.append(request)
        user, repository, _, commit, *path = request.path.strip("/").split("/")
        assert commit == COMMIT
        data = self.repositories[f"{user}/{repository}"]["/".join(path)]
        first = request.http_range.start or 0
        response = web.StreamResponse(status=206 if first else 200)
        response.content_length = len(data) - first
        if first:
            response.headers["Content-Range"] = f"bytes {first}-{len(data) - 1}/{len(data)}"
        await response.prepare(request)
        if self.cuts and (size := self.cuts.pop(0)) < len(data) - first:
            if size:
                await response.write(data[first : first + size])
                await asyncio.sleep(0.1)  # so that the client has read it before the connection ends
            assert request.transport
            request.transport.close()
            return response
        await response.write(data[first:])
        return response


def _refusal(status: int, code: str) -> web.Response:
    return web.Response(status=status, headers={"X-Error-Code": code, "X-Error-Message": "no"})


@contextlib.contextmanager
def running(hub: Hub) -> Iterator[Hub]:
    """Serves it in a thread."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()

    async def start() -> list[web.ServerRunner]:
        runners = [web.ServerRunner(web.Server(handler)) for handler in (hub.front, hub.back)]
        addresses = []
        for runner in runners:
            await runner.setup()
            await web.TCPSite(runner, "127.0.0.1", 0).start()
            addresses.append(f"http://127.0.0.1:{runner.addresses[0][1]}")
        hub.url, hub.store = addresses
        return runners

    async def stop(runners: list[web.ServerRunner]) -> None:
        for runner in runners:
            await runner.cleanup()

    runners = asyncio.run_coroutine_threadsafe(start(), loop).result()
    try:
        yield hub
    finally:
        asyncio.run_coroutine_threadsafe(stop(runners), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
