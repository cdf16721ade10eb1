"""Reads the values of settings, which options, variables and TOML write differently."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from urllib.parse import urlsplit


def size(value: object) -> object:
    """Reads a number of bytes, also as "16 MiB" or "16M"."""
    units = {"": 0, "K": 1, "M": 2, "G": 3}
    if isinstance(value, str) and (match := re.fullmatch(r"(\d+)\s*([KMG]?)(?:i?B)?", value.strip(), re.I)):
        return int(match[1]) << 10 * units[match[2].upper()]
    return value


def file_mode(value: object) -> object:
    """Reads the mode of a file in octal, as chmod does; a number of TOML (0o660) is one already."""
    return int(value, 8) if isinstance(value, str) and re.fullmatch("[0-7]{3,4}", value) else value


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


SECONDS_IN = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}


def duration(value: object) -> object:
    """Reads seconds, also as "90s", "10m", "2h", "1d"; "never" is None."""
    if not isinstance(value, str):
        return value
    if value.strip() == "never":
        return None
    if (match := re.fullmatch(r"(\d+(?:\.\d+)?)\s*([smhd]?)", value.strip())) is None:
        raise ValueError("a time as 30s, 10m, 2h or 1d, or never")
    return float(match[1]) * SECONDS_IN[match[2]]


def json_object(value: object) -> object:
    """Reads an object; a text is JSON."""
    if not isinstance(value, str):
        return value
    try:
        found = json.loads(value)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise ValueError('an object of JSON, as {"temperature": 0.9}')
    return found


def named_files(value: object) -> object:
    """Reads names with their files; a text is NAME=FILE, with commas between several."""
    if isinstance(value, str):
        pairs = [pair.partition("=") for pair in value.split(",")]
        if not all(name.strip() and file.strip() for name, _, file in pairs):
            raise ValueError("NAME=FILE, with commas between several")
        value = {name.strip(): file.strip() for name, _, file in pairs}
    if not isinstance(value, dict):
        return value
    return {name: Path(file).expanduser() if isinstance(file, str) else file for name, file in value.items()}


def adapter(path: Path) -> Path:
    """An adapter's path, which stands in a list of llama.cpp's --lora-scaled."""
    if set(str(path)) & set(':,"'):
        raise ValueError('a path without : , and "')
    return path


def collector(value: object) -> object:
    """Reads a collector's address; one without a path gets that of OTLP's traces."""
    if not isinstance(value, str):
        return value
    found = urlsplit(value.strip())
    if found.scheme not in ("http", "https") or not found.hostname:
        raise ValueError("an address as http://localhost:4318")
    return found._replace(path=found.path.rstrip("/") or "/v1/traces").geturl()
