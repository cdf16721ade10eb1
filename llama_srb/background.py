"""Background tasks, whose result nobody awaits: an exception in one is logged instead of lost."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any, TypeVar

log = logging.getLogger(__name__)

T = TypeVar("T")


def begin(work: Coroutine[Any, Any, T], name: str) -> asyncio.Task[T]:
    """Starts a task whose owner only cancels it or waits for its end."""
    task = asyncio.create_task(work, name=name)
    task.add_done_callback(_log_exception)
    return task


def _log_exception(task: asyncio.Task[T]) -> None:
    if not task.cancelled() and (fault := task.exception()) is not None:
        log.error("the task %r failed", task.get_name(), exc_info=fault)
