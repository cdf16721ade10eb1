"""Slots for work that few may do at once: fair between clients, however much one of them asks for."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

from llama_srb.turns import Turns


class Slots:
    """most: how many may work at once; of_a_client: how many of one client."""

    def __init__(self, most: int, of_a_client: int) -> None:
        self._turns = Turns[asyncio.Future[None]](most, of_a_client)

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
        self._turns.wait(client, come)
        self._begin()
        try:
            await come
        except asyncio.CancelledError:
            if come.done() and not come.cancelled():
                self._end(client)
            raise

    def _end(self, client: str) -> None:
        self._turns.end(client)
        self._begin()

    def _begin(self) -> None:
        """Gives the free slots to those that wait."""
        while (begun := self._turns.begin()) is not None:
            client, come = begun
            if come.cancelled():
                self._turns.end(client)
            else:
                come.set_result(None)
