"""Bodies of requests: few large ones at a time, parsed while other requests go on."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Callable
from typing import Any, ParamSpec, TypeVar

from llama_srb.memory.slots import Slots as FairSlots
from llama_srb.request.parse import parse_body
from llama_srb.request.values import RequestError
from llama_srb.serving.pace import Pace
from llama_srb.threads import client

LARGE = 1 << 20  # bytes; only larger bodies are limited in number
MAX_LARGE = 16  # larger bodies at the same time, until their requests have ended, because they stay in memory
SHARE = 4  # of these
LARGE_RETRY = 5  # seconds until one of them may have ended
PARSED_AT_ONCE = 2  # long bodies: a thread more would only take the interpreter from the event loop
P = ParamSpec("P")
T = TypeVar("T")

MANY_VALUES = 64 << 10  # bytes of a body that may have thousands of values


class Bodies:
    """Parses bodies of HTTP and gRPC: long ones a few at a time, and of each client one."""

    def __init__(self) -> None:
        self._turns, self._pace = FairSlots(PARSED_AT_ONCE, 1), Pace()

    async def read(self, data: bytes, *, may_be_empty: bool = False, list_as: str = "") -> dict[str, Any]:
        """The body as a JSON object; RequestError if it is none. may_be_empty: then it has no fields.

        list_as: the one field of a body that is a list.
        """
        if may_be_empty and not data.strip():
            return {}
        async with self.turn(len(data)):
            return await without_stalling(len(data), parse_body, data, list_as)

    @contextlib.asynccontextmanager
    async def turn(self, size: int) -> AsyncIterator[None]:
        """The block waits its turn: of long bodies one of a client is parsed, PARSED_AT_ONCE of all."""
        await self._pace.turn()
        async with self._turns.slot(client.get()) if size >= MANY_VALUES else contextlib.nullcontext():
            yield


async def without_stalling(size: int, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Calls work(), whose cost grows with `size`, in bytes: from some size on in a thread.

    It may hold the interpreter for 50 ms at a time at most, so that the event loop runs meanwhile.
    """
    if size < MANY_VALUES:
        return work(*args, **kwargs)
    return await asyncio.to_thread(work, *args, **kwargs)


class LargeBodies:
    """The larger bodies of requests that run. most: bytes of one; count: how many at a time.

    The last ones are for clients that have fewer than a share.
    """

    def __init__(self, most: int, count: int = MAX_LARGE, share: int = SHARE) -> None:
        self._most, self._count, self._share = most, count, share
        self._of: Counter[str] = Counter()  # by client

    def take(self, client: str) -> contextlib.ExitStack | None:
        """A slot of a client, which is free again when the stack is closed; None if there is none for it."""
        left = self._count - self._of.total()
        if left <= 0 or (left <= self._share <= self._of[client]):
            return None
        self._of[client] += 1
        stack = contextlib.ExitStack()
        stack.callback(self._release, client)
        return stack

    def _release(self, client: str) -> None:
        self._of[client] -= 1
        self._of += Counter()  # drops clients without one

    def make_room(self, before: int, size: int, held: contextlib.ExitStack, client: str) -> None:
        """Checks a body that has grown from `before` to `size` bytes; RequestError (413, 503).

        A large one takes a slot until `held` is closed.
        """
        if size > self._most:
            message = f"the body is larger than --max-body, {self._most} bytes"
            raise RequestError(message, status=413)
        if before <= LARGE < size:
            if (slot := self.take(client)) is None:
                used, own = self._of.total(), self._of[client]
                message = (
                    f"{used} bodies of more than {LARGE} bytes are in use, {own} of them yours: no more now"
                )
                raise RequestError(message, status=503, code="busy", retry_after=LARGE_RETRY)
            held.enter_context(slot)
