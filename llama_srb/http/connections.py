"""Limits of connections: the size and time of bodies, idle connections, clients that do not read.

aiohttp itself closes connections that are idle after an answer (--idle-timeout). It would wait for ever for a
first request, and for a client that does not read.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from asyncio import BaseTransport, Protocol, Transport
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary, WeakSet

from aiohttp import WSCloseCode, web
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.typedefs import Handler, Middleware

from llama_srb.background import begin
from llama_srb.config import Settings
from llama_srb.http.request_keys import BODY, CALLER, HELD, ROUTE
from llama_srb.request.values import RequestError
from llama_srb.serving.bodies import LARGE, LargeBodies

log = logging.getLogger(__name__)
http_log = logging.getLogger("llama_srb.http")  # aiohttp logs here

MAX_LARGE_ITEMS = 4  # larger bodies at the same time in items of batches, which have slots of their own
MAX_ADDRESS = 8190  # bytes of a path and its query: aiohttp's default, whose error does not say what to do
MAX_LINE = 1 << 20  # bytes; aiohttp itself refuses longer request lines
CHECKS = 4  # for stalled readers in one --write-timeout


def _one_line(record: logging.LogRecord) -> bool:
    """Logs invalid HTTP in one line: aiohttp's traceback may fill the disk, and may quote a key."""
    fault = record.exc_info[1] if record.exc_info else None
    if not isinstance(fault, HttpProcessingError):
        return True
    log.info("no HTTP from %s: %s", *(record.args or ("?",)), type(fault).__name__)
    return False


http_log.addFilter(_one_line)


class IncomingMessages(Protocol):
    """Limits the unfinished message of a WebSocket, which aiohttp keeps in memory until it is complete.

    It stands between the transport and aiohttp and counts the bytes since the last complete message, except
    the beginning of a message in the same read as the end of the one before. Above LARGE bytes a message
    needs a slot. Without a free slot, or if the message is not complete in --body-timeout, the socket is
    closed.
    """

    def __init__(
        self,
        socket: web.WebSocketResponse,
        transport: Transport,
        take: Callable[[], contextlib.ExitStack | None],
        seconds: float,
    ) -> None:
        self._socket, self._take, self._seconds = socket, take, seconds
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
        self._slot = self._take()
        if self._slot is None:
            self._refuse(
                WSCloseCode.TRY_AGAIN_LATER, f"too many messages of more than {LARGE} bytes are here"
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


class Unanswered:
    """The tasks of the requests whose answers have not begun: a server that stops gives each of them one."""

    def __init__(self) -> None:
        self._tasks = set[asyncio.Task[Any]]()
        self._ended = set[asyncio.Task[Any]]()

    @contextlib.contextmanager
    def knows(self) -> Iterator[None]:
        """Knows a request during the block; RequestError (503) if `end` comes before its answer."""
        task = _current()
        self._tasks.add(task)
        try:
            yield
        except asyncio.CancelledError:
            if task not in self._ended:
                raise  # the client has left
            task.uncancel()
            raise RequestError("the server is shutting down", status=503, code="shutting_down") from None
        finally:
            self._tasks.discard(task)
            self._ended.discard(task)

    async def begun(self, _request: web.Request, _response: web.StreamResponse) -> None:
        """The hook of an answer that begins."""
        self._tasks.discard(_current())

    async def wait(self) -> None:
        """Returns when all requests that are there now have an answer, or are streams."""
        waiting = set(self._tasks)
        while left := waiting & self._tasks:
            await asyncio.wait(left, timeout=0.05)  # a stream that begins does not end its task

    def end(self) -> None:
        """Ends the requests that are left with an error."""
        for task in self._tasks:
            self._ended.add(task)
            task.cancel()


def _current() -> asyncio.Task[Any]:
    task = asyncio.current_task()
    assert task is not None
    return task


class Connections:
    """The connections of one server."""

    def __init__(self, settings: Settings, large: LargeBodies) -> None:
        self._settings = settings
        self._served: WeakSet[BaseTransport] = WeakSet()  # connections with at least one request
        self.large, self.unanswered = large, Unanswered()
        self._large_items = LargeBodies(settings.max_body, MAX_LARGE_ITEMS)
        self._silent: WeakSet[BaseTransport] = WeakSet()  # connections without one at the last sweep

    def middleware(self) -> Middleware:
        """Reads the body, but not those that are files: their handlers do it. Ends what the request holds.

        It is the innermost middleware, so that unauthorized callers cannot send a body.
        """

        @web.middleware
        async def bound(request: web.Request, handler: Handler) -> web.StreamResponse:
            if request.transport is not None:
                self._served.add(request.transport)
            _require_plain(request)
            _require_short(request)
            is_file = ROUTE in request and request[ROUTE].files
            with self.unanswered.knows(), contextlib.ExitStack() as request[HELD]:
                request[BODY] = b"" if is_file else await self._read(request)
                return await handler(request)

        return bound

    @contextlib.contextmanager
    def incoming(self, request: web.Request, socket: web.WebSocketResponse) -> Iterator[IncomingMessages]:
        """Limits the messages of a WebSocket in this block."""
        if request.transport is None:
            raise ConnectionResetError("the client has left")
        take = partial(self.large.take, request[CALLER].client)
        messages = IncomingMessages(socket, request.transport, take, self._settings.body_timeout)
        try:
            yield messages
        finally:
            messages.close()

    async def _read(self, request: web.Request) -> bytes:
        """Reads the body; a large one takes a slot, which is free again when the request is over."""
        seconds, size, data = self._settings.body_timeout, request.content_length or 0, bytearray()
        bodies, held = self._large_items if request[CALLER].is_item else self.large, request[HELD]
        client = request[CALLER].client
        bodies.make_room(0, size, held, client)
        try:
            async with asyncio.timeout(seconds):
                while chunk := await request.content.readany():
                    data += chunk
                    if len(data) > size:
                        before, size = size, len(data)
                        bodies.make_room(before, size, held, client)
        except TimeoutError:
            message = f"the body was not complete after {seconds:g} s (--body-timeout)"
            raise RequestError(message, status=408, code="body_timeout") from None
        except web.RequestPayloadError:
            raise RequestError("the body's chunked encoding is invalid") from None
        return bytes(data)

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
