"""Responses that stay in memory for a while, so that later requests of the same client may name them.

Their number is bounded for each client, their bytes for each client and for all together, and the time since
their last use. What is above a bound is forgotten: of a client what it has not used for longest, and above
the bytes of all of the client that has the most. Knows neither HTTP nor what is in an item.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter, OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

OVERHEAD = 4096  # bytes that each one counts beside its content: more than it takes, so that clients are few
SHARE = 4  # one client has at most this part of the bytes of all
SWEEP = 5.0  # seconds between two looks for what is too old
SWEPT = 5000  # of them at once


@dataclass(frozen=True, slots=True)
class KeptResponse:
    """A response as JSON. before: the id of the response that it goes on from.

    input: the list of the items that the client has sent. output: the list of those that were generated.
    rest: the response without `output`.
    """

    id: str
    before: str | None
    input: bytes
    output: bytes
    rest: bytes

    @property
    def size(self) -> int:
        return OVERHEAD + len(self.input) + len(self.output) + len(self.rest)

    @property
    def body(self) -> bytes:
        """The whole response."""
        return b'{"output":' + self.output + b"," + self.rest[1:]


class KeptResponses:
    """Responses by client and id. Threads may call it.

    most: of one client; 0: none is kept. size: bytes of all. seconds: since the last use; None: no bound.
    """

    def __init__(
        self, most: int, size: int, seconds: float | None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.most, self._size, self._seconds, self._clock = most, size, seconds, clock
        self.largest = size // SHARE if most else 0  # bytes of all that one client has
        self._of: dict[str, OrderedDict[str, KeptResponse]] = {}  # by client; what was used last is last
        self._used: OrderedDict[tuple[str, str], float] = OrderedDict()  # when; what was used last is last
        self._bytes = Counter[str]()  # by client
        self._total = 0
        self._lock = threading.RLock()

    @property
    def sizes(self) -> Counter[str]:
        """Bytes by client."""
        return Counter(self._bytes)

    def __len__(self) -> int:
        return len(self._used)

    def has(self, client: str, id: str) -> bool:
        """Whether a response is kept; this is no use of it."""
        return id in self._of.get(client, {}) and not self._is_old(client, id)

    def keep(self, client: str, response: KeptResponse) -> None:
        """Keeps a response, and forgets what is above the bounds then, which may be this one."""
        with self._lock:
            self.remove(client, response.id)
            own = self._of.setdefault(client, OrderedDict())
            own[response.id] = response
            self._use(client, response.id)
            self._bytes[client] += response.size
            self._total += response.size
            while len(own) > self.most or self._bytes[client] > self.largest:
                self.remove(client, next(iter(own)))
            while self._total > self._size:
                self._relieve()

    def _relieve(self) -> None:
        """Forgets responses of the client that has the most, until it has less than is due to each."""
        client = max(self._bytes, key=self._bytes.__getitem__)
        own, due = self._of[client], self._size // len(self._of)
        while own and self._total > self._size and self._bytes[client] >= due:
            self.remove(client, next(iter(own)))

    def find(self, client: str, id: str) -> KeptResponse | None:
        """A response of the client, which is used now."""
        with self._lock:
            if not self.has(client, id):
                return None
            self._use(client, id)
            return self._of[client][id]

    def chain(self, client: str, id: str) -> list[KeptResponse] | None:
        """A response of the client and all that it goes on from, the first one first; None if one is gone."""
        found: list[KeptResponse] = []
        before: str | None = id
        with self._lock:
            while before is not None:
                if not self.has(client, before):
                    return None
                found.append(self._of[client][before])
                before = found[-1].before
            found.reverse()
            for one in found:
                self._use(client, one.id)
        return found

    def _use(self, client: str, id: str) -> None:
        self._of[client].move_to_end(id)
        self._used[client, id] = self._clock()
        self._used.move_to_end((client, id))

    def remove(self, client: str, id: str) -> bool:
        """Forgets a response; False if the client has none of this id."""
        with self._lock:
            own: dict[str, KeptResponse] = self._of.get(client, {})
            if id not in own:
                return False
            found, is_old = own.pop(id), self._is_old(client, id)
            del self._used[client, id]
            self._bytes[client] -= found.size
            self._total -= found.size
            if not own:
                del self._of[client], self._bytes[client]
            return not is_old

    def _is_old(self, client: str, id: str) -> bool:
        return self._seconds is not None and self._used[client, id] < self._clock() - self._seconds

    def forget_old(self) -> None:
        """Forgets up to SWEPT responses that are too old."""
        with self._lock:
            for _ in range(SWEPT):
                oldest = next(iter(self._used), None)
                if oldest is None or not self._is_old(*oldest):
                    return
                self.remove(*oldest)

    async def sweep(self) -> None:
        """Forgets what is too old, until it is cancelled."""
        while True:
            await asyncio.sleep(SWEEP)
            self.forget_old()
