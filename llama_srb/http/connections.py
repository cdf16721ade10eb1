"""Limits of connections: the size and time of bodies, idle connections, clients that do not read.

aiohttp itself closes connections that are idle after an answer (--idle-timeout). It would wait for ever for a
first request, and for a client that does not read.
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
from llama_srb.http.middleware import dialect_of
from llama_srb.http.observe.traces import TRACE
from llama_srb.http.route import pattern_of
from llama_srb.http.routes import ROUTES
from llama_srb.request.values import RequestError

log = logging.getLogger(__name__)
http_log = logging.getLogger("llama_srb.http")  # aiohttp logs here

BODY: web.RequestKey[bytes] = web.RequestKey("body", bytes)
LARGE = 1 << 20  # bytes; only larger bodies are limited in number
MAX_LARGE = 16  # larger bodies at the same time, until their requests have ended, because they stay in memory
MAX_LARGE_LINES = 4  # of these in lines of batches, which have slots of their own
MAX_ADDRESS = 8190  # bytes of a path and its query: aiohttp's default, whose error does not say what to do
MAX_LINE = 1 << 20  # bytes; aiohttp itself refuses longer request lines
LARGE_RETRY = 5  # seconds until one of them may have ended
FILES = frozenset((route.method, route.path) for route in ROUTES if route.files)
CHECKS = 4  # for stalled readers in one --write-timeout

Handler: TypeAlias = Callable[[web.Request], Awaitable[web.StreamResponse]]


def _one_line(record: logging.LogRecord) -> bool:
    """Logs invalid HTTP in one line: aiohttp's traceback may fill the disk, and may quote a key."""
    fault = record.exc_info[1] if record.exc_info else None
    if not isinstance(fault, HttpProcessingError):
        return True
    log.info("no HTTP from %s: %s", *(record.args or ("?",)), type(fault).__name__)
    return False


http_log.addFilter(_one_line)


class Slots:
    """A fixed number of slots."""

    def __init__(self, count: int) -> None:
        self.count = self._free = count

    def take(self) -> contextlib.ExitStack | None:
        """Takes a slot, which is free again when the stack is closed; None if no slot is free."""
        if not self._free:
            return None
        self._free -= 1
        stack = contextlib.ExitStack()
        stack.callback(self._release)
        return stack

    def _release(self) -> None:
        self._free += 1


class IncomingMessages(Protocol):
    """Limits the unfinished message of a WebSocket, which aiohttp keeps in memory until it is complete.

    It stands between the transport and aiohttp and counts the bytes since the last complete message, except
    the beginning of a message in the same read as the end of the one before. Above LARGE bytes a message
    needs a slot. Without a free slot, or if the message is not complete in --body-timeout, the socket is
    closed.
    """

    def __init__(
        self, socket: web.WebSocketResponse, transport: Transport, slots: Slots, seconds: float
    ) -> None:
        self._socket, self._slots, self._seconds = socket, slots, seconds
        self._next = transport.get_protocol()
        self._size = 0
        self._slot: contextlib.ExitStack | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._closing: asyncio.Task[bool] | None = None
        transport.set_protocol(self)

    def delivered(self) -> contextlib.ExitStack:
        """A message is complete: returns its slot, which its request holds from now on."""
        slot, self._slot, self._size = self._slot or contextlib.ExitStack(), None, 0
        self._end_timer()
        return slot

    def close(self) -> None:
        """Frees the slot and ends the timer."""
        self.delivered().close()
        if self._closing is not None:
            self._closing.cancel()

    def data_received(self, data: bytes) -> None:
        if self._closing is not None:
            return  # refused: further data is dropped
        self._size += len(data)
        if self._slot is None and self._size > LARGE:
            self._take_slot()
        if self._closing is None:
            self._next.data_received(data)  # type: ignore[attr-defined]  # it is a Protocol, typed as BaseProtocol

    def _take_slot(self) -> None:
        self._slot = self._slots.take()
        if self._slot is None:
            self._refuse(
                WSCloseCode.TRY_AGAIN_LATER, f"{MAX_LARGE} messages of more than {LARGE} bytes are here"
            )
            return
        reason = f"the message was not complete after {self._seconds:g} s (--body-timeout)"
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

    # Forwarded unchanged

    def connection_lost(self, error: Exception | None) -> None:
        self._next.connection_lost(error)

    def eof_received(self) -> bool | None:
        return self._next.eof_received()  # type: ignore[attr-defined, no-any-return]

    def pause_writing(self) -> None:
        self._next.pause_writing()

    def resume_writing(self) -> None:
        self._next.resume_writing()


