"""The settings' sources are read again: models by name, tasks and memories change while requests run.

All is checked first; memories are opened, what can be loaded beside the other models is loaded, and preludes
are computed. Only then do requests get the new ones. The old models leave after their last request, the old
memories after their last use. A fault before that changes nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Collection, Coroutine, Iterable, Iterator
from functools import partial
from typing import Any

from llama_srb.background import begin, in_thread
from llama_srb.config import Settings
from llama_srb.engine.exchange import EngineError
from llama_srb.models.residency import ModelRemoved, limits_of
from llama_srb.models.served import ServedModel, show_faults
from llama_srb.server.reload.files import ReplacedFiles
from llama_srb.server.reload.plan import Plan, plan, told
from llama_srb.serving.faults import StartError
from llama_srb.serving.memories import MemoryAccess
from llama_srb.serving.model_registry import ModelRegistry
from llama_srb.tasks import pins_of

log = logging.getLogger("llama_srb.server")  # this name is documented


class ChangedSettings:
    """Makes models, tasks and memories of a running server those that its settings' sources have now."""

    def __init__(self, registry: ModelRegistry, files: ReplacedFiles, reread: Callable[[], Settings]) -> None:
        self.tasks: set[asyncio.Task[None]] = set()  # removals and loads after a change
        self._registry, self._residency = registry, registry.residency
        self._files, self._reread = files, reread

    async def take(self) -> None:
        """Takes all that is new. One of FAULTS if something is wrong: then nothing has changed."""
        new = await in_thread(partial(plan, self._registry.settings, self._reread))
        served, loads = list(self._served(new)), list(self._to_load(new))
        async with contextlib.AsyncExitStack() as undo:
            before = self._memories
            memories = MemoryAccess(new.memories, self._registry, before.lasting)
            undo.push_async_callback(memories.close)
            await memories.open({model.name: model for model in served})
            await self._add(undo, new, loads)
            await self._pin(undo, new, served)
            undo.pop_all()
        for name, files in new.files.items():
            self._files.note(new.made[name], files)
        self._apply(new, served, memories, loads)

    @property
    def _memories(self) -> MemoryAccess:
        memories = self._registry.memories
        assert isinstance(memories, MemoryAccess)
        return memories

    def _served(self, new: Plan) -> Iterator[ServedModel]:
        """All models in the new order; on a server of one model that one."""
        before = {facts.settings.name: facts.served for facts in self._registry}
        for settings in new.settings.served:
            yield new.made.get(settings.name) or before[settings.name]

    def _to_load(self, new: Plan) -> Iterator[ServedModel]:
        """The models that shall be loaded: the one before is loaded, or `preload` says so since now."""
        before = {facts.name: facts for facts in self._registry}
        for settings in new.settings.models:
            old = before.get(settings.name)
            was_loaded = old is not None and old.pool.state in ("ready", "loading")
            is_wish = settings.preload and (old is None or not old.settings.preload)
            if (made := new.made.get(settings.name)) is not None and (was_loaded or is_wish):
                yield made
            elif old is not None and is_wish:
                yield old.served

    async def _add(self, undo: contextlib.AsyncExitStack, new: Plan, loads: Collection[ServedModel]) -> None:
        """Adds new models, and loads those of `loads` for which there is room now; StartError if that fails.

        They are ready before the old ones leave. Where there is no room, an old one must leave first.
        """
        for model in sorted(new.made.values(), key=lambda one: one not in loads):
            self._registry.prepare(model, new.settings, new.tasks)
            is_first = model in loads and self._residency.has_room(model)
            await self._residency.add(model)
            undo.push_async_callback(self._residency.remove, model, was_served=False)
            if is_first:
                await self._load_now(model)

    async def _load_now(self, model: ServedModel) -> None:
        try:
            await self._residency.load(model)
            await show_faults(model)
        except EngineError as error:
            raise StartError(f"the model {model.name} cannot be loaded: {error}") from None

    async def _pin(self, undo: contextlib.AsyncExitStack, new: Plan, served: Iterable[ServedModel]) -> None:
        """Models that stay compute the preludes of the new tasks; PinRefused if one has no room for them."""
        for model in served:
            if model not in new.made.values():
                pins = model.pool.pins
                undo.push_async_callback(pins.take, pins.wanted)
                await pins.take(pins_of(model.settings, new.settings, new.tasks))

    def _apply(
        self, new: Plan, served: list[ServedModel], memories: MemoryAccess, loads: Iterable[ServedModel]
    ) -> None:
        """From now on requests get what is new. There is no await, so that none sees half of it."""
        before, old_memories = {facts.name: facts for facts in self._registry}, self._memories
        lines = list(told(self._registry, old_memories.settings, new))
        for _, settings in new.changes.changed:
            if settings.name not in new.made:
                before[settings.name].take_settings(settings)
        self._registry.replace(new.settings, served)
        self._registry.configured, self._registry.memories = new.tasks, memories
        self._residency.take_limits(limits_of(new.settings))
        for line in lines:
            log.info("SIGHUP: %s", line)
        self._begin(old_memories.leave(), "memories leave")
        removals = {
            name: self._begin(self._remove(facts.served), f"removal of {name}")
            for name, facts in before.items()
            if facts.served not in served
        }
        for model in loads:
            self._begin(self._load(model, removals.get(model.name)), f"load of {model.name}")

    # Afterwards

    def _begin(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        task = begin(work, name)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)
        return task

    async def _remove(self, model: ServedModel) -> None:
        await self._residency.remove(model)
        self._registry.forget(model)

    async def _load(self, model: ServedModel, removal: asyncio.Task[None] | None) -> None:
        """Loads a model, unless it is loaded; if there was no room, after the one before has left."""
        if removal is not None and model.pool.state != "ready":
            await asyncio.wait({removal})
        try:
            await self._residency.load(model)
        except ModelRemoved:
            return
        except EngineError as error:
            log.error("the model %s cannot be loaded: %s", model.name, error)
