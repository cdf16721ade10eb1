"""Connections that cost something and bring nothing: endless or huge bodies, silence, unread answers.

After an answer aiohttp itself closes what stays silent for --idle-timeout; before the first request it
waits for ever, and so it does for a reader.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from asyncio import BaseTransport, Protocol, Transport
from collections.abc import Awaitable, Callable, Iterator
from typing import TypeAlias
from weakref import WeakKeyDictionary, WeakSet

from aiohttp import WSCloseCode, web
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.typedefs import Middleware

from llama_srb.background import begin
from llama_srb.config import Settings
from llama_srb.http.auth.caller import CALLER
from llama_srb.request.values import RequestError

log = logging.getLogger(__name__)
http_log = logging.getLogger("llama_srb.http")  # aiohttp's own

BODY: web.RequestKey[bytes] = web.RequestKey("body", bytes)
LARGE = 1 << 20  # bytes; of an ordinary request's body there are as many as there are requests
MAX_LARGE = 16  # larger bodies at the same time, until their requests are over: what they hold is in memory
LARGE_RETRY = 5  # seconds after which there may be room for one
LOOKS = 4  # of the sweep in one --write-timeout

Handler: TypeAlias = Callable[[web.Request], Awaitable[web.StreamResponse]]


def _one_line(record: logging.LogRecord) -> bool:
    """What is no HTTP is a line: a traceback tells nothing, could fill a disk, and may quote a key."""
    fault = record.exc_info[1] if record.exc_info else None
    if not isinstance(fault, HttpProcessingError):
        return True
    log.info("no HTTP from %s: %s", *(record.args or ("?",)), type(fault).__name__)
    return False


http_log.addFilter(_one_line)


class Places:
    """So many may be taken at the same time."""

    def __init__(self, count: int) -> None:
        self._free = count

    def take(self) -> contextlib.ExitStack | None:
        """One, until the stack is closed; None when there is none."""
        if not self._free:
            return None
        self._free -= 1
        stack = contextlib.ExitStack()
        stack.callback(self._give_back)
        return stack

    def _give_back(self) -> None:
        self._free += 1


class Arrivals(Protocol):
    """Counts what comes on a WebSocket, on its way to aiohttp, which keeps an unfinished message in memory.

    What came since the last whole message is one that is not finished, but for a read that had the end of one
    and the beginning of the next. It has a place from LARGE bytes on; without one, or when it is not finished
    in --body-timeout, the socket is closed.
    """

    def __init__(
        self, socket: web.WebSocketResponse, transport: Transport, places: Places, seconds: float
    ) -> None:
        self._socket, self._places, self._seconds = socket, places, seconds
        self._next = transport.get_protocol()
        self._size = 0
        self._place: contextlib.ExitStack | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._closing: asyncio.Task[bool] | None = None
        transport.set_protocol(self)

    def delivered(self) -> contextlib.ExitStack:
        """A message is whole: its place is its request's now."""
        place, self._place, self._size = self._place or contextlib.ExitStack(), None, 0
        self._end_timer()
        return place

    def close(self) -> None:
        """The connection is over, or aiohttp's alone again."""
        self.delivered().close()
        if self._closing is not None:
            self._closing.cancel()

    def data_received(self, data: bytes) -> None:
        if self._closing is not None:
            return  # it is refused; what still comes would be kept
        self._size += len(data)
        if self._place is None and self._size > LARGE:
            self._take_place()
        if self._closing is None:
            self._next.data_received(data)  # type: ignore[attr-defined]  # a BaseProtocol says less than it is

    def _take_place(self) -> None:
        self._place = self._places.take()
        if self._place is None:
            self._refuse(
                WSCloseCode.TRY_AGAIN_LATER, f"{MAX_LARGE} messages of more than {LARGE} bytes are here"
            )
            return
        reason = f"the message was not there after {self._seconds:g} s (--body-timeout)"
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(self._seconds, self._refuse, WSCloseCode.POLICY_VIOLATION, reason)

    def _refuse(self, code: WSCloseCode, reason: str) -> None:
        self._end_timer()
        close = self._socket.close(code=code, message=reason.encode())
        self._closing = begin(close, "websocket refused")

    def _end_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    # As they come

    def connection_lost(self, error: Exception | None) -> None:
        self._next.connection_lost(error)

    def eof_received(self) -> bool | None:
        return self._next.eof_received()  # type: ignore[attr-defined, no-any-return]

    def pause_writing(self) -> None:
        self._next.pause_writing()

    def resume_writing(self) -> None:
        self._next.resume_writing()


