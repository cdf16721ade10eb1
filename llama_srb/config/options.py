"""The settings as options of a command line, of which the commands and docs/operations.md are made."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args, get_origin

from pydantic import BeforeValidator

from .readers import size
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
FILES = frozenset({"api_key_file", "jwt_keys", "tls_cert", "tls_key"})  # optional files, not folders
PATHS = FILES | {"model", "engine", "prefix_cache", "lora", "presets"}


def _as_size(value: int) -> str:
    """Bytes in a short form: 4G."""
    power = max(power for power in range(4) if value % (1 << 10 * power) == 0)
    return f"{value >> 10 * power}{'BKMG'[power].strip('B')}"


def _option(name: str) -> Option:
    row = Rows.model_fields[name]
    choices = get_args(row.annotation) if get_origin(row.annotation) is Literal else ()
    is_size = any(isinstance(rule, BeforeValidator) and rule.func is size for rule in row.metadata)
    kind = "SIZE" if is_size else "FILE" if name in FILES else _KINDS.get(row.annotation, "TEXT")
    default = _as_size(row.default) if is_size else row.default
    return Option(name, "--" + name.replace("_", "-"), row.description or "", default, kind, choices)


OPTIONS = tuple(_option(name) for name in Rows.model_fields if name != "engine_args")
