"""What a reload of the settings changes: all is read and checked before anything is changed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from llama_srb.config import Settings, changes
from llama_srb.config.changes import Changes
from llama_srb.memory.records import MemorySettings
from llama_srb.memory.tables import read as read_memories
from llama_srb.models.served import ServedModel, readable, share_engines
from llama_srb.models.served import served as of_settings
from llama_srb.server.reload.faults import check_defaults, check_engine, tasks_of
from llama_srb.server.reload.files import Identity, identities_of
from llama_srb.serving.faults import StartError
from llama_srb.serving.model_registry import ModelRegistry
from llama_srb.tasks import Tasks

LIVE = ("default_model", "models_memory", "models_max", "models_wait", "models_dir", "offline")
"""Settings of a server of models by name that change while it runs; others need a restart."""
NO_MODELS = "there are no models by name any more; a server of one model needs a restart"
MODELS = "there are models by name now; they need a restart of this server of one model"


@dataclass(frozen=True, slots=True)
class Plan:
    """settings: the new ones, with the old values of those that need a restart.

    made: by name, the models that need new engines; files: of each of them, as they were before.
    """

    settings: Settings
    changes: Changes
    tasks: Tasks
    memories: list[MemorySettings]
    made: dict[str, ServedModel] = field(default_factory=dict)
    files: dict[str, tuple[Identity, ...]] = field(default_factory=dict)


def plan(old: Settings, reread: Callable[[], Settings]) -> Plan:
    """Reads the settings again and checks all that has changed; one of FAULTS if something is wrong."""
    new = readable(reread(), known={one.name for one in old.models})
    if bool(new.models) is not bool(old.models):
        raise StartError(MODELS if new.models else NO_MODELS)
    live = LIVE if old.models else ()
    after_restart = changes.between(old, new, live).after_restart
    new = changes.with_old(new, old, after_restart)
    check_defaults(new)
    found = changes.between(old, new, live)
    found = replace(found, after_restart=after_restart)
    made = Plan(new, found, tasks_of(new), read_memories(new))
    engines_change = [now for before, now in found.changed if not share_engines(before, now)]
    for settings in (*found.added, *engines_change):
        check_engine(settings)
        made.files[settings.name] = identities_of(settings)
        made.made[settings.name] = of_settings(settings)
    return made


def told(registry: ModelRegistry, memories: Mapping[str, MemorySettings], new: Plan) -> Iterator[str]:
    """The changes for the operator, a line for models, tasks and memories each. memories: those before."""
    if registry.are_several or new.changes.after_restart:
        yield f"{'models' if registry.are_several else 'settings'}: {_told_of_models(new.changes)}"
    for kind, before, now in (
        ("tasks", {one.name: one for one in registry.configured}, {one.name: one for one in new.tasks}),
        ("memories", memories, {one.name: one for one in new.memories}),
    ):
        if before or now:
            yield f"{kind}: {_told_by_name(before, now)}"


def _told_of_models(found: Changes) -> str:
    return _joined({
        "added": [one.name for one in found.added],
        "changed": [now.name for _, now in found.changed],
        "removed": [one.name for one in found.removed],
        "settings": found.live,
        "only a restart changes": found.after_restart,
    })  # fmt: skip


def _told_by_name(before: Mapping[str, object], now: Mapping[str, object]) -> str:
    return _joined({
        "added": [name for name in now if name not in before],
        "changed": [name for name in now if name in before and now[name] != before[name]],
        "removed": [name for name in before if name not in now],
    })  # fmt: skip


def _joined(parts: Mapping[str, Iterable[str]]) -> str:
    return "; ".join(f"{what} {', '.join(names)}" for what, names in parts.items() if names) or "no change"
