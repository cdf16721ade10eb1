"""Background tasks, whose result nobody awaits: an exception in one is logged, not lost; and threads."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Coroutine
from functools import partial
from threading import Thread
from typing import Any, TypeVar

log = logging.getLogger(__name__)

T = TypeVar("T")


def begin(work: Coroutine[Any, Any, T], name: str) -> asyncio.Task[T]:
    """Starts a task whose owner only cancels it or waits for its end."""
    task = asyncio.create_task(work, name=name)
    task.add_done_callback(_log_exception)
    return task


async def in_thread(work: Callable[[], T]) -> T:
    """Calls `work` in a thread of its own. The process may end before it, unlike with asyncio.to_thread()."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[T] = loop.create_future()

    def run() -> None:
        try:
            end = partial(_end, done, result=work())
        except Exception as error:
            end = partial(_fail, done, error)
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
            loop.call_soon_threadsafe(end)

    Thread(target=run, daemon=True, name="work").start()
    return await done


def _end(done: asyncio.Future[T], result: T) -> None:
    if not done.done():
        done.set_result(result)


def _fail(done: asyncio.Future[T], error: Exception) -> None:
    if not done.done():
        done.set_exception(error)


def _log_exception(task: asyncio.Task[T]) -> None:
    if not task.cancelled() and (fault := task.exception()) is not None:
        log.error("the task %r failed", task.get_name(), exc_info=fault)
