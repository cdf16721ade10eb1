"""Checked settings from the sources: the command line beats the environment, which beats the file."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from . import command, names, tables
from .settings import Settings
from .sources import from_environment, from_file, from_options
from .tables import Tables
from .words import PREFIX, Given, SettingsError, Values, quoted


def load(
    options: Mapping[str, object],
    *,
    config: str | None = None,
    environ: Mapping[str, str] = os.environ,
    more_flags: Sequence[str] = (),
    files: Sequence[str] = (),
) -> Settings:
    """Settings from options (names as in `Settings`; None is absent), the environment and the file.

    more_flags: flags of llama.cpp beside those of engine_args, wherever these are from. files: models that
    the command line names without --model.
    SettingsError if a name is unknown, a value is out of bounds or the file is unreadable.
    """
    file = from_file(config or environ.get(PREFIX + "CONFIG"))
    top, written = file.top, file.models
    from_variables, variables = from_environment(environ)
    given = from_options(options)
    if files and "model" in given:
        raise SettingsError(f"{files[0]} and --model {given['model'].value} both name a model; use one way")
    top |= from_variables | given
    if files:
        top.pop("model", None)  # of the environment or the file
    if len(files) == 1 and written is None and "models_dir" not in top:
        top["model"] = Given(files[0], files[0])
    server = _with_flags(_validated(top), more_flags)
    folder = tables.of_folder(top["models_dir"]) if "models_dir" in top else {}
    found = _tables(top, written, files, folder, variables)
    models = tuple(
        _model(name, table, top, server).model_copy(update={"in_folder": name in folder})
        for name, table in found.items()
    )
    tasks, memories = (file.tables.get(kind, ()) for kind in ("tasks", "memories"))
    served = models or (server,)
    for one in served:
        command.check_needs(one)
    names.check(served, top.get("default_model"), tasks)
    return server.model_copy(update={"models": models, "tasks": tasks, "memories": memories})


def _tables(
    top: Values, written: Tables | None, files: Sequence[str], folder: Tables, variables: Mapping[str, str]
) -> Tables:
    """The models by name, from all sources; empty if the server has one model without a name.

    folder: those of --models-dir.
    """
    found = tables.of_files(files) if "model" not in top else {}
    if written is not None:
        found = written
        if files:
            raise SettingsError(f"{files[0]} and [models] of the --config file both name models; use one way")
    found = tables.changed_by(variables, tables.beside(found, folder))
    if not found and written is not None:
        raise SettingsError("[models] of the --config file is empty; write a table [models.NAME]")
    for name in tables.RENAMED.values():
        if found and name in top:
            raise SettingsError(
                f"{top[name].place()} is for a server of one model, but there are models by name: "
                f"{', '.join(found)}; write it in a table, [models.NAME]"
            )
    return found


def _model(name: str, table: Values, top: Values, server: Settings) -> Settings:
    """The settings of a model: the server's, with those of its table in place.

    Flags of llama.cpp and defaults of fields are added to the server's, of which the model's count.
    """
    if not name:
        raise SettingsError(f"{next(iter(table.values())).place()} is for a model whose name is empty")
    if "model" not in table:
        raise SettingsError(f'models.{quoted(name)} has no path; write path = "FILE.gguf" or "hf:USER/REPO"')
    if table.keys() & WARM_UP:
        top = {name: given for name, given in top.items() if name not in WARM_UP}
    bounds = {bound: top[bound] for bound in AT_MOST.values() if bound in top}
    model = _validated(top | table, bounds | table)
    try:
        own = model.engine_args if "engine_args" in table else ()
        model = _with_flags(model.model_copy(update={"engine_args": server.engine_args}), own)
        command.check_known(own)
    except SettingsError as error:
        raise SettingsError(f"{table['engine_args'].place()}: {error}") from None
    merged = {field: getattr(server, field) | getattr(model, field) for field in ("sampling", "override")}
    return model.model_copy(update={"name": name, **merged})


def _with_flags(settings: Settings, more: Sequence[str]) -> Settings:
    settings = settings.model_copy(update={"engine_args": (*settings.engine_args, *more)})
    command.check(settings)
    return settings


def _validated(given: Values, own: Values | None = None) -> Settings:
    """The settings. own: those that no other setting may change; by default all that are given."""
    try:
        settings = Settings.model_validate({name: one.value for name, one in given.items()})
    except ValidationError as invalid:
        first = invalid.errors(include_url=False)[0]
        name, *inner = first["loc"]
        place = given[str(name)].place(*(part for part in inner if isinstance(part, str)))
        value = str(first["input"]) if isinstance(first["input"], Path) else first["input"]
        raise SettingsError(f"{place} is {value!r}; {_wanted(first)}") from None
    if given.keys() >= WARM_UP:
        raise SettingsError(" and ".join(given[name].place() for name in sorted(WARM_UP)) + " are both set")
    return _within_bounds(settings, given if own is None else own)


WARM_UP = frozenset({"prompt", "prompt_file"})  # settings of which a model has one
AT_MOST = {"n": "max_n"}  # a setting, and the setting that bounds it


def _within_bounds(settings: Settings, given: Values) -> Settings:
    """Adapts a default to the given setting that bounds it; SettingsError if both are given and conflict."""
    for name, bound in AT_MOST.items():
        value, most = getattr(settings, name), getattr(settings, bound)
        if value <= most:
            continue
        if name in given and bound in given:
            raise SettingsError(
                f"{given[name].place()} is {value}; it must be at most {given[bound].place()}, {most}"
            )
        settings = settings.model_copy(update={bound: value} if name in given else {name: most})
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
