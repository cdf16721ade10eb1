"""What a server is given by name: models, by tables [models.X] of the file, variables, files, a folder.

Other tables of the file, as [tasks.X], are read here; their packages know their fields.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TypeAlias

from .rows import Rows
from .words import PREFIX, Given, SettingsError, Table, Values, nearest, quoted, setting_name

log = logging.getLogger(__name__)

Tables: TypeAlias = dict[str, Values]
"""From models' names to the values of their settings, in the order of the file."""
VARIABLE = PREFIX + "MODELS__"  # and a model's name, __, one of FIELDS
RENAMED = {"path": "model", "aliases": "alias"}
FIELDS = RENAMED | {
    name: name
    for name in (
        "tags", "lora", "adapters", "adapters_dir", "n", "max_n", "ctx", "parallel", "cache_cells",
        "prefix_cache", "prefix_cache_size", "packed_weights", "rerank", "logits_processor",
        "logits_processor_timeout", "engine_mode", "max_engines", "engine",
        "engine_env", "load_timeout", "step_timeout", "engine_args", "sampling", "override",
        "prompt", "prompt_file", "unload_after", "preload",
    )
}  # fmt: skip
"""The fields of a model's table, and the settings that they set."""
PART = re.compile(r"-00001-of-\d{5}$")  # of the first file of several, as llama-gguf-split names them
COMPANION = re.compile(r"mmproj|^(mtp|dspark|dflash)-")  # projectors and draft models
LATER_PART = re.compile(r"-\d{5}-of-\d{5}$")


# ----------------------------------------------------------------------------------------------------
# Tables of the file, and variables
# ----------------------------------------------------------------------------------------------------


def of_file(written: object, where: str) -> Tables:
    """The tables [models.X] of a file; where: " in FILE"."""
    return {name: _table(name, table, where) for name, table in _named("models", written, where).items()}


def others(kind: str, written: object, file: str) -> tuple[Table, ...]:
    """The tables [KIND.X] of a file, for another kind than models."""
    where, folder = f" in {file}", Path(file).resolve().parent
    return tuple(
        Table(
            kind,
            name,
            {key: Given(value, f"{kind}.{quoted(name)}.{key}", where) for key, value in table.items()},
            folder,
        )
        for name, table in _named(kind, written, where).items()
    )


def _named(kind: str, written: object, where: str) -> dict[str, dict[str, object]]:
    if not isinstance(written, dict):
        raise SettingsError(f"{kind}{where} is {written!r}; it must be tables, [{kind}.NAME]")
    for name, table in written.items():
        if not isinstance(table, dict):
            raise SettingsError(f"{kind}.{quoted(name)}{where} is {table!r}; it must be a table of settings")
    return written


def _table(name: str, written: Mapping[str, object], where: str) -> Values:
    values = {}
    for key, value in written.items():
        place = Given(value, f"models.{quoted(name)}.{key}", where)
        field, top = setting_name(key), "at the top level of the file, above the first [table]"
        if isinstance(value, dict) and field not in FIELDS:
            whole = quoted(f"{name}.{key}")
            hint = f"; a model's name with a dot has quotation marks: [models.{whole}]"
        else:
            hint = nearest(field, FIELDS)
        values[_setting(field, place, f"write {field} {top}", hint)] = place
    return values


def _setting(field: str, given: Given, at_top: str, hint: str) -> str:
    """The setting of a table's field. SettingsError: there is none, or it is the server's."""
    if (setting := FIELDS.get(field)) is not None:
        return setting
    for better, setting in RENAMED.items():
        hint = f"; did you mean {better}?" if field == setting else hint
    if field in Rows.model_fields and field not in RENAMED.values():
        raise SettingsError(f"{given.place()} is a setting of the server; {at_top}")
    raise SettingsError(f"{given.place()} is not a setting of a model{hint}")


