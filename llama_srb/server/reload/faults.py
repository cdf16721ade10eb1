"""Faults of settings and files that the operator must mend: found at the start, and at each SIGHUP."""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import AsyncIterator, Iterator

from llama_srb import bundled
from llama_srb.batch.database import StoreError
from llama_srb.config import Settings, SettingsError
from llama_srb.engine.exchange import EngineError
from llama_srb.memory.documents import DocumentLimits, Documents
from llama_srb.memory.records import MemoryUnusable
from llama_srb.memory.tables import check_recall
from llama_srb.memory.tables import read as read_memories
from llama_srb.models import defaults
from llama_srb.models.cache import HubError
from llama_srb.models.gguf_header import ModelFileError
from llama_srb.serving.batches.service import BatchService
from llama_srb.serving.faults import StartError
from llama_srb.serving.keys.access import AccessError
from llama_srb.serving.memories import Lasting, MemoryAccess
from llama_srb.serving.model_registry import ModelRegistry
from llama_srb.serving.story_store import StoriesError, StoryStore
from llama_srb.tasks import Tasks
from llama_srb.tasks import read as read_tasks
from llama_srb.tasks.presets import SHIPPED, Preset, PresetError
from llama_srb.tasks.presets import read as read_presets

log = logging.getLogger("llama_srb.server")  # this name is documented


FAULTS = (AccessError, EngineError, HubError, MemoryUnusable, ModelFileError, SettingsError, StartError)


@contextlib.contextmanager
def kept(what_stays: str) -> Iterator[None]:
    """Runs one part of a reload. A fault is logged and ends neither the other parts nor later reloads."""
    try:
        yield
    except FAULTS as error:
        log.error("%s: %s", what_stays, error)
    except Exception:
        log.exception("%s: a fault of ours", what_stays)


def presets_of(settings: Settings) -> dict[str, Preset]:
    """The presets that are shipped, and the operator's; StartError."""
    try:
        return read_presets((SHIPPED, settings.presets) if settings.presets else (SHIPPED,))
    except PresetError as error:
        raise StartError(str(error)) from None


def tasks_of(settings: Settings) -> Tasks:
    """The tasks; StartError."""
    try:
        tasks, memories = read_tasks(settings), read_memories(settings)
        for task in tasks:
            if task.recall is not None:
                check_recall(task.name, task.recall, memories)
        return Tasks(tasks)
    except SettingsError as error:
        raise StartError(str(error)) from None


def memories_of(settings: Settings, registry: ModelRegistry) -> MemoryAccess:
    """The memories of a server that starts, which are not open yet; StartError."""
    try:
        documents = Documents(DocumentLimits(body=settings.max_document))
        return MemoryAccess(read_memories(settings), registry, Lasting(documents))
    except SettingsError as error:
        raise StartError(str(error)) from None


@contextlib.asynccontextmanager
async def opened(memories: MemoryAccess) -> AsyncIterator[None]:
    """The memories are open during the block, and those that a reload makes of them; StartError."""
    try:
        await memories.open()
        yield
    except MemoryUnusable as error:
        raise StartError(str(error)) from None
    finally:
        await memories.lasting.pending.end()
        await memories.lasting.stores.close_all()


@contextlib.asynccontextmanager
async def files_of(batches: BatchService) -> AsyncIterator[str | None]:
    """The files and batches are open during the block; yields the path of their socket. StartError."""
    try:
        async with batches.opened() as socket:
            yield socket
    except StoreError as error:
        raise StartError(str(error)) from None


def stories_of(settings: Settings) -> StoryStore | None:
    """The stories that the server keeps for its callers, if it does; StartError."""
    try:
        return StoryStore(settings.stories, settings.stories_size) if settings.stories is not None else None
    except StoriesError as error:
        raise StartError(str(error)) from None


def check_defaults(settings: Settings) -> None:
    """StartError: a default of a request field is wrong."""
    try:
        defaults.check(settings)
    except SettingsError as error:
        raise StartError(str(error)) from None


def check_engine(settings: Settings) -> None:
    """StartError: the engine's program is not there, or cannot be run."""
    if not settings.engine.is_file():
        raise StartError(f"{settings.engine}: there is no engine; {bundled.remedy()}")
    if not os.access(settings.engine, os.X_OK):
        raise StartError(f"{settings.engine}: the engine is not executable; {bundled.remedy()}")
