"""A served model as the model of a memory: vectors as `/v1/embeddings` has them, and counts of tokens."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Protocol, Self

from llama_srb.config import Settings
from llama_srb.engine.events import Embedding, Error
from llama_srb.engine.exchange import CommandRefused, EngineError, Exchange
from llama_srb.models import fingerprint
from llama_srb.models.gguf_header import ModelInfo

from .records import EmbeddingModel, Facts, MemorySettings, MemoryUnusable

SPARE = 8  # tokens of a text that the model or a border between two pieces adds
EMBEDDING_POOLINGS = (
    1,
    2,
    3,
)  # of a file: the mean of the tokens' vectors, the first token's, the last one's
RANKS = 4  # the pooling of a file whose model ranks
POOLING = "--pooling"  # the flag that changes all vectors of a model


class Runner(Protocol):
    """A pool, or a client's reservation of one."""

    def run(self, op: str, **arguments: Any) -> Exchange: ...

    async def command(self, op: str, **arguments: Any) -> Mapping[str, Any]: ...


@dataclass(frozen=True, slots=True)
class Vectoriser:
    """What a model's file and settings say about its vectors. context: tokens; None: the file has none.

    is_made_to_embed: the file says how its vectors are made (pooling), as those of embedding models do.
    """

    name: str
    fingerprint: str
    width: int
    context: int | None
    is_made_to_embed: bool = False
    ranks: bool = False

    @classmethod
    def of(cls, settings: Settings, info: ModelInfo) -> Self:
        """Reads parts of the file; ModelFileError."""
        return cls(
            settings.model_names[0],
            "-".join((fingerprint.of_weights(info), *_pooling(settings.engine_command))),
            _width(info),
            info.context,
            info.metadata.get(f"{info.architecture}.pooling_type") in EMBEDDING_POOLINGS,
            ranks(settings, info),
        )

    def facts(self, memory: MemorySettings) -> Facts:
        """The facts of vectors that it makes."""
        return Facts(self.name, self.fingerprint, self.width, memory.chunking, memory.passage_prefix)

    def check(self, memory: MemorySettings) -> None:
        """MemoryUnusable if the model cannot take the chunks of this memory, or makes no vectors."""
        if self.ranks:
            raise MemoryUnusable(
                f"memories.{memory.name}.embedding_model is {self.name}, which ranks documents and makes no "
                f"vectors; it may be the memory's reranker"
            )
        tokens = memory.chunking.tokens
        spare = SPARE + len(memory.passage_prefix.encode())
        if self.context is not None and tokens > (most := self.context - spare):
            behind = " with the passage_prefix" if memory.passage_prefix else ""
            raise MemoryUnusable(
                f"memories.{memory.name}.chunk_tokens is {tokens}; it must be at most {most}: its embedding "
                f"model, {self.name}, takes {self.context} tokens{behind}"
            )
        if not self.width:
            raise MemoryUnusable(f"memory {memory.name}: the file of {self.name} has no embedding_length")

    def model(self, runner: Runner) -> EmbeddingModel:
        """The model whose vectors `runner` computes."""

        async def embed(texts: Sequence[str]) -> Sequence[Sequence[float]]:
            return await vectors(runner, texts)

        async def count_tokens(texts: Sequence[str]) -> Sequence[int]:
            counts: Sequence[int] = (await runner.command("count_tokens", texts=list(texts)))["counts"]
            return counts

        return EmbeddingModel(
            self.name, self.fingerprint, self.width, embed, count_tokens, self.is_made_to_embed
        )


def ranks(settings: Settings, info: ModelInfo) -> bool:
    """Whether a model ranks documents, and does nothing else: its file says so, or the setting."""
    return settings.rerank or info.metadata.get(f"{info.architecture}.pooling_type") == RANKS


def check_reranker(memory: MemorySettings, settings: Settings, info: ModelInfo) -> None:
    """MemoryUnusable if a memory's reranker is a model that does not rank."""
    if not ranks(settings, info):
        raise MemoryUnusable(
            f"memories.{memory.name}.reranker is {memory.reranker}, which ranks no documents: its file does "
            f"not say so; write rerank = true in [models.{memory.reranker}] if it has a head"
        )


async def vectors(runner: Runner, texts: Sequence[str]) -> list[Sequence[float]]:
    """A vector for each text; CommandRefused with the engine's reason."""
    return await _computed(runner, "embed", len(texts), input=list(texts))


async def relevance(runner: Runner, query: str, texts: Sequence[str]) -> list[float]:
    """How relevant each text is to a query, as the model's head gives it; CommandRefused."""
    found = await _computed(runner, "rerank", len(texts), query=query, documents=list(texts), truncate=True)
    return [one[0] for one in found]


async def _computed(runner: Runner, op: str, count: int, **arguments: Any) -> list[Sequence[float]]:
    found: dict[int, Sequence[float]] = {}
    async with runner.run(op, **arguments) as exchange:
        async for events in exchange:
            found |= {event.index: event.embedding for event in events if isinstance(event, Embedding)}
            if isinstance(events[-1], Error):
                raise CommandRefused(events[-1])
    if len(found) < count:
        raise EngineError(f"{count} texts got {len(found)} vectors")
    return [found[i] for i in range(count)]


def _width(info: ModelInfo) -> int:
    """The numbers of a vector, as llama.cpp's llama_model_n_embd_out() has them."""
    keys = (f"{info.architecture}.embedding_length{end}" for end in ("_out", ""))
    return next((value for key in keys if isinstance(value := info.metadata.get(key), int)), 0)


def _pooling(command: Sequence[str]) -> tuple[str, ...]:
    """The value of the flag --pooling, if the engine gets it."""
    return tuple(after for word, after in pairwise(command) if word == POOLING)[-1:]
