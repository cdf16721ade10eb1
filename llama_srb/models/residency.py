"""Loads and unloads models: on demand, within limits of memory and number.

One task owns all decisions (decisions.py) and carries them out. Knows neither HTTP nor names.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable, Iterable
from types import TracebackType
from typing import Literal, Self, TypeAlias

from llama_srb.background import begin
from llama_srb.config import Settings
from llama_srb.engine.exchange import EngineUnavailable
from llama_srb.models.decisions import Action, Limits, View, decide, has_room, next_check
from llama_srb.models.resident_model import ResidentModel
from llama_srb.models.served import ServedModel

__all__ = ["Limits", "ModelBusy", "ModelRemoved", "ModelState", "Residency", "limits_of"]

log = logging.getLogger("llama_srb.models")  # this name is documented

FAULT_PAUSE = 1.0  # seconds after a fault of ours, before the task goes on

ModelState: TypeAlias = Literal["unloaded", "loading", "loaded", "failed"]


class ModelBusy(Exception):
    """The model has requests, so it stays loaded."""


class ModelRemoved(EngineUnavailable):
    """The model is not served any more; one of the same name may be."""


def limits_of(settings: Settings) -> Limits:
    """The limits of a server's settings."""
    return Limits(settings.models_memory, settings.models_max, settings.models_wait)


