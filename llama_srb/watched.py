"""Generations that clients look on at by KoboldCpp's genkey. A client finds its own ones only.

Knows neither HTTP nor keys: who a client is, and who may end what others generate, handlers.py says.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from llama_srb.dialects.reply import Reply
from llama_srb.pool import Generation

MOST = 64  # that are remembered


@dataclass(frozen=True, slots=True)
class Watched:
    """A generation, and what it has said until now."""

    generation: Generation
    reply: Reply

    @property
    def is_running(self) -> bool:
        return self.generation.state != "done"


class Watchlist:
    """The last generations, by client and genkey; a client's next one of the same genkey takes its place."""

    def __init__(self) -> None:
        self._all: dict[tuple[str, str], Watched] = {}  # the last one last

    def add(self, genkey: str, generation: Generation, reply: Reply) -> None:
        """The client is the generation's. Beyond the bound the oldest goes of the client that has most."""
        key = (generation.client, genkey)
        self._all.pop(key, None)
        self._all[key] = Watched(generation, reply)
        if len(self._all) > MOST:
            counts = Counter(client for client, _ in self._all)
            most = max(counts.values())
            del self._all[next(key for key in self._all if counts[key[0]] == most)]

    def find(self, client: str, genkey: str) -> Watched | None:
        return self._all.get((client, genkey))

    def of(self, client: str) -> list[Watched]:
        """All of one client, the last one last."""
        return [watched for (owner, _), watched in self._all.items() if owner == client]

    def named(self, genkey: str) -> list[Watched]:
        """All of this genkey, whoever began them."""
        return [watched for (_, name), watched in self._all.items() if name == genkey]
