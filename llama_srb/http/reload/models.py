"""Models by name whose settings have changed: they are added, changed and removed while requests run.

All is checked first, and what can be loaded beside the other models is loaded first. Only then do requests
get the new models; the old ones leave after their last request. A fault before that changes nothing.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Coroutine, Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from llama_srb.background import begin, in_thread
from llama_srb.config import Settings, changes
from llama_srb.config.changes import Changes
from llama_srb.engine.exchange import EngineError
from llama_srb.http.handlers.chosen import Registry
from llama_srb.http.reload.faults import StartError, check_defaults, check_engine
from llama_srb.http.reload.files import Identity, ReplacedFiles, identities_of
from llama_srb.memory.tables import read as read_memories
from llama_srb.models.residency import ModelRemoved, limits_of
from llama_srb.models.served import ServedModel, share_engines, show_faults
from llama_srb.models.served import served as of_settings

log = logging.getLogger("llama_srb.server")  # this name is documented

LIVE = ("default_model", "models_memory", "models_max", "models_wait", "models_dir", "offline")
"""Settings of the server that change while it runs; others need a restart."""


@dataclass(frozen=True, slots=True)
class Plan:
    """settings: the new ones, with the old values of those that need a restart.

    made: by name, the models that need new engines; files: of each of them, as they were before.
    """

    settings: Settings
    changes: Changes
    made: dict[str, ServedModel] = field(default_factory=dict)
    files: dict[str, tuple[Identity, ...]] = field(default_factory=dict)


def plan(old: Settings, reread: Callable[[], Settings]) -> Plan:
    """Reads the settings again and checks all that has changed; one of FAULTS if something is wrong."""
    new = reread()
    if not new.models:
        raise StartError("there are no models by name any more; a server of one model needs a restart")
    after_restart = changes.between(old, new, LIVE).after_restart
    new = changes.with_old(new, old, after_restart)
    check_defaults(new)
    read_memories(new)  # each of them has its embedding model
    found = changes.between(old, new, LIVE)
    made = Plan(new, replace(found, after_restart=after_restart))
    engines_change = [now for before, now in found.changed if not share_engines(before, now)]
    for settings in (*found.added, *engines_change):
        check_engine(settings)
        made.files[settings.name] = identities_of(settings)
        made.made[settings.name] = of_settings(settings)
    return made


class ChangedModels:
    """Makes the models of a running server those that its settings' sources have now."""

    def __init__(self, registry: Registry, files: ReplacedFiles, reread: Callable[[], Settings]) -> None:
        self.tasks: set[asyncio.Task[None]] = set()  # removals and loads after a change
        self._registry, self._residency = registry, registry.residency
        self._files, self._reread = files, reread

    async def take(self) -> None:
        """Takes the new models and limits. One of FAULTS if something is wrong: then nothing has changed."""
        new = await in_thread(partial(plan, self._registry.settings, self._reread))
        loads = list(self._to_load(new))
        await self._add(new.made.values(), loads)
        for name, files in new.files.items():
            self._files.note(new.made[name], files)
        self._apply(new, loads)

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

    async def _add(self, models: Collection[ServedModel], loads: Collection[ServedModel]) -> None:
        """Adds new models, and loads those of `loads` for which there is room now; StartError if that fails.

        They are ready before the old ones leave. Where there is no room, an old one must leave first.
        """
        added: list[ServedModel] = []
        try:
            for model in sorted(models, key=lambda one: one not in loads):
                self._registry.prepare(model)
                is_first = model in loads and self._residency.has_room(model)
                await self._residency.add(model)
                added.append(model)
                if is_first:
                    await self._load_now(model)
        except Exception:
            for model in added:
                await self._residency.remove(model)
            raise

    async def _load_now(self, model: ServedModel) -> None:
        try:
            await self._residency.load(model)
            await show_faults(model)
        except EngineError as error:
            raise StartError(f"the model {model.name} cannot be loaded: {error}") from None

    def _apply(self, new: Plan, loads: Iterable[ServedModel]) -> None:
        """From now on requests get the new models. There is no await, so that none sees half of them."""
        before = {facts.name: facts for facts in self._registry}
        for _, settings in new.changes.changed:
            if settings.name not in new.made:
                before[settings.name].take_settings(settings)
        served = [new.made.get(one.name) or before[one.name].served for one in new.settings.models]
        self._registry.replace(new.settings, served)
        self._residency.take_limits(limits_of(new.settings))
        log.info("SIGHUP: models: %s", told(new.changes))
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


def told(found: Changes) -> str:
    """The changes in one line for the operator."""
    parts = {
        "added": [one.name for one in found.added],
        "changed": [now.name for _, now in found.changed],
        "removed": [one.name for one in found.removed],
        "settings": found.live,
        "only a restart changes": found.after_restart,
    }
    return "; ".join(f"{what} {', '.join(names)}" for what, names in parts.items() if names) or "no change"