class Residency:
    """Loads and unloads models; `async with` runs its task, and stops the pools at the end."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        # gets the loaded models and those that load, when one was loaded or unloaded or has a new engine
        self.on_loaded_change: Callable[[list[ServedModel], list[ServedModel]], None] = lambda *models: None
        self.listeners: list[Callable[[], None]] = []  # are called when states may have changed
        self._models: dict[ServedModel, ResidentModel] = {}
        self._engines: dict[ServedModel, int | None] = {}
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
            await asyncio.wait({self._task})
        models = list(self._models.values())
        for one in models:
            one.fail("the server is shutting down")
        stops = [begin(one.model.pool.stop(grace), f"stop of {one.model.name}") for one in models]
        try:
            await asyncio.gather(*stops)
        finally:  # cancelled: each stop kills its engines
            for stop in stops:
                stop.cancel()
            if stops:
                await asyncio.wait(stops)

    # Models

    async def add(self, model: ServedModel) -> None:
        """Takes a model. Its pool starts unloaded, unless it runs; EngineUnavailable without an engine."""
        await model.pool.start(load=False)
        model.pool.change.listeners.append(self._changed.set)
        self._models[model] = ResidentModel(model)
        self._changed.set()

    async def remove(self, model: ServedModel, *, was_served: bool = True) -> None:
        """Waits until the model's last request has ended, then stops its pool. It must get no new ones.

        A load() that waits ends with ModelRemoved, as all later ones. was_served: else a reload has failed
        that would have served it.
        """
        one = self._models[model]
        if was_served:
            log.info("model %s: is removed after its last request", model.name)
        model.leaves = True
        one.fail(_removed(model), ModelRemoved)
        while model.n_users or model.pool.requests:
            await model.pool.change.wait()
        await model.pool.stop()
        del self._models[model]
        model.pool.change.listeners.remove(self._changed.set)
        self._changed.set()

    def has_room(self, model: ServedModel) -> bool:
        """Whether a model could be loaded now beside all loaded ones."""
        return has_room(_views(self._models.values(), self.limits), self.limits, model.need)

    def take_limits(self, limits: Limits) -> None:
        """Replaces the limits. Models that were too large may be tried again."""
        self.limits = limits
        self._engines.clear()  # who shares a budget divides it again
        for one in self._models.values():
            one.forget_size()
        self._changed.set()

    async def load(self, model: ServedModel) -> None:
        """Waits until the model is loaded; EngineError with the reason if it cannot be, or ModelRemoved."""
        self._of(model)
        if model.pool.state == "failed" and not model.pool.requests:
            await model.pool.hosting.unload()
        one = self._of(model)
        waiter = one.ask()
        self._changed.set()
        try:
            await waiter
        finally:
            one.waiters.discard(waiter)
            if waiter.cancelled() and not one.waiters:
                one.asked_at = None
                self._changed.set()

    async def unload(self, model: ServedModel) -> None:
        """Unloads a model; ModelBusy if it has requests. A load() that waits ends with EngineUnavailable."""
        self.require_idle(model)
        while model.pool.requests:  # commands of the server itself, which are answered at once
            await model.pool.change.wait()
            self.require_idle(model)
        one = self._of(model)
        one.fail("the model was unloaded")
        await asyncio.wait({one.leaving or self._begin_unload(one)})

    def require_idle(self, model: ServedModel) -> None:
        """ModelBusy if the model has requests."""
        if count := model.pool.requests.of_clients:
            requests = "a request" if count == 1 else f"{count} requests"
            raise ModelBusy(f"{model.name} has {requests}; it can be unloaded after the last one")

    def keep(self, model: ServedModel, stay: float) -> None:
        """Until its next unload it leaves after `stay` seconds without a request; infinity: never."""
        if model in self._models:
            self._models[model].stay = stay
            self._changed.set()

    def leaves_at(self, model: ServedModel) -> float | None:
        """When a loaded model leaves if no request comes, by the event loop's clock; None: never."""
        one = self._models.get(model)
        if one is None or one.loaded_at is None or one.unload_after is None:
            return None
        requests, now = model.pool.requests, asyncio.get_running_loop().time()
        since = now if requests else max(requests.last_used, one.loaded_at)
        at = since + one.unload_after
        return at if math.isfinite(at) else None

    def state_of(self, model: ServedModel) -> ModelState:
        """The state for clients. A model is failed while it is not tried again."""
        match model.pool.state:
            case "ready":
                return "loaded"
            case "loading":
                return "loading"
            case "failed":
                return "failed"
        return "unloaded" if model.pool.refusal is None else "failed"

    def _of(self, model: ServedModel) -> ResidentModel:
        if model.leaves:
            raise ModelRemoved(_removed(model))
        if model not in self._models:
            raise EngineUnavailable(f"the model {model.name} is not served yet")
        return self._models[model]

    # The task

    async def _run(self) -> None:
        while True:
            try:
                await _wait(self._changed, self._step())
            except Exception:
                log.exception("the models' task failed")
                await asyncio.sleep(FAULT_PAUSE)

    def _step(self) -> float | None:
        """Decides once; returns when to decide again if nothing changes."""
        self._changed.clear()
        now, models = asyncio.get_running_loop().time(), list(self._models.values())
        for one in models:
            one.observe(now)
        views = _views(models, self.limits)
        for action in decide(views, self.limits, now):
            self._act(action, models[action.key])
        if (engines := _engines(one.model for one in models)) != self._engines:
            self._engines = engines
            loaded, loading = (
                [one for one in engines if (engines[one] is None) is new] for new in (False, True)
            )
            self.on_loaded_change(loaded, loading)
        for listener in self.listeners[:]:
            listener()
        return next_check(views, self.limits, now)

    def _act(self, action: Action, one: ResidentModel) -> None:
        name, hosting = one.model.name, one.model.pool.hosting
        match action.kind:
            case "load":
                log.info("model %s: loads", name)
                one.begin_load()
            case "unload":
                log.info("model %s: leaves", name)
                self._begin_unload(one)
            case "hold":
                log.info("model %s: gets no more requests until it was loaded again", name)
                hosting.hold()
            case "release":
                log.info("model %s: gets requests again", name)
                hosting.release()
            case "refuse":
                log.error("model %s: is larger than the memory for models", name)
                assert self.limits.memory is not None
                one.refuse(
                    f"{name} needs about {_size(one.least)} of memory, and --models-memory is "
                    f"{_size(self.limits.memory)}: raise it, or give the model a smaller ctx"
                )

    def _begin_unload(self, one: ResidentModel) -> asyncio.Task[None]:
        one.leaving = begin(self._unload(one, one.begin_unload()), f"unload of {one.model.name}")
        return one.leaving

    async def _unload(self, one: ResidentModel, ended: Awaitable[None]) -> None:
        await ended
        one.left()
        self._changed.set()


def _views(models: Iterable[ResidentModel], limits: Limits) -> list[View]:
    return [one.view(key, measured=limits.memory is not None) for key, one in enumerate(models)]


async def _wait(changed: asyncio.Event, until: float | None) -> None:
    """Waits for a change, or until this time."""
    try:
        async with asyncio.timeout_at(until):
            await changed.wait()
    except TimeoutError:
        return


def _removed(model: ServedModel) -> str:
    return f"the model {model.name} was removed, or has other settings now"


def _size(count: int) -> str:
    return f"{count / (1 << 30):.1f} GiB" if count >= 1 << 30 else f"{count / (1 << 20):.0f} MiB"


def _engines(models: Iterable[ServedModel]) -> dict[ServedModel, int | None]:
    """The identity of the ready event of each engine; None while it loads."""
    ready = {"ready": True, "loading": False}
    states = ((model, ready.get(model.pool.state)) for model in models)
    return {
        model: id(model.pool.ready) if is_ready else None
        for model, is_ready in states
        if is_ready is not None
    }
