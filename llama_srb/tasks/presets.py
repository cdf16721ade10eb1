"""Presets: named TOML files of request fields. Knows neither HTTP nor the engine.

A file's name is the preset's name. `title` is its name for writers, `about` describes it; all other keys are
request fields.
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
    """A preset file is invalid; the message is one line that begins with its path."""


@dataclass(frozen=True, slots=True)
class Preset:
    """A preset with its checked fields, by canonical names."""

    name: str
    title: str
    about: str
    fields: Mapping[str, Any]


def read(folders: Iterable[Path]) -> dict[str, Preset]:
    """Reads the presets of these folders, by name; a later one replaces an earlier one. PresetError."""
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
        title, about = fields.pop("title", _titled(file.stem)), fields.pop("about", "")
        return Preset(file.stem, str(title), str(about), canonical(fields))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError, RecursionError) as error:
        raise PresetError(f"{file}: {error}") from None
    except RequestError as error:
        raise PresetError(f"{file}: {error.message}") from None


def _titled(name: str) -> str:
    """The title of a preset that has none of its own: "no-loops" is shown as "No loops"."""
    words = name.replace("-", " ").replace("_", " ")
    return words[:1].upper() + words[1:]
