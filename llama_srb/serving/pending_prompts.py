"""Prompts that are being stored while their requests go on. A later look at the memory waits for its own."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, NamedTuple

from llama_srb.background import begin


class Named(NamedTuple):
    """The document that a prompt becomes."""

    memory: str
    owner: str
    id: str


class Pending:
    """The tasks that store prompts."""

    def __init__(self) -> None:
        self._tasks: dict[asyncio.Task[None], Named] = {}

    def begin(self, named: Named, work: Coroutine[Any, Any, None]) -> None:
        """Runs `work` behind what stores a document of the same memory and id."""
        before = [task for task, one in self._tasks.items() if (one.memory, one.id) == named[::2]]
        task = begin(_after(before, work), f"store a prompt in {named.memory}")
        self._tasks[task] = named
        task.add_done_callback(self._tasks.pop)

    async def wait(self, memory: str, owner: str) -> None:
        """Returns when all prompts of this owner are stored whose requests had begun before."""
        await _all([task for task, one in self._tasks.items() if one[:2] == (memory, owner)])

    async def wait_for_all(self) -> None:
        while self._tasks:
            await _all(list(self._tasks))


async def _after(before: list[asyncio.Task[None]], work: Coroutine[Any, Any, None]) -> None:
    await _all(before)
    await work


async def _all(tasks: list[asyncio.Task[None]]) -> None:
    if tasks:
        await asyncio.wait(tasks)
