"""Few requests go on between two turns of the event loop, however many come at once. Fair between clients."""

from __future__ import annotations

import asyncio

from llama_srb.threads import client
from llama_srb.turns import Turns

AT_ONCE = 8  # requests between two turns; each takes a millisecond at most, if its body is short


class Pace:
    """Whoever comes while AT_ONCE others go on waits for one of the next turns of the event loop."""

    def __init__(self) -> None:
        self._turns = Turns[asyncio.Future[None]](AT_ONCE, AT_ONCE)
        self._is_planned = False

    async def turn(self) -> None:
        """Returns when the current task's client may go on: at once if few have come."""
        own, turns = client.get(), self._turns
        if turns.working.total() < AT_ONCE:  # then nobody waits
            turns.working[own] += 1
            self._plan()
            return
        come: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        turns.wait(own, come)
        await come

    def _begin(self) -> None:
        while (begun := self._turns.begin()) is not None:
            _, come = begun
            if not come.cancelled():
                come.set_result(None)
        self._plan()

    def _plan(self) -> None:
        if self._turns.working and not self._is_planned:
            self._is_planned = True
            asyncio.get_running_loop().call_soon(self._next)

    def _next(self) -> None:
        self._is_planned = False
        self._turns.working.clear()
        self._begin()
