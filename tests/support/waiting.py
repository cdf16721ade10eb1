"""Waits with a time limit, so that a test that would hang fails."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

PATIENCE = 120.0  # seconds; most waits take one or two, and only a hang may reach it, on any machine


async def until(condition: Callable[[], object]) -> None:
    """Polls until the condition holds."""
    async with asyncio.timeout(PATIENCE):
        while not condition():  # noqa: ASYNC110 (nothing would set an event)
            await asyncio.sleep(0.005)


async def soon(awaitable: Awaitable[Any]) -> Any:
    """Awaits with the time limit; returns the result."""
    async with asyncio.timeout(PATIENCE):
        return await awaitable


async def collect(generation: AsyncIterator[list[Any]]) -> list[Any]:
    """All events of a generation, to its end."""
    async with asyncio.timeout(PATIENCE):
        return [event async for events in generation for event in events]


def texts(events: list[Any], n: int) -> list[str]:
    """The text of each sequence."""
    return ["".join(e.text for e in events if hasattr(e, "text") and e.index == i) for i in range(n)]
