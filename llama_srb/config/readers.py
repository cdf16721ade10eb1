"""Reads the values of settings, which options, variables and TOML write differently."""

from __future__ import annotations

import re
import shlex
from pathlib import Path


def size(value: object) -> object:
    """Reads a number of bytes, also as "16 MiB" or "16M"."""
    units = {"": 0, "K": 1, "M": 2, "G": 3}
    if isinstance(value, str) and (match := re.fullmatch(r"(\d+)\s*([KMG]?)(?:i?B)?", value.strip(), re.I)):
        return int(match[1]) << 10 * units[match[2].upper()]
    return value


def at_home(path: Path | None) -> Path | None:
    return path and path.expanduser()


def words(value: object) -> object:
    """Reads several words; a text is split at commas and spaces."""
    return tuple(value.replace(",", " ").split()) if isinstance(value, str) else value


def names(value: object) -> object:
    """Reads several names, each of which may have spaces; a text is split at commas."""
    found = value.split(",") if isinstance(value, str) else value
    return tuple(filter(None, map(str.strip, found))) if isinstance(found, list | tuple) else found


def files(value: object) -> object:
    """Reads several paths; a text is split at commas."""
    names = value.split(",") if isinstance(value, str) else value
    if not isinstance(names, list | tuple):
        return names
    return tuple(Path(name.strip()).expanduser() if isinstance(name, str) else name for name in names if name)


def arguments(value: object) -> object:
    """Reads engine arguments; a text is split as a shell does."""
    return tuple(shlex.split(value)) if isinstance(value, str) else value
