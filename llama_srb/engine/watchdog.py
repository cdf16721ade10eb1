"""Detects an engine that has requests but makes no decode steps."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from llama_srb.engine.commands import encode
from llama_srb.engine.events import Result
from llama_srb.engine.router import WATCHDOG, Router

CHECKS = 4  # in one step_timeout; after half of them without an event the watchdog asks for the status


class Watchdog:
    """The watchdog of one engine.

    send writes a line to the engine and returns the line's number; on_fault gets the reason of a fault.
    """

    def __init__(self, router: Router, send: Callable[[bytes], int], on_fault: Callable[[str], None]) -> None:
        self._router = router
        self._send = send
        self._on_fault = on_fault
        self._steps: object = None  # the counts of steps and commands in the last status
        self._asked = 0  # the line of the status command that is not answered yet; 0: there is none

    async def watch(self, limit: float | None) -> None:
        """Returns after a fault: the engine had requests but made no step in `limit` seconds.

        It counts checks, not seconds: if this process itself was stopped for a while, the events that have
        come meanwhile are read before the next check.
        """
        silent, router = 0, self._router
        while limit is not None:
            await asyncio.sleep(limit / CHECKS)
            silent = 0 if router.heard or not len(router) else silent + 1
            router.heard = False
            if self._asked == 0 and (silent >= CHECKS // 2 or router.owes_acknowledgement):
                # A long text that is scored has steps without events, so only the status shows them.
                self._asked = self._send(encode("status", WATCHDOG))
            if silent == CHECKS:
                requests = f"{len(router)} request{'s' * (len(router) > 1)}"
                self._on_fault(f"no step in {limit:g} s while it had {requests} (--step-timeout)")
                return

    def answered(self, status: Result) -> None:
        """Takes the engine's status. Only a change of its counts is a sign of life: its loop may run idle."""
        steps = status.data.get("steps"), status.data.get("commands")
        self._router.heard, self._steps = steps != self._steps, steps
        asked, self._asked = self._asked, 0
        self._router.fail_overlooked(asked)