class Connections:
    """The connections of one server."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._served: WeakSet[BaseTransport] = WeakSet()  # connections with at least one request
        self._large = Slots(MAX_LARGE)
        self._large_lines = Slots(MAX_LARGE_LINES)
        self._silent: WeakSet[BaseTransport] = WeakSet()  # connections without one at the last sweep

    def middleware(self) -> Middleware:
        """Reads the body, but not those that are files: their handlers do it.

        It is the innermost middleware, so that unauthorized callers cannot send a body.
        """

        @web.middleware
        async def bound(request: web.Request, handler: Handler) -> web.StreamResponse:
            hang_up = None
            if (transport := request.transport) is not None:
                self._served.add(transport)
                # close() would wait for the reader; uvloop's transports are no asyncio.Transport
                hang_up = getattr(transport, "abort", transport.close)
            urgency = request.headers.get("Priority", "")
            caller = request[CALLER].on(request.remote or "", hang_up, urgency, dialect_of(request))
            request[CALLER] = caller.traced(request[TRACE]) if TRACE in request else caller
            _require_plain(request)
            _require_short(request)
            with contextlib.ExitStack() as held:
                request[BODY] = b"" if _is_file(request) else await self._read(request, held)
                return await handler(request)

        return bound

    @contextlib.contextmanager
    def incoming(self, request: web.Request, socket: web.WebSocketResponse) -> Iterator[IncomingMessages]:
        """Limits the messages of a WebSocket in this block."""
        if request.transport is None:
            raise ConnectionResetError("the client has left")
        messages = IncomingMessages(socket, request.transport, self._large, self._settings.body_timeout)
        try:
            yield messages
        finally:
            messages.close()

    async def _read(self, request: web.Request, held: contextlib.ExitStack) -> bytes:
        """Reads the body; a large one takes a slot, which is free again when `held` is closed."""
        seconds, size, data = self._settings.body_timeout, request.content_length or 0, bytearray()
        slots = self._large_lines if request[CALLER].is_line else self._large
        self.make_room(0, size, held, slots)
        try:
            async with asyncio.timeout(seconds):
                while chunk := await request.content.readany():
                    data += chunk
                    before, size = size, max(size, len(data))
                    self.make_room(before, size, held, slots)
        except TimeoutError:
            message = f"the body was not complete after {seconds:g} s (--body-timeout)"
            raise RequestError(message, status=408, code="body_timeout") from None
        except web.RequestPayloadError:
            raise RequestError("the body's chunked encoding is invalid") from None
        return bytes(data)

    def make_room(
        self, before: int, size: int, held: contextlib.ExitStack, slots: Slots | None = None
    ) -> None:
        """Checks a body that has grown from `before` to `size` bytes, and takes a slot if it became large."""
        slots = slots or self._large
        if size > self._settings.max_body:
            raise web.HTTPRequestEntityTooLarge(self._settings.max_body, size)
        if before <= LARGE < size:
            if (slot := slots.take()) is None:
                message = f"{slots.count} bodies of more than {LARGE} bytes are in use, which is the maximum"
                raise RequestError(message, status=503, code="busy", retry_after=LARGE_RETRY)
            held.enter_context(slot)

    async def end_stalled(self, server: web.Server) -> None:
        """Runs for ever, and aborts connections whose client has read nothing for --write-timeout.

        It counts checks, not seconds: if this process itself was stopped, clients still get their time. A
        write buffer that never shrinks shows a client that does not read: handlers write no more while it has
        64 KiB.
        """
        stalled: WeakKeyDictionary[BaseTransport, tuple[int, int]] = WeakKeyDictionary()
        while True:
            await asyncio.sleep(self._settings.write_timeout / CHECKS)
            for transport in [c.transport for c in server.connections if c.transport is not None]:
                buffered = transport.get_write_buffer_size()
                smallest, checks = stalled.get(transport, (0, 0))
                checks = checks + 1 if 0 < smallest <= buffered else 0
                stalled[transport] = (buffered if checks == 0 else smallest), checks
                if checks >= CHECKS:
                    log.warning(
                        "a client has read nothing for %g s (--write-timeout)", self._settings.write_timeout
                    )
                    transport.abort()

    async def sweep(self, server: web.Server) -> None:
        """Runs for ever, and closes connections without a request after one to two times --idle-timeout."""
        while True:
            await asyncio.sleep(self._settings.idle_timeout)
            silent = [c.transport for c in server.connections if c.transport is not None]
            silent = [transport for transport in silent if transport not in self._served]
            for transport in silent:
                if transport in self._silent:
                    log.debug("closing a connection without a request")
                    transport.close()
            self._silent = WeakSet(silent)


def _is_file(request: web.Request) -> bool:
    """Whether the body is a file, which may be larger than --max-body."""
    return (request.method, pattern_of(request)) in FILES


def _require_short(request: web.Request) -> None:
    if (size := len(request.rel_url.raw_path_qs)) > MAX_ADDRESS:
        message = f"the path and its query have {size} bytes; they may have {MAX_ADDRESS}"
        raise RequestError(
            f"{message}. Send a long prompt in the body of a POST, as to /v1/tasks/NAME/completions",
            param="prompt",
        )


def _require_plain(request: web.Request) -> None:
    """Refuses compressed bodies: a few bytes may expand to gigabytes, and no known client compresses them."""
    encoding = request.headers.get("Content-Encoding", "identity")
    if encoding.lower() != "identity":
        message = "Content-Encoding is given; send the body without compression"
        raise RequestError(message, status=415, code="content_encoding")
