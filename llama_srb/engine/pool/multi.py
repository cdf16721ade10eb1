"""Several generations that are one request to the client, such as a list of prompts."""

from __future__ import annotations

import asyncio
import logging
from types import TracebackType
from typing import Self, TypeAlias

from llama_srb.background import begin
from llama_srb.engine.events import Done, Error, Event
from llama_srb.engine.exchange import EngineUnavailable, Exchange

log = logging.getLogger(__name__)

Batch: TypeAlias = tuple[list[Event], "asyncio.Future[None] | None"]


class MultiGeneration:
    """Several generations that are used like one; each list of events is from one of them.

    It ends with the last Done, or with the first Error, which ends all of them.
    """

    def __init__(self, parts: list[Exchange], groups: dict[str, MultiGeneration]) -> None:
        self.parts = parts
        self.id = parts[0].id
        self._groups = groups
        self.client = parts[0].client
        self.n = sum(part.n for part in parts)
        self._open = len(parts)
        self._batches: asyncio.Queue[Batch] = asyncio.Queue(maxsize=len(parts))
        self._read: asyncio.Future[None] | None = None  # set when the reader has handled the last list
        self._tasks: list[asyncio.Task[None]] = []

    def cancel(self, index: int | None = None) -> None:
        """Ends all of them, or the sequence `index`, counted over all generations."""
        if index is None:
            for part in self.parts:
                part.cancel()
            return
        i_part, i_sequence = divmod(index, self.parts[0].n)
        if i_part < len(self.parts):
            self.parts[i_part].cancel(i_sequence)

    async def __aenter__(self) -> Self:
        self._groups[self.id] = self
        self._tasks = [begin(self._forward(part), "one of several generations") for part in self.parts]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        del self._groups[self.id]
        for task in self._tasks:
            task.cancel()
        await asyncio.wait(self._tasks)

    async def _forward(self, part: Exchange) -> None:
        """Forwards one list at a time; the part counts it as unread until the reader has handled it."""
        try:
            async with part:
                async for events in part:
                    read = asyncio.get_running_loop().create_future()
                    await self._batches.put((events, read))
                    await read
        except EngineUnavailable as error:
            await self._batches.put(([Error("unavailable", str(error), part.id)], None))
        except Exception as error:
            log.exception("request %s", part.id)
            await self._batches.put(([Error("internal_error", str(error), part.id)], None))

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> list[Event]:
        if self._read is not None and not self._read.done():  # done already if its task was cancelled
            self._read.set_result(None)
        if not self._open:
            raise StopAsyncIteration
        events, self._read = await self._batches.get()
        if isinstance(events[-1], Error | Done):
            self._open = 0 if isinstance(events[-1], Error) else self._open - 1
        return events
