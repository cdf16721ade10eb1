"""Which models are loaded: on demand, within limits of memory and number.

One task decides; `decide` (decisions.py) is a pure function. Knows neither HTTP nor names.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Literal, Self, TypeAlias

from llama_srb.background import begin
from llama_srb.models.served import ServedModel

ModelState: TypeAlias = Literal["unloaded", "loading", "loaded", "failed"]


@dataclass(frozen=True, slots=True)
class Limits:
    """memory: bytes of all loaded models together. most: their number. None: no limit.

    wait: seconds that a model's requests wait at most while others keep the room.
    """

    memory: int | None = None
    most: int | None = None
    wait: float = 10.0


class ModelBusy(Exception):
    """The model has requests, so it stays loaded."""


class Residency:
    """Loads and unloads models; `async with` runs its task. Its end stops the pools that are left."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.on_loaded_change: Callable[[list[ServedModel]], None] = lambda loaded: None
        self._models: list[ServedModel] = []
        self._changed = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._task = begin(self._run(), "residency")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    async def stop(self, grace: float = 0.0) -> None:
        """Loads nothing more, and stops all pools at once within the same grace."""
        if self._task is not None:
            self._task.cancel()
        await asyncio.gather(*(model.pool.stop(grace) for model in self._models))

    async def add(self, model: ServedModel) -> None:
        """Takes a model. Its pool starts unloaded, unless it runs; EngineUnavailable without an engine."""
        await model.pool.start(load=False)
        model.pool.change.listeners.append(self._changed.set)
        self._models.append(model)
        self._changed.set()

    async def remove(self, model: ServedModel) -> None:
        """Waits until the model's last request has ended, then stops its pool. It gets no new requests."""
        while model.pool.requests:
            await model.pool.change.wait()
        self._models.remove(model)
        await model.pool.stop()

    async def load(self, model: ServedModel) -> None:
        """Waits until the model is loaded; EngineError with the reason if it cannot be."""
        model.pool.hosting.load()
        await model.pool.wait_ready()

    async def unload(self, model: ServedModel) -> None:
        """Unloads a model; ModelBusy if it has requests."""
        if open := len(model.pool.requests):
            raise ModelBusy(f"{model.name} has {open} requests; it can be unloaded when they have ended")
        await model.pool.hosting.unload()

    def state_of(self, model: ServedModel) -> ModelState:
        """The state for clients."""
        match model.pool.state:
            case "loading":
                return "loading"
            case "ready":
                return "loaded"
            case "failed":
                return "failed"
        return "unloaded" if model.pool.failure is None else "failed"

    async def _run(self) -> None:
        while True:
            await self._changed.wait()
            self._changed.clear()
            for model in self._models:
                if model.pool.state == "unloaded" and model.pool.requests.waiting:
                    model.pool.hosting.load()
