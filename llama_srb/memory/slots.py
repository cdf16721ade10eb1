"""Slots for work that few may do at once: fair between clients, however much one of them asks for."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter, defaultdict, deque
from collections.abc import AsyncIterator


class Slots:
    """most: how many may work at once; of_a_client: how many of one client, so that others need not wait."""

    def __init__(self, most: int, of_a_client: int) -> None:
        self._most, self._of_a_client = most, of_a_client
        self._working: Counter[str] = Counter()
        self._waiting: defaultdict[str, deque[asyncio.Future[None]]] = defaultdict(deque)
        """By client; the one that has got a slot most recently is the last."""

    @contextlib.asynccontextmanager
    async def slot(self, client: str) -> AsyncIterator[None]:
        """Waits for a slot; it is free again behind the block."""
        await self._wait(client)
        try:
            yield
        finally:
            self._end(client)

    async def _wait(self, client: str) -> None:
        come: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting[client].append(come)
        self._begin()
        try:
            await come
        except asyncio.CancelledError:
            if come.done() and not come.cancelled():
                self._end(client)
            raise

    def _end(self, client: str) -> None:
        self._working[client] -= 1
        self._working += Counter()  # drops clients without work
        self._begin()

    def _begin(self) -> None:
        """Gives the free slots to the clients that wait: those with the least work, then the longest wait."""
        while self._working.total() < self._most:
            for client, waiting in list(self._waiting.items()):
                while waiting and waiting[0].done():  # cancelled
                    waiting.popleft()
                if not waiting:
                    del self._waiting[client]
            may = [one for one in self._waiting if self._working[one] < self._of_a_client]
            if not may:
                return
            client = min(may, key=self._working.__getitem__)
            self._working[client] += 1
            waiting = self._waiting.pop(client)
            waiting.popleft().set_result(None)
            if waiting:
                self._waiting[client] = waiting
