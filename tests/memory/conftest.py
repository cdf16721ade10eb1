"""A memory in each kind of store."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from llama_srb.memory.one_memory import Memory
from llama_srb.memory.records import Bounds, Chunking, FileStore, MemorySettings, QdrantSettings
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
    """Opens the memory `tales`; keywords: another model, chunking, shared, rebuilding, bounds."""
    async with contextlib.AsyncExitStack() as stack:

        async def opened(
            model: WordModel = words, chunking: Chunking = CHUNKING, *, shared: bool = False,
            rebuilding: bool = False, bounds: Bounds = DEFAULT,
        ) -> Memory:  # fmt: skip
            settings = MemorySettings("tales", "words", store, chunking, shared, bounds)
            memory = await Memory.open(settings, model.model, rebuilding=rebuilding)
            stack.push_async_callback(memory.close)
            return memory

        yield opened


@pytest.fixture
async def memory(opening: Opening) -> Memory:
    return await opening()
