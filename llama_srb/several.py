"""Generations that are one request to its client, as a list of prompts is."""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Self

from llama_srb.engine import EngineUnavailable, Exchange
from llama_srb.protocol import Done, Error, Event


class Several:
    """Generations that are one request to its client: their events, each list those of one of them.

    To be used like one generation. Ends with the last Done, or with the first Error, which ends all.
    """

    def __init__(self, parts: list[Exchange], groups: dict[str, Several]) -> None:
        self.parts = parts
        self.id = parts[0].id
        self._groups = groups
        self.client = parts[0].client
        self.n = sum(part.n for part in parts)
        self._open = len(parts)
        self._batches: asyncio.Queue[list[Event]] = asyncio.Queue(maxsize=len(parts))  # no more than are read
        self._tasks: list[asyncio.Task[None]] = []

    def cancel(self, index: int | None = None) -> None:
        """Ends them all, or one sequence, which are numbered through."""
        if index is None:
            for part in self.parts:
                part.cancel()
            return
        which, own = divmod(index, self.parts[0].n)
        if which < len(self.parts):
            self.parts[which].cancel(own)

    async def __aenter__(self) -> Self:
        self._groups[self.id] = self
        self._tasks = [asyncio.create_task(self._read(part), name="one of several") for part in self.parts]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        del self._groups[self.id]
        for task in self._tasks:
            task.cancel()
        await asyncio.wait(self._tasks)

    async def _read(self, part: Exchange) -> None:
        try:
            async with part:
                async for events in part:
                    await self._batches.put(events)
        except EngineUnavailable as error:
            await self._batches.put([Error("unavailable", str(error), part.id)])

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> list[Event]:
        if not self._open:
            raise StopAsyncIteration
        events = await self._batches.get()
        if isinstance(events[-1], Error | Done):
            self._open = 0 if isinstance(events[-1], Error) else self._open - 1
        return events
