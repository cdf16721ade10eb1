"""The server's limits on load, and the clients' budgets of tokens a minute."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass

MINUTE = 60.0


@dataclass(frozen=True, slots=True)
class Load:
    """A server's limits on waiting requests, unread events and times in seconds; None means no limit."""

    max_queue: int = 256
    max_unread: int = 250_000
    queue_timeout: float | None = None
    request_timeout: float | None = None


@dataclass(slots=True)
class Budget:
    """A token bucket. It may be overdrawn by one request, whose cost is known only after it has run."""

    per_minute: float
    left: float
    at: float

    def refill(self, per_minute: float, now: float) -> None:
        self.per_minute = per_minute
        self.left = min(per_minute, self.left + (now - self.at) * per_minute / MINUTE)
        self.at = now

    @property
    def wait(self) -> int:
        """Whole seconds until at least one token is left."""
        return math.ceil(max(0.0, (1 - self.left) * MINUTE / self.per_minute))


class Budgets:
    """The clients' budgets. Only clients that have spent tokens lately have one: a full budget is dropped."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._all: dict[str, Budget] = {}
        self._swept = clock()

    def __len__(self) -> int:
        return len(self._all)

    def wait(self, client: str, per_minute: int) -> int:
        """Whole seconds until the client has at least one token left."""
        if (budget := self._all.get(client)) is None:
            return 0
        budget.refill(per_minute, self._clock())
        return budget.wait

    def spend(self, client: str, per_minute: int, tokens: int) -> None:
        now = self._clock()
        self._sweep(now)
        budget = self._all.setdefault(client, Budget(per_minute, per_minute, now))
        budget.refill(per_minute, now)
        budget.left -= tokens

    def _sweep(self, now: float) -> None:
        """Drops full budgets, once a minute: JWTs may have any number of names."""
        if now - self._swept < MINUTE:
            return
        self._swept = now
        for client, budget in list(self._all.items()):
            budget.refill(budget.per_minute, now)
            if budget.left >= budget.per_minute:
                del self._all[client]
