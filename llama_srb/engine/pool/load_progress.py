"""Tells the requests that wait for a load how far it is."""

from __future__ import annotations

from llama_srb.engine.exchange import Exchange
from llama_srb.engine.pool.requests import Requests

STEP = 0.05  # a change of the progress that is told at once
INTERVAL = 0.5  # seconds after which a smaller change is told


class LoadProgress:
    """The progress that each waiting request of a pool was told last, and when."""

    def __init__(self, requests: Requests) -> None:
        self._requests = requests
        self._told: dict[str, tuple[float, float]] = {}

    def changed(self, progress: float | None) -> None:
        """Tells it to the requests for which it is news. None: they wait for no load."""
        waiting = [] if progress is None else self._requests.waiting
        self._told = {one.id: self._told[one.id] for one in waiting if one.id in self._told}
        for exchange in waiting:
            assert progress is not None
            self._tell(exchange, progress)

    def _tell(self, exchange: Exchange, progress: float) -> None:
        now = exchange.ending.get_loop().time()
        before, at = self._told.get(exchange.id, (-1.0, now))
        if abs(progress - before) >= STEP or (progress != before and now - at >= INTERVAL):
            self._told[exchange.id] = progress, now
            exchange.tell(progress)
