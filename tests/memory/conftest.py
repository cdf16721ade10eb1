"""A memory in each kind of store."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from llama_srb.memory.one_memory import Memory
from llama_srb.memory.records import (
    NO_MODEL,
    Bounds,
    Chunking,
    FileStore,
    MemorySettings,
    QdrantSettings,
)
from llama_srb.request.values import SearchBy
from tests.support.memory import WordModel

CHUNKING = Chunking(20, 5)
DEFAULT = Bounds()
Opening = Callable[..., Awaitable[Memory]]


@pytest.fixture
def words() -> WordModel:
    return WordModel()


@pytest.fixture(params=["sqlite", "qdrant"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> FileStore | QdrantSettings:
    if request.param == "sqlite":
        return FileStore(tmp_path / "memory.db")
    return QdrantSettings(str(tmp_path / "qdrant"), "memory")


@pytest.fixture
async def opening(store: FileStore | QdrantSettings, words: WordModel) -> AsyncIterator[Opening]:
    """Opens the memory `tales`; keywords: a model or None, chunking, rebuilding, other settings."""
    async with contextlib.AsyncExitStack() as stack:

        async def opened(
            model: WordModel | None = words, chunking: Chunking = CHUNKING, *, shared: bool = False,
            rebuilding: bool = False, bounds: Bounds = DEFAULT, search: SearchBy = "meaning",
            passage_prefix: str = "", query_prefix: str = "",
        ) -> Memory:  # fmt: skip
            name, used = (None, NO_MODEL) if model is None else ("words", model.model)
            settings = MemorySettings(
                "tales", name, store, chunking, shared, bounds, search, passage_prefix, query_prefix
            )
            memory = await Memory.open(settings, used, rebuilding=rebuilding)
            stack.push_async_callback(memory.close)
            return memory

        yield opened


@pytest.fixture
async def memory(opening: Opening) -> Memory:
    return await opening()
