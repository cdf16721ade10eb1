"""Makes dataclasses of JSON objects, whose values are checked by the dataclass's annotations."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, dataclass, fields
from typing import Any, TypeVar

Record = TypeVar("Record")


def is_text(value: object) -> bool:
    return isinstance(value, str)


def is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def is_list(value: object, each: Callable[[Any], bool]) -> bool:
    return isinstance(value, list | tuple) and all(map(each, value))


def _is_call(value: object) -> bool:
    """Whether a value is a piece of a tool call."""
    if not isinstance(value, Mapping) or not is_count(value.get("index")):
        return False
    texts = (value.get("id", ""), value.get("name", ""), value.get("arguments"))
    return all(isinstance(text, str) for text in texts)


def _is_recalled(value: object) -> bool:
    """Whether a value names a chunk that was recalled."""
    if not isinstance(value, Mapping) or not is_text(value.get("id")):
        return False
    scores = value.get("scores", {})
    if not is_object(scores) or not all(map(is_number, scores.values())):
        return False
    if value.get("score") is not None and not is_number(value["score"]):
        return False
    return all(value.get(name) is None or is_text(value[name]) for name in ("memory", "document"))


def _is_vote(value: object) -> bool:
    """Whether a value is an answer of a vote with its count."""
    return isinstance(value, Mapping) and is_text(value.get("answer")) and is_count(value.get("count"))


def is_object(value: object) -> bool:
    return isinstance(value, Mapping)


_TYPES: dict[str, Callable[[Any], bool]] = {
    "str": is_text,
    "str | None": is_text,
    "int": is_count,
    "int | None": is_count,
    "float": is_number,
    "float | None": is_number,
    "bool": lambda value: isinstance(value, bool),
    "Mapping[str, Any]": is_object,
    "Mapping[str, Any] | None": is_object,
    "Mapping[str, float]": lambda value: is_object(value) and all(map(is_number, value.values())),
    "tuple[str, ...]": lambda value: is_list(value, is_text),
    "tuple[int, ...]": lambda value: is_list(value, is_count),
    "tuple[float, ...]": lambda value: is_list(value, is_number),
    "tuple[Sequence[int], ...]": lambda value: is_list(value, lambda one: is_list(one, is_count)),
    "tuple[Mapping[str, Any], ...]": lambda value: is_list(value, is_object),
    "votes: tuple[Mapping[str, Any], ...] | None": lambda value: is_list(value, _is_vote),
    "recalled: tuple[Mapping[str, Any], ...]": lambda value: is_list(value, _is_recalled),
    "tool_calls: tuple[Mapping[str, Any], ...]": lambda value: is_list(value, _is_call),
}
"""Type checks by the text of an annotation, or by the field's name and that text."""


@dataclass(frozen=True, slots=True)
class _Key:
    """One field of a dataclass as a key of JSON; needed: it may be neither null nor absent."""

    name: str
    type: str
    is_right: Callable[[Any], bool]
    has_default: bool
    needed: bool


_KEYS: dict[type[Any], list[_Key]] = {}  # of the dataclasses that were read so far


def _keys(kind: type[Any]) -> list[_Key]:
    if kind not in _KEYS:
        _KEYS[kind] = [_key(row) for row in fields(kind)]
    return _KEYS[kind]


def _key(row: Field[Any]) -> _Key:
    type, has_default = str(row.type), (row.default, row.default_factory) != (MISSING, MISSING)
    is_right = _TYPES.get(f"{row.name}: {type}") or _TYPES[type]
    return _Key(row.name, type, is_right, has_default, not has_default and "None" not in type)


def read_as(kind: type[Record], data: Mapping[str, Any]) -> Record:
    """Makes a dataclass from a JSON object. Null counts as absent, unknown keys are ignored.

    TypeError or KeyError for a wrong or missing value.
    """
    given: dict[str, Any] = {}
    for key in _keys(kind):
        value = data.get(key.name)
        if value is None:
            if key.needed:
                raise KeyError(key.name)
            if not key.has_default:
                given[key.name] = None
        elif not key.is_right(value):
            raise TypeError(f"{key.name} is no {key.type}")
        else:
            given[key.name] = tuple(value) if isinstance(value, list) else value
    return kind(**given)


def records(kind: type[Record], value: object) -> list[Record]:
    """Makes a dataclass of each object of a list; TypeError or KeyError as in read_as."""
    return [read_as(kind, one) for one in as_list(value, is_object)]


def as_text(value: object) -> str:
    """The value if it is a text, else TypeError."""
    if not isinstance(value, str):
        raise TypeError("no text")
    return value


def as_count(value: object) -> int:
    """The value if it is a whole number, else TypeError."""
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError("no whole number")
    return value


def as_list(value: object, each: Callable[[Any], bool]) -> list[Any]:
    """The value if it is a list of such values, else TypeError."""
    if not isinstance(value, list) or not is_list(value, each):
        raise TypeError("no such list")
    return value


def as_object(value: object) -> Mapping[str, Any]:
    """The value if it is an object, else TypeError."""
    if not isinstance(value, Mapping):
        raise TypeError("no object")
    return value
