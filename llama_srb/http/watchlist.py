"""Generations that clients look on at by KoboldCpp's genkey. A client finds its own ones only.

Knows neither HTTP nor keys: who a client is, and who may end what others generate, handlers/ says. Keeps
what can be shown and never the request, and is bounded in bytes, of all clients together and of each.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from llama_srb.dialects.koboldai import Seen
from llama_srb.engine.events import Event
from llama_srb.engine.exchange import Exchange

MOST = 64  # that are remembered
MOST_BYTES = 32 << 20
SHARE_BYTES = 2 << 20  # of one client: a text of 7,000 tokens with 5 alternatives each


@dataclass(slots=True)
class Watched:
    """A generation by its id, and what it has said until now, as long as it is in the list."""

    key: tuple[str, str]
    id: str
    seen: Seen
    generation: Exchange | None  # until its request is over: it has the whole prompt

    @property
    def is_running(self) -> bool:
        return self.generation is not None and self.generation.state != "done"


class Watchlist:
    """The last generations, by client and genkey; a client's next one of the same genkey takes its place."""

    def __init__(self) -> None:
        self._all: dict[tuple[str, str], Watched] = {}  # the last one last

    def add(self, genkey: str, generation: Exchange, seen: Seen) -> Watched:
        """The client is the generation's. Beyond the bound the oldest goes of the client that has most."""
        key = (generation.client, genkey)
        self._all.pop(key, None)
        self._all[key] = watched = Watched(key, generation.id, seen, generation)
        if len(self._all) > MOST:
            counts = Counter(client for client, _ in self._all)
            most = max(counts.values())
            del self._all[next(key for key in self._all if counts[key[0]] == most)]
        return watched

    def take(self, watched: Watched, events: Iterable[Event]) -> None:
        """Events of one of them, which follow those of the last call; what becomes too much is forgotten."""
        if self._all.get(watched.key) is not watched:
            return
        watched.seen.take(events)
        sizes = self.sizes
        while sizes and (max(sizes.values()) > SHARE_BYTES or sizes.total() > MOST_BYTES):
            if not self._forget(max(sizes, key=sizes.__getitem__)):
                return
            sizes = self.sizes

    @property
    def sizes(self) -> Counter[str]:
        """Bytes, by client."""
        sizes = Counter[str]()
        for (client, _), watched in self._all.items():
            sizes[client] += watched.seen.size
        return sizes

    def _forget(self, client: str) -> bool:
        """The client's oldest generation that is over; else, of its largest, what is least missed."""
        own = {key: watched for key, watched in self._all.items() if key[0] == client}
        for key, watched in own.items():
            if not watched.is_running and len(own) > 1:
                del self._all[key]
                return True
        by_size = sorted(own.values(), key=lambda watched: -watched.seen.size)
        return any(watched.seen.shrink() for watched in by_size)  # until one has

    def find(self, client: str, genkey: str) -> Watched | None:
        return self._all.get((client, genkey))

    def of(self, client: str) -> list[Watched]:
        """All of one client, the last one last."""
        return [watched for (owner, _), watched in self._all.items() if owner == client]

    def named(self, genkey: str) -> list[Watched]:
        """All of this genkey, whoever began them."""
        return [watched for (_, name), watched in self._all.items() if name == genkey]
