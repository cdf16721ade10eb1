"""Bodies of requests: few large ones at a time, parsed while other requests go on."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from typing import Any, ParamSpec, TypeVar

from llama_srb.request.parse import parse_body
from llama_srb.request.values import RequestError

LARGE = 1 << 20  # bytes; only larger bodies are limited in number
MAX_LARGE = 16  # larger bodies at the same time, until their requests have ended, because they stay in memory
LARGE_RETRY = 5  # seconds until one of them may have ended
P = ParamSpec("P")
T = TypeVar("T")

MANY_VALUES = 64 << 10  # bytes of a body that may have thousands of values


class Bodies:
    """Parses bodies as JSON. Large ones are parsed one at a time."""

    def __init__(self) -> None:
        self.one_at_a_time = asyncio.Lock()

    async def read(self, data: bytes, *, may_be_empty: bool = False) -> dict[str, Any]:
        """The body as a JSON object; RequestError if it is none. may_be_empty: then it has no fields."""
        if may_be_empty and not data.strip():
            return {}
        async with self.one_at_a_time if len(data) > LARGE else contextlib.nullcontext():
            return await without_stalling(len(data), parse_body, data)


async def without_stalling(size: int, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Calls work(), whose cost grows with `size`, in bytes: from some size on in a thread.

    It may hold the interpreter for 50 ms at a time at most, so that the event loop runs meanwhile.
    """
    if size < MANY_VALUES:
        return work(*args, **kwargs)
    return await asyncio.to_thread(work, *args, **kwargs)


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


class LargeBodies:
    """The larger bodies of requests that run. most: bytes of one; count: how many at a time."""

    def __init__(self, most: int, count: int = MAX_LARGE) -> None:
        self._most, self.slots = most, Slots(count)

    def make_room(self, before: int, size: int, held: contextlib.ExitStack) -> None:
        """Checks a body that has grown from `before` to `size` bytes; RequestError (413, 503).

        A large one takes a slot until `held` is closed.
        """
        if size > self._most:
            message = f"the body is larger than --max-body, {self._most} bytes"
            raise RequestError(message, status=413)
        if before <= LARGE < size:
            if (slot := self.slots.take()) is None:
                message = (
                    f"{self.slots.count} bodies of more than {LARGE} bytes are in use, which is the maximum"
                )
                raise RequestError(message, status=503, code="busy", retry_after=LARGE_RETRY)
            held.enter_context(slot)


def with_adapter(body: Mapping[str, Any], adapter: int | None) -> Mapping[str, Any]:
    """The body with this adapter at scale 1, beside those that it names itself."""
    if adapter is None:
        return body
    others = body.get("lora") or []
    if not isinstance(others, list):
        return body  # its reader refuses it
    if any(isinstance(one, dict) and one.get("id") == adapter for one in others):
        return body
    return {**body, "lora": [{"id": adapter, "scale": 1.0}, *others]}
