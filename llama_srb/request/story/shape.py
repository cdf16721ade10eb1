"""The field `story` as data, and its reader. Knows neither texts' tokens nor where they stand in a prompt."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

from llama_srb.request.shapes import from_json
from llama_srb.request.values import INT32_MAX, RequestError, is_number, is_text, shown, switch, whole, wrong

T = TypeVar("T")
Reader: TypeAlias = Callable[[str, object], Any]
"""Reads a value; the first argument is the field's name for errors."""

MAX_ENTRIES, MAX_KEYS, MAX_KEY = 1000, 100, 500  # of lore; of an entry; characters of a key
MAX_TEXT = 1_000_000  # characters of one text of a story, but its prompt
MAX_SEARCH = 1_000_000
MAX_SEPARATOR = 100  # characters: it stands behind each of up to a thousand parts
SEARCH, DEPTH, ORDER = 1000, 100, 100


@dataclass(frozen=True, slots=True)
class Note:
    """The author's note. depth: about so many tokens of the text stand behind it, at most."""

    text: str
    depth: int = DEPTH


@dataclass(frozen=True, slots=True)
class LoreEntry:
    """A text that comes into the prompt when the story's end has one of its keys.

    also: second keys, of which one must be there too. always: without keys. order: of entries of a higher
    order more stay where the budget is small, and they stand nearer to the end. search: how many characters
    of the story's end are searched. budget: tokens of this entry; a longer one is cut. meaning: the entry
    comes without a key, too, if its text is at least so near to the story's end.
    """

    text: str
    keys: tuple[str, ...] = ()
    also: tuple[str, ...] = ()
    name: str = ""
    always: bool = False
    order: int = ORDER
    search: int | None = None
    budget: int | None = None
    meaning: float | None = None


@dataclass(frozen=True, slots=True)
class Story:
    """What stands around a story's text, which is the prompt. budget: tokens of all lore.

    search: of entries that have none. separator: stands behind each part that does not end with it.
    """

    memory: str = ""
    note: Note | None = None
    lore: tuple[LoreEntry, ...] = ()
    summary: str = ""
    budget: int | None = None
    search: int = SEARCH
    separator: str = "\n"

    @property
    def depth(self) -> int:
        """The note's; lore that is found after the cut stands there, also without a note."""
        return DEPTH if self.note is None else self.note.depth


def _text(name: str, value: object, most: int = MAX_TEXT) -> str:
    if not isinstance(value, str) or not is_text(value):
        raise wrong(name, value, "a text")
    if len(value) > most:
        raise RequestError(f"{name} has {len(value)} characters; it may have {most}", param=name)
    return value


def _separator(name: str, value: object) -> str:
    return _text(name, value, MAX_SEPARATOR)


def _number(low: int, high: int = INT32_MAX) -> Reader:
    return lambda name, value: whole(name, value, low, high)


def _share(name: str, value: object) -> float:
    if not is_number(value) or not isinstance(value, int | float) or not 0 <= value <= 1:
        raise wrong(name, value, "a number between 0 and 1")
    return float(value)


def _keys(name: str, value: object) -> tuple[str, ...]:
    """One text or a list of them; empty ones are dropped, since an empty key would match everywhere."""
    given: list[Any] = list(value) if isinstance(value, list | tuple) else [value]
    if not all(map(is_text, given)):
        raise wrong(name, value, "a text or a list of texts")
    if len(given) > MAX_KEYS:
        raise RequestError(f"{name} has {len(given)} keys; it may have {MAX_KEYS}", param=name)
    if (longest := max(map(len, given), default=0)) > MAX_KEY:
        raise RequestError(f"{name} has a key of {longest} characters; it may have {MAX_KEY}", param=name)
    return tuple(stripped for one in given if (stripped := one.strip()))


def _object(make: Callable[..., T], readers: Mapping[str, Reader], required: str = "") -> Callable[..., T]:
    """The reader of an object: a reader for each of its fields."""

    def read(name: str, value: object) -> T:
        if not isinstance(value, dict):
            raise wrong(name, value, "an object: " + ", ".join(readers))
        given = {field: one for field, one in value.items() if one is not None}
        for field in [field for field in given if field not in readers]:
            message = f"{name} has no field {shown(field)}, only {', '.join(readers)}"
            raise RequestError(message, param=name)
        if required and required not in given:
            raise RequestError(f"{name}.{required} is missing", param=f"{name}.{required}")
        return make(**{field: readers[field](f"{name}.{field}", one) for field, one in given.items()})

    return read


NOTE: Mapping[str, Reader] = {"text": _text, "depth": _number(0)}
ENTRY: Mapping[str, Reader] = {
    "keys": _keys,
    "also": _keys,
    "text": _text,
    "name": _text,
    "always": switch,
    "order": _number(-INT32_MAX),
    "search": _number(1, MAX_SEARCH),
    "budget": _number(1),
    "meaning": _share,
}
_entry = _object(LoreEntry, ENTRY, required="text")


def _lore(name: str, value: object) -> tuple[LoreEntry, ...]:
    if not isinstance(value, list | tuple):
        raise wrong(name, value, "a list of objects: " + ", ".join(ENTRY))
    if len(value) > MAX_ENTRIES:
        raise RequestError(f"{name} has {len(value)} entries; it may have {MAX_ENTRIES}", param=name)
    return tuple(_entry(f"{name}[{i}]", one) for i, one in enumerate(value))


STORY: Mapping[str, Reader] = {
    "memory": _text,
    "note": _object(Note, NOTE, required="text"),
    "lore": _lore,
    "summary": _text,
    "budget": _number(0),
    "search": _number(1, MAX_SEARCH),
    "separator": _separator,
}
_story = _object(Story, STORY)


def read_story(value: object) -> object:
    """An object, or one as JSON; errors name its fields as story.lore[2].keys."""
    return value if value is None or isinstance(value, Story) else _story("story", from_json("story", value))
