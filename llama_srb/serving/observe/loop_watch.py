"""How long the event loop stands still, in which nobody is served. Knows no HTTP.

It looks only while requests are open, so that an idle server sleeps.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import Counter
from collections.abc import Callable, Iterator

log = logging.getLogger(__name__)

PERIOD = 0.05  # seconds between two looks; a stall may be this much longer than what is measured
LOGGED = 0.25  # seconds; a longer stall is a line in the log
MAX_NAMED = 4  # routes in that line


class LoopWatch:
    """Measures by how much timers are late. observe() gets each delay in seconds.

    The first look at a request is at its begin, so what it does until it first waits is measured whole.
    """

    def __init__(self, observe: Callable[[float], None]) -> None:
        self._observe = observe
        self._open, self._seen = Counter[str](), set[str]()  # routes: now, and since the last look
        self._due: float | None = None  # of the next look
        self._cpu = 0.0

    @contextlib.contextmanager
    def during(self, route: str) -> Iterator[None]:
        """Looks until the block ends, in which a request of this route is open."""
        self._open[route] += 1
        self._seen.add(route)
        if self._due is None:
            self._look_after(0)
        try:
            yield
        finally:
            self._open[route] -= 1
            if not self._open[route]:
                del self._open[route]

    @property
    def is_looking(self) -> bool:
        """Whether a look is planned."""
        return self._due is not None

    def _look_after(self, seconds: float) -> None:
        self._due, self._cpu = time.monotonic() + seconds, time.process_time()
        asyncio.get_running_loop().call_later(seconds, self._look)

    def _look(self) -> None:
        assert self._due is not None
        late, cpu = max(0.0, time.monotonic() - self._due), time.process_time() - self._cpu
        self._observe(late)
        if late > LOGGED:
            first, more = sorted(self._seen)[:MAX_NAMED], len(self._seen) - MAX_NAMED
            routes = ", ".join(first) + (f" and {more} more routes" if more > 0 else "")
            log.warning("the event loop stood still for %.3f s (%.3f s of CPU) during %s", late, cpu, routes)
        self._due, self._seen = None, {*self._open}
        if self._open:
            self._look_after(PERIOD)
