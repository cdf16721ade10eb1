"""Presets: settings by a name, each a TOML file of request fields. Knows neither HTTP nor the engine.

A file's name is the preset's; `about` says what it is for, all else are fields that any request may have.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from llama_srb.request.parse import canonical
from llama_srb.request.values import RequestError

SHIPPED = Path(__file__).parent.parent / "preset_files"


class PresetError(Exception):
    """A file that is no preset; the message is one line that begins with its path."""


@dataclass(frozen=True, slots=True)
class Preset:
    """Canonical names and values, checked."""

    name: str
    about: str
    fields: Mapping[str, Any]


def read(folders: Iterable[Path]) -> dict[str, Preset]:
    """All presets of these folders by name; of two with one name the later counts. PresetError."""
    files = [file for folder in folders for file in _files(folder)]
    return {file.stem: _read(file) for file in files}


def _files(folder: Path) -> list[Path]:
    try:
        return sorted(folder.glob("*.toml"))
    except OSError as error:
        raise PresetError(f"{folder}: {error.strerror}") from None


def _read(file: Path) -> Preset:
    try:
        fields = tomllib.loads(file.read_text(encoding="utf-8"))
        about = fields.pop("about", "")
        return Preset(file.stem, str(about), canonical(fields))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError, RecursionError) as error:
        raise PresetError(f"{file}: {error}") from None
    except RequestError as error:
        raise PresetError(f"{file}: {error.message}") from None
