"""What differs between the settings of a running server and those that its sources have now."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from .options import OPTIONS
from .settings import Settings
from .tables import FIELDS

OF_A_MODEL = ("name", *FIELDS.values())


@dataclass(frozen=True, slots=True)
class Changes:
    """Models by name that came, changed (old and new) and left; settings of the server.

    live: those that it takes while it runs. after_restart: those that a restart would change.
    """

    added: tuple[Settings, ...] = ()
    changed: tuple[tuple[Settings, Settings], ...] = ()
    removed: tuple[Settings, ...] = ()
    live: tuple[str, ...] = ()
    after_restart: tuple[str, ...] = ()


def between(old: Settings, new: Settings, live: Collection[str] = ()) -> Changes:
    """The changes from old to new. live: settings of the server that it can change while it runs.

    Those of a server of one model need a restart. Tasks and memories are compared by who reads them.
    """
    before, now = ({model.name: model for model in one.served} for one in (old, new))
    both = [(before[name], now[name]) for name in now if name in before]
    of_models = FIELDS.values() if old.models else ()
    fixed = [option.name for option in OPTIONS if option.name not in {*of_models, *live}]
    return Changes(
        added=tuple(model for name, model in now.items() if name not in before),
        changed=tuple(pair for pair in both if _differ(*pair, OF_A_MODEL)),
        removed=tuple(model for name, model in before.items() if name not in now),
        live=tuple(name for name in live if _differ(old, new, [name])),
        after_restart=tuple(name for name in fixed if _differ(old, new, [name])),
    )


def with_old(new: Settings, old: Settings, names: Iterable[str]) -> Settings:
    """The new settings with the old values of these settings of the server, which each model has, too."""
    values = {name: getattr(old, name) for name in names}
    models = tuple(model.model_copy(update=values) for model in new.models)
    return new.model_copy(update={**values, "models": models})


def _differ(old: Settings, new: Settings, names: Iterable[str]) -> bool:
    return any(getattr(old, name) != getattr(new, name) for name in names)
