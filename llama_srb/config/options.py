"""The settings as options of a command line, of which the commands and docs/settings.md are made."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args, get_origin

from pydantic import BeforeValidator

from .readers import collector, duration, file_mode, json_object, named_files, size
from .rows import Rows


@dataclass(frozen=True, slots=True)
class Option:
    """One setting as a command line shows it; choices is empty if it is not one of a few values."""

    name: str
    flag: str
    meaning: str
    default: object
    kind: str
    choices: tuple[str, ...] = ()


_KINDS: dict[object, str] = {
    int: "NUMBER",
    int | None: "NUMBER",
    float: "SECONDS",
    float | None: "SECONDS",
    bool: "",
    Path: "FILE",
    Path | None: "DIR",
    tuple[Path, ...]: "FILE,…",
}
_READ: dict[object, str] = {
    size: "SIZE",
    duration: "TIME",
    file_mode: "MODE",
    named_files: "NAME=FILE,…",
    json_object: "JSON",
    collector: "URL",
}
FILES = frozenset(
    {"api_key_file", "jwt_keys", "prompt_file", "tls_cert", "tls_key"}
)  # optional files, not folders
FOLDERS = frozenset(
    {"prefix_cache", "packed_weights", "presets", "models_dir", "adapters_dir", "files_dir", "stories"}
)
PATHS = FILES | FOLDERS | {"model", "engine", "lora", "adapters"}


def _as_size(value: int) -> str:
    """Bytes in a short form: 4G."""
    power = max(power for power in range(4) if value % (1 << 10 * power) == 0)
    return f"{value >> 10 * power}{'BKMG'[power].strip('B')}"


def _option(name: str) -> Option:
    row = Rows.model_fields[name]
    choices = get_args(row.annotation) if get_origin(row.annotation) is Literal else ()
    readers = [rule.func for rule in row.metadata if isinstance(rule, BeforeValidator)]
    kind = "FILE" if name in FILES else _KINDS.get(row.annotation, "TEXT")
    kind = next((_READ[reader] for reader in readers if reader in _READ), kind)
    default = _as_size(row.default) if size in readers and row.default else row.default
    if isinstance(default, dict):
        default = None
    if file_mode in readers:
        default = f"{row.default:o}"
    return Option(name, "--" + name.replace("_", "-"), row.description or "", default, kind, choices)


OPTIONS = tuple(_option(name) for name in Rows.model_fields if name != "engine_args")
