"""The processes of a pool and the tasks that own them. A process ends with its task."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Coroutine
from dataclasses import replace
from typing import Any

from llama_srb.background import begin
from llama_srb.engine.process import Engine
from llama_srb.engine.settings import EngineSettings


class Change:
    """Signals changes of state, of load progress and of the set of requests."""

    def __init__(self) -> None:
        self._event = asyncio.Event()
        self.listeners: list[Callable[[], None]] = []  # are called at each change

    async def wait(self) -> None:
        """Waits for the next change."""
        await self._event.wait()

    def notify(self) -> None:
        """Wakes all waiting tasks; the next change needs a new event."""
        for listener in self.listeners:
            listener()
        self._event.set()
        self._event = asyncio.Event()


class Engines:
    """Starts engines, and ends them all."""

    def __init__(self, settings: EngineSettings, change: Change) -> None:
        self.settings = settings
        self.flags: tuple[str, ...] = ()  # of engines that start from now on, beside those of the settings
        self.on_start: Callable[[], None] = lambda: None
        self.processes: set[Engine] = set()  # each from before its spawn until after its end
        self.tasks: set[asyncio.Task[None]] = set()
        self._change = change

    @property
    def pids(self) -> list[int]:
        return [engine.pid for engine in self.processes if engine.pid]

    @property
    def current(self) -> EngineSettings:
        """The settings of an engine that starts now."""
        return replace(self.settings, command=(*self.settings.command, *self.flags))

    @contextlib.asynccontextmanager
    async def start(self) -> AsyncIterator[Engine]:
        """Spawns an engine, and ends it when the block is left."""
        engine = Engine(self.current, self._change.notify)
        self.processes.add(engine)
        self.on_start()
        try:
            async with engine:
                yield engine
        finally:
            self.processes.discard(engine)

    def begin(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        """Starts a task that may own an engine."""
        task = begin(work, name)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)
        return task

    async def end(self) -> None:
        """Waits until all tasks have ended. If this is cancelled, it kills and reaps the engines first."""
        try:
            await self._all_tasks()
        except asyncio.CancelledError:
            for engine in self.processes:
                engine.kill()
            await self._all_tasks()
            raise

    async def _all_tasks(self) -> None:
        while self.tasks:
            await asyncio.wait(set(self.tasks))
