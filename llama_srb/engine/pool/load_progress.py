"""Tells the requests that wait for a load how far it is."""

from __future__ import annotations

import asyncio

from llama_srb.engine.pool.requests import Requests

STEP = 0.05  # a change of the progress that is told at once
INTERVAL = 0.5  # seconds after which a smaller change is told


class LoadProgress:
    """The progress that the waiting requests of a pool were told last."""

    def __init__(self, requests: Requests) -> None:
        self._requests = requests
        self._told: float | None = None  # None: they wait for no load
        self._told_at = 0.0

    def changed(self, progress: float | None) -> None:
        """Tells the waiting requests if it is news for them. None: they wait for no load."""
        if progress is None:
            self._told = None
        elif self._is_news(progress):
            self._told, self._told_at = progress, asyncio.get_running_loop().time()
            for exchange in self._requests.waiting:
                exchange.tell(progress)

    def _is_news(self, progress: float) -> bool:
        if self._told is None or abs(progress - self._told) >= STEP:
            return True
        late = asyncio.get_running_loop().time() - self._told_at >= INTERVAL
        return late and progress != self._told
