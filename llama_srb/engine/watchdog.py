"""Whether an engine that has requests still makes steps."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from llama_srb.engine.commands import encode
from llama_srb.engine.events import Result
from llama_srb.engine.router import WATCHDOG, Router

LOOKS = 4  # in one step_timeout; in the middle of them it asks, and an answer needs a step


class Watchdog:
    """Of one engine.

    send writes a line to it and returns the line's number; on_fault is told what is wrong.
    """

    def __init__(self, router: Router, send: Callable[[bytes], int], on_fault: Callable[[str], None]) -> None:
        self._router = router
        self._send = send
        self._on_fault = on_fault
        self._steps: object = None  # that it had made when it answered last
        self._asked = 0  # the line of the open question; 0: there is none

    async def watch(self, limit: float | None) -> None:
        """Returns after a fault: no step in `limit` seconds although the engine had requests.

        In looks and not in seconds: if this process itself stood still, what came is read before the next.
        """
        silent, router = 0, self._router
        while limit is not None:
            await asyncio.sleep(limit / LOOKS)
            silent = 0 if router.heard or not len(router) else silent + 1
            router.heard = False
            if self._asked == 0 and (silent >= LOOKS // 2 or router.owes_acknowledgement):
                self._asked = self._send(
                    encode("status", WATCHDOG)
                )  # a long text that is scored tells nothing
            if silent == LOOKS:
                requests = f"{len(router)} request{'s' * (len(router) > 1)}"
                self._on_fault(f"no step in {limit:g} s while it had {requests} (--step-timeout)")
                return

    def answered(self, status: Result) -> None:
        """An answer alone is no sign of life: the loop may turn and decode nothing."""
        steps = status.data.get("steps"), status.data.get("commands")
        self._router.heard, self._steps = steps != self._steps, steps
        asked, self._asked = self._asked, 0
        self._router.fail_overlooked(asked)
