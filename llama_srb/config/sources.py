"""The sources of settings: the command line, the environment (LLAMA_SRB_*), a file of TOML or YAML."""

from __future__ import annotations

import json
import os
import re
import shlex
import sys
import tomllib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from . import poly, tables, yaml_text
from .options import PATHS
from .rows import Rows
from .tables import Tables
from .words import PREFIX, Given, SettingsError, Table, Values, refuse_unknown, setting_name

NOT_SETTINGS = frozenset({"LLAMA_SRB_CONFIG", "LLAMA_SRB_CACHE", "LLAMA_SRB_PYTHON"})  # build.sh reads two

MOST_TOML, MOST_PARTS = 1 << 20, 64  # characters of a client's TOML; parts of a name, a.b.c
_PART = r"""(?:[\w-]++|"[^"\n]*+"|'[^'\n]*+')[ \t]*+\.[ \t]*+"""
_LONG_NAME = re.compile(rf"(?<![\w-])(?:{_PART}){{{MOST_PARTS}}}")
_SECRET = re.compile(rf"{PREFIX}|.*(PASS|TOKEN|SECRET|CREDENTIAL|KEY)", re.IGNORECASE)
_ENGINE_NAMES = frozenset({"PATH", "HOME", "LANG", "TMPDIR", "LD_LIBRARY_PATH", "GLIBC_TUNABLES"})
_ENGINE_PREFIXES = (  # of llama.cpp, of what drives GPUs, of threads and of the heap
    "GGML_", "LLAMA_", "CUDA_", "NVIDIA_", "HIP_", "HSA_", "ROCR_", "VK_", "OMP_", "GOMP_", "MALLOC_",
)  # fmt: skip


def engine_environment(more: Collection[str] = ()) -> dict[str, str]:
    """The environment of an engine: variables that are listed here, and those that `more` names.

    Of those with a listed beginning none has a secret's name: NVIDIA_API_KEY. An engine that aborts ends at
    once, and its last line says why: ggml's backtrace by gdb would take seconds, and push that line out of
    the log.
    """
    known = {
        name: value
        for name, value in os.environ.items()
        if name in _ENGINE_NAMES
        or name in more
        or (name.startswith(_ENGINE_PREFIXES) and not _SECRET.match(name))
    }
    return {"GGML_NO_BACKTRACE": "1"} | known


def environment_with(more: Mapping[str, str]) -> dict[str, str]:
    """This process's environment with more variables, for another program of ours."""
    return {**os.environ, **more}


def environment(settings: Mapping[str, Any]) -> dict[str, str]:
    """The environment of a server with only these settings; None is absent. SettingsError: unknown name.

    It has no variables with secret names, as HF_TOKEN.
    """
    refuse_unknown(settings, Rows.model_fields, "")
    given = {name: value for name, value in settings.items() if value is not None}
    inherited = {name: value for name, value in os.environ.items() if not _SECRET.match(name)}
    return inherited | {PREFIX + name.upper(): _as_text(name, one) for name, one in given.items()}


def _as_text(name: str, value: object) -> str:
    """A setting's value as the text of a variable."""
    if isinstance(value, Mapping):
        return ",".join(f"{k}={v}" for k, v in value.items()) if name == "adapters" else json.dumps(value)
    if isinstance(value, list | tuple):
        return (shlex.join if name == "engine_args" else ",".join)(map(str, value))
    return str(value)


def arguments() -> list[str]:
    """This process's command line, without the program's name."""
    return sys.argv[1:]


def split_arguments(argv: Sequence[str]) -> tuple[list[str], tuple[str, ...] | None]:
    """The server's arguments and, after the first `--`, the engine's; None if there is no `--`."""
    if "--" not in argv:
        return list(argv), None
    at = list(argv).index("--")
    return list(argv[:at]), tuple(argv[at + 1 :])


def from_options(options: Mapping[str, object]) -> Values:
    return {
        setting_name(name): Given(value, "--" + name.replace("_", "-"))
        for name, value in options.items()
        if value is not None
    }


OTHER_TABLES = ("tasks", "memories")


