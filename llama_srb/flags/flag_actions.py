"""The meanings that a flag of llama-server may have here."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias


@dataclass(frozen=True, slots=True)
class Passed:
    """The engine gets it as it is.

    also: words of ours that come with it before `--`. field: a request field that is true by default with it.
    """

    also: str = ""
    field: str = ""


@dataclass(frozen=True, slots=True)
class Ours:
    """A setting of this server, which stands before `--`.

    words: ours in its place, with {} for the value. drop: the value that means the default here, too.
    after: it may stand after `--`, too; then the engine gets it as it is.
    """

    words: str
    read: Callable[[str], str] = str
    drop: str | None = None
    after: bool = False

    @property
    def instead(self) -> str:
        return " and ".join(word for word in self.words.split() if word.startswith("--"))


@dataclass(frozen=True, slots=True)
class Default:
    """The default of a request field. many: each occurrence adds a value, and `none` takes all away.

    join: what it is if words before have set it, of that value and the new one. needs: a value, and the flag
    that the engine must get beside it.
    """

    field: str
    read: Callable[[str], Any]
    many: bool = False
    none: str | None = None
    join: Callable[[Any, Any], Any] | None = None
    needs: tuple[str, str] | None = None


@dataclass(frozen=True, slots=True)
class Always:
    """It asks for what this server does anyway."""

    why: str


@dataclass(frozen=True, slots=True)
class Refused:
    """It is refused. same: values, separated by spaces, that ask for what this server does anyway."""

    instead: str
    same: str = ""


FlagAction: TypeAlias = Passed | Ours | Default | Always | Refused
