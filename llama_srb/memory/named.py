"""The memories of a server, by name; each is opened when it is first used."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable
from typing import TypeAlias

from .documents import DEFAULT_LIMITS, DocumentLimits
from .memory import Memory
from .records import EmbeddingModel, FileStore, MemorySettings, no_such

ModelOf: TypeAlias = Callable[[str], Awaitable[EmbeddingModel]]


class Memories:
    """All configured memories. model_of: the model of a name, which it may have to load."""

    def __init__(
        self,
        settings: Iterable[MemorySettings],
        model_of: ModelOf,
        limits: DocumentLimits = DEFAULT_LIMITS,
    ) -> None:
        self.settings = {one.name: one for one in settings}
        self._model_of = model_of
        self._limits = limits
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

    async def get(self, name: str) -> Memory:
        """The memory of a name; RequestError (404) with the nearest name, MemoryUnusable."""
        self.require(name)
        async with self._opening[name]:  # a file is opened once, however many requests come first
            if name not in self._open:
                settings = self.settings[name]
                model = await self._model_of(settings.embedding_model)
                self._open[name] = await Memory.open(settings, model, self._limits)
            return self._open[name]

    async def close(self) -> None:
        """Closes all; a write that has begun is finished first."""
        while self._open:
            _, memory = self._open.popitem()
            await memory.close()
