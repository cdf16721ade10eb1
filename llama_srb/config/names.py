"""The names of models, aliases, adapters and tasks: each stands for one of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from .settings import Settings
from .words import Given, SettingsError, Table, nearest

FORBIDDEN = frozenset('?#%\\",')  # in a URL, a list of names or a quoted header they end the name
LONGEST = 200


def check(models: Sequence[Settings], default: Given | None, tasks: Sequence[Table] = ()) -> None:
    """SettingsError: a name that cannot be used, one that has two meanings, or a default that is none."""
    owners: dict[str, str] = {}
    for name, meaning in (pair for model in models for pair in _names(model)):
        _add(name, meaning, owners, "a name stands for one model")
    _check_default(default, owners)
    for model in models if not models[0].name else ():  # a server of one model has names without a table
        owners |= dict.fromkeys(model.model_names, f"a name of the model {model.model_names[0]}")
    for task in tasks:
        _add(task.name, f"the name of {task.place}", owners, "requests name a model or a task by `model`")


def _add(name: str, meaning: str, owners: dict[str, str], rule: str) -> None:
    if (why := fault(name)) is not None:
        raise SettingsError(f"{name!r} cannot be {meaning}: {why}")
    if (other := owners.setdefault(name, meaning)) != meaning:
        raise SettingsError(f"{name!r} is {other} and {meaning}; {rule}")


def _check_default(default: Given | None, owners: dict[str, str]) -> None:
    if default is not None and default.value not in owners:
        known = (
            "one of " + ", ".join(owners) if 0 < len(owners) <= 10 else "the name of a table [models.NAME]"
        )
        hint = nearest(str(default.value), owners)
        raise SettingsError(f"{default.place()} is {default.value!r}; it must be {known}{hint}")


def _names(model: Settings) -> Iterator[tuple[str, str]]:
    """The names of a model and what each is; a model without a table has only those of its adapters."""
    place = model.place[:-1] or "the model"
    if model.name:
        yield model.name, f"the name of {place}"
    for alias in model.alias if model.name else ():
        if alias != model.name:
            yield alias, f"an alias of {place}"
    for adapter in model.adapters:
        yield adapter, f"an adapter of {place}"


def fault(name: str) -> str | None:
    """Why a name cannot be used in an URL, a header and a list of names; None if it can."""
    if not name:
        return "it is empty"
    if len(name) > LONGEST:
        return f"it has {len(name)} characters; it may have {LONGEST}"
    if not name.isprintable() or (bad := next((one for one in name if one in FORBIDDEN), "")):
        shown = repr(bad) if name.isprintable() else "a character that cannot be printed"
        return f"it has {shown}; it may not have {' '.join(sorted(FORBIDDEN))} and control characters"
    if name != name.strip() or any(part in ("", ".", "..") for part in name.split("/")):
        return "it may not begin or end with a space or a slash, and no part between slashes may be . or .."
    return None