class Connections:
    """Of one server."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._served: WeakSet[BaseTransport] = WeakSet()  # a request has come on it
        self._large = Places(MAX_LARGE)
        self._seen: WeakSet[BaseTransport] = WeakSet()  # none had when we looked last

    def middleware(self) -> Middleware:
        """Stands innermost: who may not call must not be able to send a body either."""

        @web.middleware
        async def bound(request: web.Request, handler: Handler) -> web.StreamResponse:
            hang_up = None
            if (transport := request.transport) is not None:
                self._served.add(transport)
                # close() would wait for what nobody reads; uvloop's transports are no asyncio.Transport
                hang_up = getattr(transport, "abort", transport.close)
            request[CALLER] = request[CALLER].on(request.remote or "", hang_up)
            _require_plain(request)
            with contextlib.ExitStack() as held:
                request[BODY] = await self._read(request, held)
                return await handler(request)

        return bound

    @contextlib.contextmanager
    def arrivals(self, request: web.Request, socket: web.WebSocketResponse) -> Iterator[Arrivals]:
        """What comes on a WebSocket is counted in this block."""
        if request.transport is None:
            raise ConnectionResetError("the client has left")
        counted = Arrivals(socket, request.transport, self._large, self._settings.body_timeout)
        try:
            yield counted
        finally:
            counted.close()

    async def _read(self, request: web.Request, held: contextlib.ExitStack) -> bytes:
        """The body; a large one takes a place until `held` is left."""
        seconds, size, data = self._settings.body_timeout, request.content_length or 0, bytearray()
        self._make_room(0, size, held)
        try:
            async with asyncio.timeout(seconds):
                while chunk := await request.content.readany():
                    data += chunk
                    before, size = size, max(size, len(data))
                    self._make_room(before, size, held)
        except TimeoutError:
            message = f"the body was not there after {seconds:g} s (--body-timeout)"
            raise RequestError(message, status=408, code="body_timeout") from None
        except web.RequestPayloadError:
            raise RequestError("the body's chunks are not what HTTP wants") from None
        return bytes(data)

    def _make_room(self, before: int, size: int, held: contextlib.ExitStack) -> None:
        """For a body that has grown to this size."""
        if size > self._settings.max_body:
            raise web.HTTPRequestEntityTooLarge(self._settings.max_body, size)
        if before <= LARGE < size:
            if (place := self._large.take()) is None:
                message = f"{MAX_LARGE} bodies of more than {LARGE} bytes are here, which is the most"
                raise RequestError(message, status=503, code="busy", retry_after=LARGE_RETRY)
            held.enter_context(place)

    async def end_stalled(self, server: web.Server) -> None:
        """Ends, for ever, connections whose clients have taken nothing of what waits for them.

        In looks and not in seconds: if this process itself stood still, readers get their time. Who writes
        waits for its reader above 64 KiB, so what waits grows only for a moment unless nobody reads.
        """
        stalled: WeakKeyDictionary[BaseTransport, tuple[int, int]] = WeakKeyDictionary()
        while True:
            await asyncio.sleep(self._settings.write_timeout / LOOKS)
            for transport in [c.transport for c in server.connections if c.transport is not None]:
                waiting = transport.get_write_buffer_size()
                least, looks = stalled.get(transport, (0, 0))
                looks = looks + 1 if 0 < least <= waiting else 0
                stalled[transport] = (waiting if looks == 0 else least), looks
                if looks >= LOOKS:
                    log.warning(
                        "a reader has taken nothing in %g s (--write-timeout)", self._settings.write_timeout
                    )
                    transport.abort()

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