def changed_by(variables: Mapping[str, str], tables: Tables) -> Tables:
    """The tables with the values of variables. A variable with PATH may add a model."""
    changed = {name: dict(values) for name, values in tables.items()}
    added = {_model_of(key).lower() for key in variables if key.endswith("__PATH")}
    parts: dict[str, list[str]] = {}
    for name in tables:
        parts.setdefault(_as_variable(name), []).append(name)
    for name in sorted(added):
        parts.setdefault(name.upper(), [name])
    for key, value in variables.items():
        part, _, field = key.removeprefix(VARIABLE).rpartition("__")
        known = [f"{VARIABLE}{part}__{one.upper()}" for one in FIELDS]
        place = Given(value, key, " in the environment")
        setting = _setting(field.lower(), place, f"use {PREFIX}{field}", nearest(key, known))
        match parts.get(part.upper(), []):
            case [name]:
                changed.setdefault(name, {})[setting] = Given(value, key)
            case []:
                raise SettingsError(
                    f"{place.place()} is for a model {part or 'without a name'}, which there is not"
                    f"{nearest(part.upper(), parts)}"
                )
            case several:
                raise SettingsError(
                    f"{place.place()} is for each of the models {', '.join(several)}; set it in their tables"
                )
    return changed


def _model_of(key: str) -> str:
    return key.removeprefix(VARIABLE).rpartition("__")[0]


def _as_variable(name: str) -> str:
    """A model's name in a variable: "a.b-c" is A_B_C."""
    return re.sub(r"[^A-Za-z0-9]", "_", name).upper()


# ----------------------------------------------------------------------------------------------------
# Files and folders
# ----------------------------------------------------------------------------------------------------


def of_files(files: Iterable[str]) -> Tables:
    """Each file is a model with its stem as name, and each hf:NAME one with that name."""
    found: Tables = {}
    for file in files:
        name = file[3:] if file.startswith("hf:") else PART.sub("", Path(file).stem)
        _add(found, name, file)
    return found


def of_folder(given: Given) -> Tables:
    """The models of a folder, as llama-server's router finds them: its files, and one of each folder."""
    folder = Path(str(given.value)).expanduser()
    try:
        inside = sorted(folder.iterdir())
        pairs = [pair for one in inside for pair in (_folder(one) if one.is_dir() else _files([one]))]
    except OSError as error:
        raise SettingsError(f"{given.place()} is {str(folder)!r}: {error.strerror}") from None
    if not pairs:
        raise SettingsError(f"{given.place()} is {str(folder)!r}; there is no GGUF file of a model")
    found: Tables = {}
    for name, path in pairs:
        _add(found, name, path)
    return found


def _add(found: Tables, name: str, path: object) -> None:
    if (other := found.get(name)) is not None:
        raise SettingsError(
            f"{other['model'].value} and {path} have the same name, {name}; "
            "give them names by tables [models.NAME] of a --config file"
        )
    found[name] = {"model": Given(path, str(path))}


def _folder(folder: Path) -> list[tuple[str, Path]]:
    """The model of a folder, with the folder's name."""
    try:
        found = [path for _, path in _files(sorted(folder.iterdir()))]
    except OSError as error:
        log.warning("a model of --models-dir is left out: %s", f"{folder}: {error.strerror}")
        return []
    first = [path for path in found if PART.search(path.stem)] or found
    return [(folder.name, first[0])] if first else []


def _files(paths: Iterable[Path]) -> list[tuple[str, Path]]:
    """Names and paths of models; no projectors, no draft models, and of several parts the first one."""
    return [
        (PART.sub("", path.stem), path)
        for path in paths
        if path.suffix == ".gguf" and path.is_file() and not _is_companion(path)
    ]


def _is_companion(path: Path) -> bool:
    is_later = LATER_PART.search(path.stem) and not PART.search(path.stem)
    return bool(is_later or COMPANION.search(path.name))


def beside(tables: Tables, folder: Tables) -> Tables:
    """The tables, with the folder's models after them. A table without a path is for the folder's model."""
    for name, values in tables.items():
        ours, theirs = values.get("model"), folder.get(name, {}).get("model")
        if ours and theirs and Path(str(ours.value)).absolute() != Path(str(theirs.value)).absolute():
            raise SettingsError(
                f"{ours.place()} is {str(ours.value)!r}, but {theirs.value} has the same name, {name}; "
                "give the table another name"
            )
    return tables | {name: values | tables.get(name, {}) for name, values in folder.items()}
