"""Waits with a bound, so that a test that would hang fails."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

PATIENCE = 30.0  # seconds; a bound for what takes a second or two, on a machine that does other things too


async def until(condition: Callable[[], object]) -> None:
    """Waits for a condition that nothing announces."""
    async with asyncio.timeout(PATIENCE):
        while not condition():  # noqa: ASYNC110 (nothing would set an event)
            await asyncio.sleep(0.005)


async def soon(awaitable: Awaitable[Any]) -> Any:
    """The result of what must not take long."""
    async with asyncio.timeout(PATIENCE):
        return await awaitable


async def collect(generation: AsyncIterator[list[Any]]) -> list[Any]:
    """All events to the end."""
    async with asyncio.timeout(PATIENCE):
        return [event async for events in generation for event in events]


def texts(events: list[Any], n: int) -> list[str]:
    """The text of each sequence."""
    return ["".join(e.text for e in events if hasattr(e, "text") and e.index == i) for i in range(n)]
