"""A real HTTP server whose answers a test scripts."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from aiohttp import web

Answering = Callable[[dict[str, Any]], Awaitable[web.StreamResponse]]


def answered(body: dict[str, Any]) -> web.Response:
    return web.json_response({"text": body["prompt"], "usage": {"completion_tokens": 2}})


def refused(status: int, message: str, **headers: str) -> web.Response:
    return web.json_response({"error": {"message": message}}, status=status, headers=headers)


class Scripted:
    """A server that answers lines with `answer`. asked: the prompts, in order. most: of them at once."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.headers: list[dict[str, str]] = []
        self.running = self.most = 0
        self.slots: int | None = None
        self.health = 200
        self.answer: Answering = self.usual
        self.port = 0
        self._runner: web.AppRunner

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def usual(self, body: dict[str, Any]) -> web.StreamResponse:
        await asyncio.sleep(0)
        return answered(body)

    async def start(self) -> None:
        """Starts it; the second time on the same port."""
        app = web.Application()
        app.router.add_get("/health", self._health)
        app.router.add_get("/props", self._props)
        app.router.add_post("/{path:.*}", self._line)
        self._runner = web.AppRunner(app, shutdown_timeout=0, handler_cancellation=True)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", self.port).start()
        self.port = self._runner.addresses[0][1]

    async def stop(self) -> None:
        """Stops it, and cuts its connections."""
        assert self._runner.server is not None
        for connection in self._runner.server.connections:
            if connection.transport is not None:
                connection.transport.abort()
        await self._runner.cleanup()

    async def _health(self, http: web.Request) -> web.Response:
        return web.json_response({}, status=self.health)

    async def _props(self, http: web.Request) -> web.Response:
        return web.json_response(
            {"total_slots": self.slots} if self.slots else {}, status=200 if self.slots else 404
        )

    async def _line(self, http: web.Request) -> web.StreamResponse:
        body = json.loads(await http.read())
        self.asked.append(body["prompt"])
        self.headers.append(dict(http.headers))
        self.running += 1
        self.most = max(self.most, self.running)
        try:
            return await self.answer(body)
        finally:
            self.running -= 1


@contextlib.asynccontextmanager
async def scripted() -> AsyncIterator[Scripted]:
    server = Scripted()
    await server.start()
    try:
        yield server
    finally:
        await server.stop()
