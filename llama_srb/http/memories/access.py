"""The memories of a server for a caller: those that its key may use, as the owner that it is.

Vectors are computed by a reservation of the caller, so that its limits and budgets count them.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from hashlib import sha256

from llama_srb.http.auth.caller import Caller
from llama_srb.http.handlers.chosen import Registry
from llama_srb.http.handlers.facts import ModelFacts
from llama_srb.memory.embedding import Vectoriser
from llama_srb.memory.filters import NO_FILTER, Filter
from llama_srb.memory.memory import Memory
from llama_srb.memory.named import Memories
from llama_srb.memory.records import OPERATOR, EmbeddingModel, Found, MemorySettings, MemoryUnusable, Stored
from llama_srb.models.gguf_header import ModelInfo
from llama_srb.request.truncate import Command
from llama_srb.request.values import RequestError

NOT_ALLOWED = "memory_not_allowed"
PROMPT = {"kind": "prompt"}  # the metadata of a prompt that a task stores
PER_TOKEN = 32  # characters, more than tokens have: of a longer text only the end is tokenized


class MemoryAccess:
    """What callers may do with the memories; tasks use it, too. `open` it first, `close` it at the end."""

    def __init__(self, settings: list[MemorySettings], registry: Registry) -> None:
        self._registry = registry
        self._vectorisers: dict[str, tuple[ModelInfo, Vectoriser]] = {}  # by model; they read a file
        self._memories = Memories(settings, self._model_of)

    async def open(self) -> None:
        """Checks all memories, and opens those that are files; MemoryUnusable."""
        for settings in self._memories.settings.values():
            (await self._vectoriser_of(self._facts_of(settings.embedding_model))).check(settings)
        await self._memories.open_files()

    async def close(self) -> None:
        await self._memories.close()

    def allowed(self, caller: Caller) -> list[MemorySettings]:
        """The memories that a caller may use."""
        names = None if caller.grant is None else caller.grant.memories
        return [one for one in self._memories.settings.values() if names is None or one.name in names]

    # For handlers

    async def reading(self, name: str, caller: Caller) -> Memory:
        """A memory from which documents are read and deleted; RequestError, MemoryUnusable."""
        self.require(name, caller)
        return await self._memories.get(name)

    @contextlib.asynccontextmanager
    async def computing(self, name: str, caller: Caller) -> AsyncIterator[tuple[Memory, Command]]:
        """A memory that computes vectors, and the commands of its model; RequestError, MemoryUnusable."""
        self.require(name, caller)
        async with self._computing(name, caller) as computing:
            yield computing

    @contextlib.asynccontextmanager
    async def _computing(
        self, name: str, caller: Caller, *, yields: bool = False
    ) -> AsyncIterator[tuple[Memory, Command]]:
        """yields: the request has a slot already, so that its vectors need none."""
        memory = await self._memories.get(name)
        facts = self._facts_of(memory.settings.embedding_model)
        vectoriser = await self._vectoriser_of(facts)
        admission = self._registry.admission
        with admission.reserve(caller, facts.served, yields=yields, again=True) as reservation:
            yield memory.using(vectoriser.model(reservation)), reservation.command

    def require(self, name: str, caller: Caller) -> None:
        """RequestError if the caller may not use this memory, or if there is none of this name."""
        allowed = [one.name for one in self.allowed(caller)]
        if name in self._memories.settings and name not in allowed:
            may = "the memories " + ", ".join(allowed[:8]) if allowed else "no memory"
            message = f"this key may use {may}, not {name}"
            raise RequestError(message, param="memory", status=403, code=NOT_ALLOWED)
        self._memories.require(name, allowed)

    # For tasks: a key that may use a task may use its memory

    async def recall(
        self, name: str, text: str, k: int, caller: Caller, filter: Filter = NO_FILTER
    ) -> list[Found]:
        """The k chunks that are nearest to the end of a text, of those that the caller finds, best first."""
        async with self._computing(name, caller, yields=True) as (memory, command):
            query = await end_of(text, memory.settings.chunking.tokens, command)
            return await memory.search(query, k, filter, owner_of(caller)) if query.strip() else []

    async def store(self, name: str, text: str, caller: Caller) -> Stored:
        """Stores a prompt. Its id is a hash, so that the same prompt is stored once."""
        id = "prompt-" + sha256(text.encode(errors="surrogatepass")).hexdigest()[:32]
        async with self._computing(name, caller, yields=True) as (memory, _):
            return await memory.put(id, text, metadata=PROMPT, owner=owner_of(caller))

    # Models

    async def _model_of(self, name: str) -> EmbeddingModel:
        """The model by its own pool, for opening a memory."""
        facts = self._facts_of(name)
        return (await self._vectoriser_of(facts)).model(facts.pool)

    def _facts_of(self, name: str) -> ModelFacts:
        if (choice := self._registry.names.find(name)) is None:
            raise MemoryUnusable(f"the embedding model {name} is not served any more")
        return choice.model

    async def _vectoriser_of(self, facts: ModelFacts) -> Vectoriser:
        info, known = self._vectorisers.get(facts.name, (None, None))
        if known is None or info is not facts.model:
            info = facts.model
            known = await asyncio.to_thread(Vectoriser.of, facts.settings, info)
            self._vectorisers[facts.name] = (info, known)
        return known


def owner_of(caller: Caller) -> str:
    """The owner of what a caller stores. An admin is the operator, and so is each caller without keys."""
    return OPERATOR if caller.grant is None or caller.grant.is_admin else caller.grant.client


async def end_of(text: str, tokens: int, command: Command) -> str:
    """The end of a text with at most this many tokens."""
    end = text[-PER_TOKEN * tokens :]
    ids = (await command("tokenize", text=end, add_special=False))["tokens"]
    if len(ids) <= tokens:
        return end
    return str((await command("detokenize", tokens=ids[-tokens:]))["text"])
