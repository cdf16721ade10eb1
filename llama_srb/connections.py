"""Connections that cost something and bring nothing: endless or huge bodies, requests that never come.

After an answer aiohttp itself closes what stays silent for --idle-timeout; before the first request it
waits for ever.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from asyncio import BaseTransport
from collections.abc import Awaitable, Callable
from typing import TypeAlias
from weakref import WeakSet

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.typedefs import Middleware

from llama_srb.config import Settings
from llama_srb.limits import address, hang_up
from llama_srb.values import RequestError

log = logging.getLogger(__name__)
http_log = logging.getLogger("llama_srb.http")  # aiohttp's own

BODY: web.RequestKey[bytes] = web.RequestKey("body", bytes)
LARGE = 1 << 20  # bytes; of an ordinary request's body there are as many as there are requests
MAX_LARGE = 16  # larger bodies at the same time, until their requests are over: what they hold is in memory
LARGE_RETRY = 5  # seconds after which there may be room for one

Handler: TypeAlias = Callable[[web.Request], Awaitable[web.StreamResponse]]


def _one_line(record: logging.LogRecord) -> bool:
    """What is no HTTP is a line: a traceback tells nothing, could fill a disk, and may quote a key."""
    fault = record.exc_info[1] if record.exc_info else None
    if not isinstance(fault, HttpProcessingError):
        return True
    log.info("no HTTP from %s: %s", *(record.args or ("?",)), type(fault).__name__)
    return False


http_log.addFilter(_one_line)


class Connections:
    """Of one server."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._served: WeakSet[BaseTransport] = WeakSet()  # a request has come on it
        self._large = asyncio.Semaphore(MAX_LARGE)
        self._seen: WeakSet[BaseTransport] = WeakSet()  # none had when we looked last

    def middleware(self) -> Middleware:
        """Stands innermost: who may not call must not be able to send a body either."""

        @web.middleware
        async def bound(request: web.Request, handler: Handler) -> web.StreamResponse:
            address.set(request.remote or "")
            if (transport := request.transport) is not None:
                self._served.add(transport)
                # close() would wait for what nobody reads; uvloop's transports are no asyncio.Transport
                hang_up.set(getattr(transport, "abort", transport.close))
            _require_plain(request)
            async with contextlib.AsyncExitStack() as held:
                request[BODY] = await self._read(request, held)
                return await handler(request)

        return bound

    async def _read(self, request: web.Request, held: contextlib.AsyncExitStack) -> bytes:
        """The body; a large one takes a place until `held` is left."""
        seconds, size, data = self._settings.body_timeout, request.content_length or 0, bytearray()
        await self._make_room(0, size, held)
        try:
            async with asyncio.timeout(seconds):
                while chunk := await request.content.readany():
                    data += chunk
                    before, size = size, max(size, len(data))
                    await self._make_room(before, size, held)
        except TimeoutError:
            message = f"the body was not there after {seconds:g} s (--body-timeout)"
            raise RequestError(message, status=408, code="body_timeout") from None
        except web.RequestPayloadError:
            raise RequestError("the body's chunks are not what HTTP wants") from None
        return bytes(data)

    async def _make_room(self, before: int, size: int, held: contextlib.AsyncExitStack) -> None:
        """For a body that has grown to this size."""
        if size > self._settings.max_body:
            raise web.HTTPRequestEntityTooLarge(self._settings.max_body, size)
        if before <= LARGE < size:
            if self._large.locked():
                message = f"{MAX_LARGE} bodies of more than {LARGE} bytes are here, which is the most"
                raise RequestError(message, status=503, code="busy", retry_after=LARGE_RETRY)
            await held.enter_async_context(self._large)

    async def sweep(self, server: web.Server) -> None:
        """Closes, for ever, what has brought no request within --idle-timeout, twice that at most."""
        while True:
            await asyncio.sleep(self._settings.idle_timeout)
            silent = [c.transport for c in server.connections if c.transport is not None]
            silent = [transport for transport in silent if transport not in self._served]
            for transport in silent:
                if transport in self._seen:
                    log.debug("closing a connection without a request")
                    transport.close()
            self._seen = WeakSet(silent)


def _require_plain(request: web.Request) -> None:
    """A few bytes can be packed that are gigabytes unpacked, and no client of ours packs its bodies."""
    packed = request.headers.get("Content-Encoding", "identity")
    if packed.lower() != "identity":
        message = "Content-Encoding is given; bodies are read as they are, without one"
        raise RequestError(message, status=415, code="content_encoding")
