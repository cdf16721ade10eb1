"""Connections that cost something and bring nothing: bodies that never end, and requests that never come.

After an answer aiohttp itself closes what stays silent for --idle-timeout; before the first request it
waits for ever.
"""

from __future__ import annotations

import asyncio
import logging
from asyncio import BaseTransport
from collections.abc import Awaitable, Callable
from typing import TypeAlias
from weakref import WeakSet

from aiohttp import web
from aiohttp.typedefs import Middleware

from llama_srb.config import Settings
from llama_srb.limits import address, hang_up
from llama_srb.request import RequestError

log = logging.getLogger(__name__)

Handler: TypeAlias = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Connections:
    """Of one server."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._served: WeakSet[BaseTransport] = WeakSet()  # a request has come on it
        self._seen: WeakSet[BaseTransport] = WeakSet()  # none had when we looked last

    def middleware(self) -> Middleware:
        """Stands innermost: who may not call must not be able to send a body either."""

        @web.middleware
        async def bound(request: web.Request, handler: Handler) -> web.StreamResponse:
            address.set(request.remote or "")
            if (transport := request.transport) is not None:
                self._served.add(transport)
                hang_up.set(transport.abort if isinstance(transport, asyncio.Transport) else transport.close)
            if request.can_read_body and (request.content_length or 0) <= self._settings.max_body:
                await self._read(request)  # the handler gets it from memory
            return await handler(request)

        return bound

    async def _read(self, request: web.Request) -> None:
        seconds = self._settings.body_timeout
        try:
            async with asyncio.timeout(seconds):
                await request.read()
        except TimeoutError:
            message = f"the body was not there after {seconds:g} s (--body-timeout)"
            raise RequestError(message, status=408, code="body_timeout") from None

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
