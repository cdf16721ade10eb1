"""Tasks whose result nobody asks for: a fault that ends one is in the log, not lost with it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any, TypeVar

log = logging.getLogger(__name__)

T = TypeVar("T")


def begin(work: Coroutine[Any, Any, T], name: str) -> asyncio.Task[T]:
    """A task that its owner cancels or waits for, without looking at its result."""
    task = asyncio.create_task(work, name=name)
    task.add_done_callback(_tell)
    return task


def _tell(task: asyncio.Task[T]) -> None:
    if not task.cancelled() and (fault := task.exception()) is not None:
        log.error("the task %r failed", task.get_name(), exc_info=fault)
