"""The names of settings as people write them, and the error for a wrong setting."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

PREFIX = "LLAMA_SRB_"


class SettingsError(Exception):
    """A setting is wrong; the message has the setting's name as the operator wrote it, on one line,
    or on a line of a list."""


def setting_name(written: str) -> str:
    """The name of the setting for a key of a file or a variable."""
    return written.removeprefix(PREFIX).lower().replace("-", "_")


def quoted(name: str) -> str:
    """A name as a key of TOML."""
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else f'"{name}"'


@dataclass(frozen=True, slots=True)
class Given:
    """A value as it was written, and its place: key and where, as "ctx" and " in srb.toml"."""

    value: object
    key: str
    where: str = ""

    def place(self, *inner: str) -> str:
        """The value's place in a message; inner: keys inside it."""
        return ".".join((self.key, *inner)) + self.where


Values: TypeAlias = dict[str, Given]
"""From settings to what was given for them."""


@dataclass(frozen=True, slots=True)
class Table:
    """A table [KIND.NAME] of a file, whose values nobody has checked. folder: the file's."""

    kind: str
    name: str
    values: Mapping[str, Given]
    folder: Path

    @property
    def place(self) -> str:
        """Its place in a message: "tasks.NAME"."""
        return f"{self.kind}.{quoted(self.name)}"


def nearest(word: str, known: Iterable[str]) -> str:
    """The end of a message about an unknown word: the nearest known one, if there is one."""
    found = difflib.get_close_matches(word, list(known))
    found.sort(key=lambda one: sorted(one) != sorted(word))  # letters that changed places, before others
    return f"; did you mean {found[0]}?" if found else ""


def refuse_unknown(found: Iterable[str], known: Iterable[str], where: str) -> None:
    known = list(known)
    for key in found:
        if key not in known and setting_name(key) not in known:
            raise SettingsError(f"{key}{where} is not a setting{nearest(key, known)}")
