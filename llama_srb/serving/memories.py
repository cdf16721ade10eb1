"""The memories of a server for a caller: those that its key may use, as the owner that it is.

Vectors are computed by a reservation of the caller, so that its limits and budgets count them. A reload makes
another object; the requests that have begun with this one finish with it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from hashlib import sha256

from llama_srb.engine.exchange import EngineError, EngineUnavailable
from llama_srb.memory.chunks import PER_TOKEN, SHORT
from llama_srb.memory.documents import Documents
from llama_srb.memory.embedding import Vectoriser, check_reranker, relevance
from llama_srb.memory.filters import NO_FILTER, Filter
from llama_srb.memory.named import Memories, OpenStores
from llama_srb.memory.one_memory import Memory
from llama_srb.memory.records import (
    OPERATOR,
    PROMPT,
    PROMPT_ID,
    WITHOUT_KEY,
    EmbeddingModel,
    Found,
    MemorySettings,
    MemoryUnusable,
)
from llama_srb.memory.words import last_words
from llama_srb.models.gguf_header import ModelInfo
from llama_srb.models.served import ServedModel
from llama_srb.request.truncate import Command
from llama_srb.request.values import RequestError, SearchBy
from llama_srb.serving.keys.caller import Caller
from llama_srb.serving.model_registry import ModelRegistry
from llama_srb.serving.pending_prompts import Named, Pending

log = logging.getLogger(__name__)

NOT_ALLOWED = "memory_not_allowed"


@dataclass(frozen=True, slots=True)
class Lasting:
    """What stays when a reload makes other memories.

    documents: reads them; stores: those that are open; pending: prompts that are being stored.
    """

    documents: Documents = field(default_factory=Documents)
    stores: OpenStores = field(default_factory=OpenStores)
    pending: Pending = field(default_factory=Pending)


class MemoryAccess:
    """What callers may do with the memories; tasks use it, too. `open` it first, `close` it at the end."""

    def __init__(self, settings: list[MemorySettings], registry: ModelRegistry, lasting: Lasting) -> None:
        self.lasting = lasting
        self._registry = registry
        self._vectorisers: dict[str, tuple[ModelInfo, Vectoriser]] = {}  # by model; they read a file
        self._memories = Memories(settings, self._model_of, lasting.stores, lasting.documents)
        self._coming: Mapping[str, ServedModel] = {}
        self._users = 0
        self._unused = asyncio.Event()

    @property
    def settings(self) -> Mapping[str, MemorySettings]:
        """The settings of each memory by its name."""
        return self._memories.settings

    async def open(self, coming: Mapping[str, ServedModel] | None = None) -> None:
        """Checks all memories, and opens those that are files; MemoryUnusable.

        coming: models by name that will be served with them, in place of those that are.
        """
        self._coming = coming or {}
        for settings in self.settings.values():
            if (model := settings.embedding_model) is not None:
                (await self._vectoriser_of(self._served(model))).check(settings)
            if settings.reranker is not None:
                served = self._served(settings.reranker)
                check_reranker(settings, served.settings, served.info)
        await self._memories.open_files()
        self._coming = {}

    async def close(self) -> None:
        await self._memories.close()

    @contextlib.contextmanager
    def use(self) -> Iterator[MemoryAccess]:
        """The memories stay open during the block, also if a reload takes others."""
        self._users += 1
        try:
            yield self
        finally:
            self._users -= 1
            if not self._users:
                self._unused.set()

    async def leave(self) -> None:
        """Closes the memories when nobody uses them any more."""
        while self._users:
            self._unused.clear()
            await self._unused.wait()
        await self.close()

    def allowed(self, caller: Caller) -> list[MemorySettings]:
        """The memories that a caller may use."""
        names = None if caller.grant is None else caller.grant.memories
        return [one for one in self.settings.values() if names is None or one.name in names]

    async def search_by(self, settings: MemorySettings) -> SearchBy:
        """How a memory is searched where a request says nothing."""
        if settings.embedding_model is None or settings.search is not None:
            return settings.searched_by(is_made_to_embed=False)
        try:
            vectoriser = await self._vectoriser_of(self._served(settings.embedding_model))
        except MemoryUnusable:  # a search says so
            return settings.searched_by(is_made_to_embed=False)
        return settings.searched_by(vectoriser.is_made_to_embed)

    # For handlers

    async def reading(self, name: str, caller: Caller) -> Memory:
        """A memory from which documents are read and deleted; RequestError, MemoryUnusable."""
        self.require(name, caller)
        await self.lasting.pending.wait(name, reader_of(caller))
        return (await self._memories.get(name)).of(caller.client)

    @contextlib.asynccontextmanager
    async def computing(self, name: str, caller: Caller) -> AsyncIterator[tuple[Memory, Command | None]]:
        """A memory that computes vectors, and the commands of its model, if it has one.

        RequestError, MemoryUnusable.
        """
        self.require(name, caller)
        await self.lasting.pending.wait(name, reader_of(caller))
        async with self._computing(name, caller) as computing:
            yield computing

    @contextlib.contextmanager
    def _ranked(self, memory: Memory, caller: Caller) -> Iterator[Memory]:
        """The memory with its reranker, if it has one; the caller's request has its slot already."""
        if (name := memory.settings.reranker) is None:
            yield memory
            return
        admission, served = self._registry.admission, self._served(name)
        with admission.reserve(caller, served, yields=True, again=True, owed=True) as reservation:
            yield memory.ranked_by(partial(relevance, reservation))

    @contextlib.asynccontextmanager
    async def searching(self, name: str, caller: Caller) -> AsyncIterator[Memory]:
        """A memory that is searched; RequestError, MemoryUnusable."""
        async with self.computing(name, caller) as (memory, _):
            with self._ranked(memory, caller) as ranked:
                yield ranked

    @contextlib.asynccontextmanager
    async def _computing(
        self, name: str, caller: Caller, *, inner: bool = False, owed: bool = False
    ) -> AsyncIterator[tuple[Memory, Command | None]]:
        """inner, owed: as of Admission.reserve()."""
        memory = (await self._memories.get(name)).of(caller.client)
        if memory.settings.embedding_model is None:
            yield memory, None
            return
        served = self._served(memory.settings.embedding_model)
        vectoriser = await self._vectoriser_of(served)
        admission = self._registry.admission
        with admission.reserve(caller, served, again=True, owed=owed, inner=inner) as reservation:
            yield await memory.using(vectoriser.model(reservation)), reservation.command

    def require(self, name: str, caller: Caller) -> None:
        """RequestError if the caller may not use this memory, or if there is none of this name."""
        allowed = [one.name for one in self.allowed(caller)]
        if name in self.settings and name not in allowed:
            may = "the memories " + ", ".join(allowed[:8]) if allowed else "no memory"
            message = f"this key may use {may}, not {name}"
            raise RequestError(message, param="memory", status=403, code=NOT_ALLOWED)
        self._memories.require(name, allowed)

    # For tasks: a key that may use a task may use its memory

    async def recall(
        self, name: str, text: str, k: int, caller: Caller, filter: Filter = NO_FILTER, prompts: int = 0,
        by: SearchBy | None = None, around: int = 0,
    ) -> list[Found]:  # fmt: skip
        """The chunks that fit the end of a text best, of those that the caller finds, best first.

        k: most chunks of documents; prompts: most chunks of prompts, none of which says the same as the text.
        by, around: as of Memory.search().
        """
        await self.lasting.pending.wait(name, reader_of(caller))
        async with self._computing(name, caller, inner=True) as (memory, command):
            query = await end_of(text, memory.settings.chunking.tokens, command)
            if not query.strip():
                return []
            wanted = [(k, filter.with_prompts(only=False))]
            if prompts:
                wanted.append((prompts, filter.with_prompts(only=True, besides=prompt_id(text))))
            with self._ranked(memory, caller) as ranked:
                return await ranked.search_each(query, wanted, reader_of(caller), by, around)

    def store(self, name: str, text: str, caller: Caller) -> None:
        """Begins to store a prompt; all looks at the memory by this caller wait until it is there.

        Prompts that say the same are stored once: for each owner; in a shared memory for all.
        """
        shared = name in self.settings and self.settings[name].shared
        named = Named(name, reader_of(caller), prompt_id(text), shared)
        self.lasting.pending.begin(named, lambda: self._store(named, text, caller.detached))

    async def _store(self, named: Named, text: str, caller: Caller) -> None:
        """Nobody waits for an error, so it becomes a line of the log."""
        name, owner, id, _ = named
        try:
            with self.use():
                async with self._computing(name, caller, owed=True) as (memory, _):
                    known = await memory.get(id, owner) if memory.settings.shared else None
                    if known is None or prompt_id(known.text) != id:  # a document may have this id
                        await memory.put(id, text, metadata=PROMPT, owner=owner)
        except (RequestError, MemoryUnusable, EngineError, EngineUnavailable) as error:
            log.warning("memory %s: a prompt of %s was not stored: %s", name, owner, error)

    # Models

    async def _model_of(self, name: str) -> EmbeddingModel:
        """The model by its own pool, for opening a memory."""
        served = self._served(name)
        return (await self._vectoriser_of(served)).model(served.pool)

    def _served(self, name: str) -> ServedModel:
        if (coming := self._coming.get(name)) is not None:
            return coming
        if (choice := self._registry.names.find(name)) is None:
            raise MemoryUnusable(f"the model {name} is not served any more")
        return choice.model.served

    async def _vectoriser_of(self, served: ServedModel) -> Vectoriser:
        info, known = self._vectorisers.get(served.name, (None, None))
        if known is None or info is not served.info:
            info = served.info
            known = await asyncio.to_thread(Vectoriser.of, served.settings, info)
            self._vectorisers[served.name] = (info, known)
        return known


def owner_of(caller: Caller) -> str:
    """The owner of the documents that a caller stores: the operator if it is an admin, or needs no key."""
    return OPERATOR if caller.grant is None or caller.is_admin else caller.grant.client


def reader_of(caller: Caller) -> str:
    """The owner of a caller's prompts, an admin's too. It finds what is this owner's and the operator's."""
    return WITHOUT_KEY if caller.grant is None else caller.grant.client


def prompt_id(text: str) -> str:
    """The id of a stored prompt; short prompts that differ by space, case and their end have the same."""
    said = " ".join(text.casefold().split()).rstrip(" .!?…") if len(text) <= SHORT else ""
    return PROMPT_ID + sha256((said or text).encode(errors="surrogatepass")).hexdigest()[:32]


async def end_of(text: str, tokens: int, command: Command | None) -> str:
    """The end of a text with at most this many tokens; without a model's commands words are counted."""
    end = text[-PER_TOKEN * tokens :]
    if command is None:
        return last_words(end, tokens)
    ids = (await command("tokenize", text=end, add_special=False))["tokens"]
    if len(ids) <= tokens:
        return end
    return str((await command("detokenize", tokens=ids[-tokens:]))["text"])
