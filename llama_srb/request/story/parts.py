"""The prompt that is made of a story, as data: its parts, and why each entry of the lore is one or not."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

PartName: TypeAlias = Literal["memory", "lore", "summary", "text", "note"]
Place: TypeAlias = Literal["top", "note"]
Why: TypeAlias = Literal["always", "key", "meaning", "no_key", "no_second_key", "budget"]


@dataclass(frozen=True, slots=True)
class StoryPart:
    """A part of the prompt. entry: the number of the lore's entry that it is."""

    name: PartName
    text: str
    tokens: int
    entry: int | None = None


@dataclass(frozen=True, slots=True)
class Call:
    """Why an entry is called or not. key: the one that was found; at: its place in the client's prompt.

    nearness: of the entry to the story's end by meaning, -1 to 1, where that was computed.
    """

    why: Why
    key: str = ""
    at: int | None = None
    nearness: float | None = None

    @property
    def is_called(self) -> bool:
        return self.why in ("always", "key", "meaning")


@dataclass(frozen=True, slots=True)
class LoreReport:
    """Why an entry stands in the prompt or not, and where."""

    call: Call
    place: Place | None
    tokens: int
    name: str


@dataclass(frozen=True, slots=True)
class Assembled:
    """A prompt in parts. begins: where the text that is in it begins in the client's prompt, in characters.

    cut_tokens: of the text before that. room: tokens that the prompt may have. ahead: the beginning of the
    prompt behind the next cut, when that is near; else empty.
    """

    parts: tuple[StoryPart, ...]
    begins: int
    cut_tokens: int
    lore: tuple[LoreReport, ...]
    room: int
    ahead: str = ""

    @property
    def prompt(self) -> str:
        return "".join(part.text for part in self.parts)
