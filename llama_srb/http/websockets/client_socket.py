"""One client's WebSocket: reads messages, sends texts; ends with its client, its key or the server.

Knows aiohttp's socket; a subclass knows what messages mean. Each task of a subclass ends with the connection.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeAlias

from aiohttp import WSCloseCode, WSMsgType, web

from llama_srb.background import begin
from llama_srb.engine.exchange import CommandRefused
from llama_srb.request.values import RequestError
from llama_srb.serving.faults import INTERNAL, fault_of
from llama_srb.serving.keys.caller import Caller

log = logging.getLogger(__name__)

SLICE = 0.005  # seconds of reading commands between two runs of the event loop
CLOSE_GRACE = 5.0  # seconds for the client to read the last events after its key has ended
MAX_REASON = 123  # bytes of text in a close frame (RFC 6455)


Delivered: TypeAlias = Callable[[], contextlib.ExitStack]


class ClientSocket:
    """One connection.

    delivered() is called for each message and returns the message's slot, which is held until its request
    has ended. caller: with the current grant of its key.
    """

    def __init__(
        self,
        socket: web.WebSocketResponse,
        caller: Caller,
        delivered: Delivered = contextlib.ExitStack,
    ) -> None:
        self._socket, self._delivered = socket, delivered
        self._writing = asyncio.Lock()
        self.tasks: set[asyncio.Task[None]] = set()
        self._closing: asyncio.Task[None] | None = None
        self.caller, self._session = caller.answered_as("websocket").accepted, caller.session

    async def handle(self, data: str | bytes, held: contextlib.ExitStack) -> None:
        """Handles one message of the client."""
        raise NotImplementedError

    def refusal(self, why: RequestError) -> str:
        """The message for an error that is about no request."""
        raise NotImplementedError

    async def serve(self) -> None:
        """Serves until the client leaves, its key ends, or the server stops."""
        if self._session is not None:
            self._session.add(self, self._end)
        try:
            since = time.perf_counter()
            async for message in self._socket:
                if message.type in (WSMsgType.TEXT, WSMsgType.BINARY):
                    self.caller = self.caller.now  # its key's limits may have changed
                    with self._delivered() as held:
                        await self.handle(message.data, held)
                if time.perf_counter() - since > SLICE:  # reading buffered messages does not run the loop
                    await asyncio.sleep(0)
                    since = time.perf_counter()
        finally:
            if self._session is not None:
                self._session.discard(self)
            for task in self.tasks:
                task.cancel()
            if rest := self.tasks | ({self._closing} if self._closing else set()):
                await asyncio.wait(rest)

    def _end(self, refusal: RequestError) -> None:
        """The key has ended: closes the socket. The session ends the requests."""
        self._closing = begin(self._close(refusal), "websocket closes")

    async def _close(self, refusal: RequestError) -> None:
        """Closes the socket after the last events; a client that does not read them in time is cut off."""
        try:
            async with asyncio.timeout(CLOSE_GRACE):
                while self.tasks:
                    await asyncio.wait(set(self.tasks))
                await self.send(self.refusal(refusal))
                reason = refusal.message.encode()[:MAX_REASON].decode(errors="ignore").encode()
                await self._socket.close(code=WSCloseCode.POLICY_VIOLATION, message=reason)
        except TimeoutError:
            log.warning("a WebSocket's client has not read its last events in %g s", CLOSE_GRACE)
            self.caller.hang_up()

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Begins a task, which ends with the connection at the latest."""
        task = begin(work, "websocket")
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)
        return task

    async def attempt(self, work: Awaitable[bool], error: Callable[..., str]) -> bool:
        """The result of a request's work; if it fails, sends an error, which error() makes: False."""
        try:
            return await work
        except CommandRefused as refused:
            why = refused.error
            await self.send(error(why.message, param=why.param, code=why.code))
        except Exception as failed:
            if (fault := fault_of(failed)) is None:
                log.exception("a request on a WebSocket")
                fault = INTERNAL
            await self.send(error(fault.message, param=fault.param, code=fault.code or "invalid_request"))
        return False

    async def send(self, text: str) -> None:
        """Sends a text, waiting for a slow reader. That the client has left is noticed by serve()."""
        async with self._writing:  # without it each request would buffer 64 KiB before it waits
            with contextlib.suppress(ConnectionError):
                await self._socket.send_str(text)
