"""Runs the whole server in the test's process, over real sockets, with the fake engine."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp

from llama_srb.config import Settings, load
from llama_srb.server import lifetime as server
from llama_srb.serving.keys import api_keys
from llama_srb.serving.keys.api_keys import Key
from tests.support.places import FAKE_COMMAND
from tests.support.waiting import PATIENCE

SECRET = "0123456789" * 4


@dataclass
class Served:
    """A running server at `url`; its fake engine records what it does in `journal`."""

    url: str
    http: aiohttp.ClientSession
    journal: Path
    stack: contextlib.AsyncExitStack

    async def post(self, body: Any, path: str = "/v1/completions", **headers: str) -> tuple[int, bytes]:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        async with self.http.post(self.url + path, data=data, headers=headers) as response:
            return response.status, await response.read()

    async def events(self, body: Any, path: str = "/v1/completions") -> list[dict[str, Any]]:
        status, data = await self.post(body, path)
        assert status == 200, data
        return frames(data)

    async def connect(self, body: Any) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Sends a request on a raw connection, which is closed at the end of the test at the latest."""
        host, port = self.url.removeprefix("http://").split(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        self.stack.push_async_callback(closed, writer)
        data = json.dumps(body).encode()
        writer.write(
            b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%b"
            % (len(data), data)
        )
        return reader, writer

    def noted(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.journal.read_text().splitlines()]

    async def note(self, what: str, count: int = 1) -> dict[str, Any]:
        """Waits until the journal has `count` entries of this kind; returns the last of them."""
        async with asyncio.timeout(PATIENCE):
            while len(found := [n for n in self.noted() if n["what"] == what]) < count:  # noqa: ASYNC110, it is a file
                await asyncio.sleep(0.002)
        return found[count - 1]


async def closed(writer: asyncio.StreamWriter) -> None:
    """Closes a connection, also one that is lost."""
    writer.close()
    with contextlib.suppress(OSError):
        await writer.wait_closed()


Serving = Callable[..., Awaitable[Served]]


@contextlib.asynccontextmanager
async def servers(folder: Path) -> AsyncIterator[Serving]:
    """Yields a function that starts servers: flags are the fake engine's, keywords are settings."""
    journal, engine = folder / "journal", folder / "engine"
    engine.write_text(f'#!/bin/sh\nexec {FAKE_COMMAND} --journal {journal} "$@"\n')
    engine.chmod(0o755)
    async with contextlib.AsyncExitStack() as stack:

        async def start(*flags: str, config: str | None = None, **options: object) -> Served:
            own: dict[str, object] = {"engine": str(engine), "engine_args": flags} if config is None else {}
            given = {**own, "port": 0, "stop_grace": 0, **options}

            def read() -> Settings:
                return load(given, config=config, environ={})

            url = await stack.enter_async_context(running(read(), read))
            http = await stack.enter_async_context(aiohttp.ClientSession())
            return Served(url, http, journal, stack)

        async with asyncio.timeout(PATIENCE):
            yield start


@contextlib.asynccontextmanager
async def running(settings: Settings, reread: Callable[[], Settings] | None = None) -> AsyncIterator[str]:
    """Runs the real serve() with its real runner and site; yields its address."""
    ready: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    task = asyncio.create_task(
        server.serve(settings, on_loading=lambda _: None, on_ready=ready.set_result, reread=reread)
    )
    try:
        await asyncio.wait({task, ready}, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            task.result()
        yield ready.result()
    finally:
        task.cancel()
        await asyncio.wait({task})


def frames(data: bytes) -> list[dict[str, Any]]:
    """The JSON of every frame, without comments and [DONE]."""
    parts = data.decode().split("\n\n")
    assert parts.pop() == "", "the last frame is complete"
    return [json.loads(part.removeprefix("data: ")) for part in parts if part[:7] == "data: {"]


def bearer(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}


def key_file(path: Path, *rows: dict[str, Any]) -> Path:
    """Writes a file of keys in which each row's name is also its key."""
    api_keys.write(path, [Key(hash=api_keys.hashed(row["name"]), **row) for row in rows])
    return path