@dataclass(frozen=True, slots=True)
class File:
    """A file of settings. top: the values of its top level.

    models: those of the tables [models.X]; None if there is no [models]. tables: the other tables, by kind.
    """

    top: Values = field(default_factory=dict)
    models: Tables | None = None
    tables: Mapping[str, tuple[Table, ...]] = field(default_factory=dict)


def from_file(file: str | None) -> File:
    """What a file says; nothing if there is none."""
    if file is None:
        return File()
    found = _read(file)
    if lines := poly.differences(found):
        about = f"{file} has names of Poly's configuration. Here they are written so:"
        raise SettingsError("\n  ".join([about, *lines]))
    refuse_unknown(found, [*Rows.model_fields, "models", *OTHER_TABLES], f" in {file}")
    written = found.pop("models", None)
    others = {kind: tables.others(kind, found.pop(kind), file) for kind in OTHER_TABLES if kind in found}
    given = {setting_name(key): Given(value, key, f" in {file}") for key, value in found.items()}
    models = None if written is None else tables.of_file(written, f" in {file}")
    models = models and {name: _beside(file, table) for name, table in models.items()}
    return File(_beside(file, given), models, others)


def _read(file: str) -> dict[str, Any]:
    """The table that a file is: YAML by its name's end, else TOML."""
    try:
        data = Path(file).read_bytes()
    except OSError as error:
        raise SettingsError(f"cannot read {file}: {error.strerror}") from None
    if file.lower().endswith(yaml_text.ENDINGS):
        try:
            return yaml_text.read(data)
        except yaml_text.YamlError as error:
            raise SettingsError(f"cannot read {file} as YAML: {error}") from None
    try:
        return tomllib.loads(data.decode())
    except ValueError as error:  # not TOML, or not UTF-8
        raise SettingsError(f"{file} is not TOML: {error}") from None


def task_in(text: str, name: str) -> Table:
    """The one table [tasks.NAME] that a text has and nothing else. name: the text's, in messages."""
    if len(text) > MOST_TOML:
        raise SettingsError(f"{name} has {len(text):,} characters; it may have {MOST_TOML:,}")
    if long := _LONG_NAME.search(text):  # the parser takes the square of their number, and more
        raise SettingsError(f"{name} has a name of more than {MOST_PARTS} parts: {long[0][:40]}…")
    try:
        found = tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise SettingsError(f"{name} is not TOML: {error}") from None
    written = tables.others("tasks", found.get("tasks", {}), name)
    if found.keys() - {"tasks"} or len(written) != 1:
        keys = ", ".join(key for key in found if key != "tasks") or "none beside it"
        raise SettingsError(
            f"{name} must be one table [tasks.NAME]; it has {len(written)} of them, and other keys: {keys}"
        )
    return written[0]


def _beside(file: str, values: Values) -> Values:
    """Resolves relative paths in a file: they are relative to the file's folder."""
    folder = Path(file).resolve().parent
    return {
        name: replace(given, value=_path_beside(folder, given.value)) if name in PATHS else given
        for name, given in values.items()
    }


def _path_beside(folder: Path, value: object) -> object:
    if isinstance(value, list):
        return [_path_beside(folder, one) for one in value]
    if isinstance(value, dict):
        return {name: _path_beside(folder, one) for name, one in value.items()}
    is_path = isinstance(value, str) and not value.startswith("hf:")
    return folder / Path(str(value)).expanduser() if is_path else value


def from_environment(environ: Mapping[str, str]) -> tuple[Values, dict[str, str]]:
    """The values of the server's variables, and the variables of models."""
    ours = {key: value for key, value in environ.items() if key.startswith(PREFIX)}
    of_models = {key: value for key, value in ours.items() if key.startswith(tables.VARIABLE)}
    found = {key: value for key, value in ours.items() if key not in NOT_SETTINGS | of_models.keys()}
    refuse_unknown(found, [PREFIX + name.upper() for name in Rows.model_fields], " in the environment")
    given = {setting_name(key): Given(value, key) for key, value in found.items() if value}
    return given, {key: value for key, value in of_models.items() if value}
