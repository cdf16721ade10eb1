"""The memories of a server, by name; each is opened when it is first used.

A reload makes another object of them. Stores that both have stay open, so that one thread writes to each.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Collection, Iterable
from typing import TypeAlias

from .documents import Documents
from .one_memory import Memory, open_store
from .records import (
    NO_MODEL,
    EmbeddingModel,
    Facts,
    FileStore,
    MemorySettings,
    QdrantSettings,
    extra,
    no_such,
)
from .stores import Store

ModelOf: TypeAlias = Callable[[str], Awaitable[EmbeddingModel]]
Place: TypeAlias = tuple[str, FileStore | QdrantSettings]
"""A memory's name, and where its store is."""


class OpenStores:
    """The stores that are open; each is closed when all who have opened it have closed it."""

    def __init__(self) -> None:
        self._stores: dict[Place, Store] = {}
        self._users: defaultdict[Place, int] = defaultdict(int)
        self._locks: defaultdict[Place, asyncio.Lock] = defaultdict(asyncio.Lock)

    async def open(self, memory: MemorySettings, facts: Facts) -> Store:
        """The store of a memory whose vectors have these facts; MemoryUnusable."""
        place = _place(memory)
        async with self._locks[place]:  # it is opened once, however many requests come first
            if (store := self._stores.get(place)) is None:
                store = self._stores[place] = await open_store(memory, facts)
            else:
                await store.require(facts)
            self._users[place] += 1
            return store

    async def close(self, memory: MemorySettings) -> None:
        """Closes the store, if nobody else has it; a write that has begun is finished first."""
        place = _place(memory)
        async with self._locks[place]:
            self._users[place] -= 1
            if not self._users[place]:
                await self._stores[place].close()
                del self._stores[place]

    async def close_all(self) -> None:
        """Closes all stores, also those that others have."""
        for store in list(self._stores.values()):
            await store.close()
        self._stores.clear()


def _place(memory: MemorySettings) -> Place:
    return memory.name, memory.store


class Memories:
    """All configured memories. model_of: the model of a name, which it may have to load."""

    def __init__(
        self,
        settings: Iterable[MemorySettings],
        model_of: ModelOf,
        stores: OpenStores | None = None,
        documents: Documents | None = None,
    ) -> None:
        self.settings = {one.name: one for one in settings}
        self._model_of = model_of
        self._stores = stores or OpenStores()
        self._documents = documents or Documents()
        self._open: dict[str, Memory] = {}
        self._opening = {name: asyncio.Lock() for name in self.settings}

    def require(self, name: str, shown: Collection[str] | None = None) -> None:
        """RequestError (404) if there is no memory of this name. shown: names that may be in its message."""
        if name not in self.settings:
            raise no_such("memory", name, tuple(self.settings if shown is None else shown))

    async def open_files(self) -> None:
        """Opens the memories that are files; MemoryUnusable. Others are opened when they are used."""
        for name, settings in self.settings.items():
            if isinstance(settings.store, FileStore):
                await self.get(name)
            else:  # importing it takes a second, for which no request has to wait
                await asyncio.to_thread(extra, "qdrant_client")

    async def get(self, name: str) -> Memory:
        """The memory of a name; RequestError (404) with the nearest name, MemoryUnusable."""
        self.require(name)
        async with self._opening[name]:
            if name not in self._open:
                settings = self.settings[name]
                name_of_model = settings.embedding_model
                model = NO_MODEL if name_of_model is None else await self._model_of(name_of_model)
                store = await self._stores.open(settings, model.facts(settings))
                self._open[name] = Memory(settings, model, store, self._documents)
            return self._open[name]

    async def close(self) -> None:
        """Closes all; a write that has begun is finished first."""
        while self._open:
            _, memory = self._open.popitem()
            await self._stores.close(memory.settings)
