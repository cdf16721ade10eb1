"""Checked settings from the sources: the command line beats the environment, which beats the file."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import ValidationError

from . import command
from .settings import Settings
from .sources import from_environment, from_file
from .words import PREFIX, SettingsError, setting_name, shown_name


def load(
    options: Mapping[str, object],
    *,
    config: str | None = None,
    environ: Mapping[str, str] = os.environ,
    more_flags: Sequence[str] = (),
) -> Settings:
    """Settings from options (names as in `Settings`; None is absent), the environment and the file.

    more_flags: flags of llama.cpp beside those of engine_args, wherever these are from.
    SettingsError if a name is unknown, a value is out of bounds or the file is unreadable.
    """
    file = config or environ.get(PREFIX + "CONFIG")
    sources: dict[str, str] = {}
    values: dict[str, object] = {}
    for found, source in (
        (from_file(file), f"{{}} in {file}"),
        (from_environment(environ), "{}"),
        (options, "{}"),
    ):
        for written, value in found.items():
            if value is not None:
                name = setting_name(written)
                values[name], sources[name] = value, source.format(shown_name(written, found is options))
    settings = _validated(values, sources)
    settings = settings.model_copy(update={"engine_args": (*settings.engine_args, *more_flags)})
    command.check_engine_args(settings)
    return settings


def _validated(values: Mapping[str, object], sources: Mapping[str, str]) -> Settings:
    try:
        settings = Settings.model_validate(values)
    except ValidationError as invalid:
        first = invalid.errors(include_url=False)[0]
        name = str(first["loc"][0])
        raise SettingsError(f"{sources[name]} is {first['input']!r}; {_wanted(first)}") from None
    return _within_bounds(settings, sources)


AT_MOST = {"n": "max_n"}  # a setting, and the setting that bounds it


def _within_bounds(settings: Settings, sources: Mapping[str, str]) -> Settings:
    """Adapts a default to the given setting that bounds it; SettingsError if both are given and conflict."""
    for name, bound in AT_MOST.items():
        value, most = getattr(settings, name), getattr(settings, bound)
        if value <= most:
            continue
        if name in sources and bound in sources:
            raise SettingsError(f"{sources[name]} is {value}; it must be at most {sources[bound]}, {most}")
        settings = settings.model_copy(update={bound: value} if name in sources else {name: most})
    return settings


_PARSING = {
    "int_parsing": "a whole number",
    "float_parsing": "a number",
    "bool_parsing": "true or false",
    "path_type": "a path",
    "tuple_type": "a list",
    "dict_type": "a table",
}


def _wanted(error: Any) -> str:
    """pydantic's message as the rest of a sentence: "Input should be …" becomes "it must be …"."""
    message = str(error["msg"]).removeprefix("Input should be ").removeprefix("Value error, ")
    return "it must be " + _PARSING.get(error["type"], message)
