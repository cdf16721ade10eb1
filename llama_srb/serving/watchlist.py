"""Generations whose progress clients poll by KoboldCpp's genkey. A client finds only its own.

Knows neither HTTP nor keys: http/handlers/ decides who a client is, and who may end another one's generation.
Keeps the generated text, never the request. Its bytes are bounded, for each client and for all together.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from llama_srb.dialects.koboldai import GenerationRecord
from llama_srb.engine.events import Event
from llama_srb.engine.exchange import Exchange

MOST = 64  # generations
MOST_BYTES = 32 << 20  # of all clients
SHARE_BYTES = 2 << 20  # of one client: a text of 7,000 tokens with 5 alternatives each


@dataclass(slots=True)
class Watched:
    """A generation with its text so far, which grows while it is in the list."""

    key: tuple[str, str]  # client, genkey
    id: str
    record: GenerationRecord
    generation: Exchange | None  # None after its request has ended, since it holds the whole prompt

    @property
    def is_running(self) -> bool:
        return self.generation is not None and self.generation.state != "done"


class Watchlist:
    """The last generations by client and genkey. A new one replaces the client's old one of this genkey."""

    def __init__(self) -> None:
        self._all: dict[tuple[str, str], Watched] = {}  # the newest last

    def add(self, genkey: str, generation: Exchange, record: GenerationRecord) -> Watched:
        """Adds a generation of its client. Above MOST the oldest of the client with the most is removed."""
        key = (generation.client, genkey)
        self._all.pop(key, None)
        self._all[key] = watched = Watched(key, generation.id, record, generation)
        if len(self._all) > MOST:
            counts = Counter(client for client, _ in self._all)
            most = max(counts.values())
            del self._all[next(key for key in self._all if counts[key[0]] == most)]
        return watched

    def take(self, watched: Watched, events: Iterable[Event]) -> None:
        """Adds the next events of a generation, and forgets text above the limits of bytes."""
        if self._all.get(watched.key) is not watched:
            return
        watched.record.take(events)
        sizes = self.sizes
        while sizes and (max(sizes.values()) > SHARE_BYTES or sizes.total() > MOST_BYTES):
            if not self._forget(max(sizes, key=sizes.__getitem__)):
                return
            sizes = self.sizes

    @property
    def sizes(self) -> Counter[str]:
        """Bytes by client."""
        sizes = Counter[str]()
        for (client, _), watched in self._all.items():
            sizes[client] += watched.record.size
        return sizes

    def _forget(self, client: str) -> bool:
        """Forgets the client's oldest ended generation; if there is none, shrinks its largest one.

        False if nothing could be forgotten.
        """
        own = {key: watched for key, watched in self._all.items() if key[0] == client}
        for key, watched in own.items():
            if not watched.is_running and len(own) > 1:
                del self._all[key]
                return True
        by_size = sorted(own.values(), key=lambda watched: -watched.record.size)
        return any(watched.record.shrink() for watched in by_size)  # stops at the first that could shrink

    def find(self, client: str, genkey: str) -> Watched | None:
        return self._all.get((client, genkey))

    def of(self, client: str) -> list[Watched]:
        """All generations of one client, the newest last."""
        return [watched for (owner, _), watched in self._all.items() if owner == client]

    def named(self, genkey: str) -> list[Watched]:
        """All generations of this genkey, of any client."""
        return [watched for (_, name), watched in self._all.items() if name == genkey]
