"""The fields `finish` and `prune`: when texts end that still run.

And `end` and `repetition_detection`: when one text does. Pure. It knows what the fields may have; the engine
ends sequences, and engine/ranking says when a vote is decided.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any

from llama_srb.request.shapes import from_json
from llama_srb.request.values import INT32_MAX, MAX_INDEX, RequestError, shown, switch, whole, wrong

MAX_PRUNE_POINTS = 16
MAX_PASSAGES = 1000
MAX_LOOP = 8192  # tokens
SCORES = ("certainty", "logprob")


@dataclass(frozen=True, slots=True)
class Finish:
    """The rest ends when `first` texts have ended by themselves, or when no answer can overtake the first."""

    first: int | None = None
    vote_decided: bool = False

    def fields(self) -> dict[str, Any]:
        """The object for the engine, which knows nothing of votes."""
        return {} if self.first is None else {"first": self.first}


@dataclass(frozen=True, slots=True)
class Prune:
    """At each of these lengths all but the best end."""

    at: tuple[int, ...]
    keep: int
    by: str = "certainty"

    def fields(self) -> dict[str, Any]:
        """The object for the engine."""
        return {"at": list(self.at), "keep": self.keep, "by": self.by}


@dataclass(frozen=True, slots=True)
class End:
    """A text ends behind this many sentences, or paragraphs."""

    sentences: int | None = None
    paragraphs: int | None = None

    def fields(self) -> dict[str, Any]:
        """The object for the engine."""
        both = {"sentences": self.sentences, "paragraphs": self.paragraphs}
        return {name: count for name, count in both.items() if count is not None}


@dataclass(frozen=True, slots=True)
class Repetition:
    """A text ends where a passage of so many tokens stands `min_count` times, one behind the other."""

    max_pattern_size: int
    min_pattern_size: int = 1
    min_count: int = 2


Reader = Callable[[object], Any]


def _marks(value: object) -> tuple[int, ...]:
    wanted = f"a list of 1 to {MAX_PRUNE_POINTS} rising numbers of tokens"
    if not isinstance(value, list | tuple) or not 1 <= len(value) <= MAX_PRUNE_POINTS:
        raise wrong("at", value, wanted)
    points = tuple(whole("at", one, 1, INT32_MAX) for one in value)
    if any(one >= following for one, following in pairwise(points)):
        raise wrong("at", value, wanted)
    return points


def _score(value: object) -> object:
    if value not in SCORES:
        raise wrong("by", value, "one of " + ", ".join(SCORES))
    return value


_FINISH: Mapping[str, Reader] = {
    "first": lambda value: whole("first", value, 1, MAX_INDEX),
    "vote_decided": partial(switch, "vote_decided"),
}
_PRUNE: Mapping[str, Reader] = {
    "at": _marks,
    "keep": lambda value: whole("keep", value, 1, MAX_INDEX),
    "by": _score,
}
_END: Mapping[str, Reader] = {
    name: partial(lambda name, value: whole(name, value, 1, MAX_PASSAGES), name)
    for name in ("sentences", "paragraphs")
}


_REPETITION: Mapping[str, Reader] = {
    name: partial(lambda name, value: whole(name, value, 0, MAX_LOOP), name)
    for name in ("min_pattern_size", "max_pattern_size", "min_count")
}


def read_repetition(value: object) -> object:
    """An object, or one as JSON, as vLLM reads it: without a max_pattern_size it is off."""
    if value is None or isinstance(value, Repetition):
        return value
    given = _read("repetition_detection", value, _REPETITION)
    if not given.get("max_pattern_size"):
        return Repetition(0)
    made = Repetition(
        given["max_pattern_size"], given.get("min_pattern_size") or 1, given.get("min_count", 0)
    )
    if made.min_count < 2:
        raise wrong("repetition_detection.min_count", made.min_count, f"between 2 and {MAX_LOOP}")
    if made.min_pattern_size > made.max_pattern_size:
        raise wrong(
            "repetition_detection.min_pattern_size",
            made.min_pattern_size,
            f"at most max_pattern_size, {made.max_pattern_size}",
        )
    return made


def read_end(value: object) -> object:
    """An object, or one as JSON; errors name its fields as end.sentences. Without a number it is None."""
    if value is None or isinstance(value, End):
        return value
    made = End(**_read("end", value, _END))
    if made.sentences is not None and made.paragraphs is not None:
        raise RequestError("only one of end.sentences and end.paragraphs may be given", param="end")
    return made if made.fields() else None


def read_finish(value: object) -> object:
    """An object, or one as JSON; errors name its fields as finish.first. Without a condition it is None."""
    if value is None or isinstance(value, Finish):
        return value
    made = Finish(**_read("finish", value, _FINISH))
    return made if made.first is not None or made.vote_decided else None


def read_prune(value: object) -> object:
    """An object, or one as JSON; errors name its fields as prune.keep."""
    if value is None or isinstance(value, Prune):
        return value
    given = _read("prune", value, _PRUNE)
    for name in ("at", "keep"):
        if name not in given:
            raise RequestError(f"prune.{name} is missing", param=f"prune.{name}")
    return Prune(**given)


def _read(field: str, value: object, readers: Mapping[str, Reader]) -> dict[str, Any]:
    given = from_json(field, value)
    if not isinstance(given, dict):
        raise wrong(field, value, "an object: " + ", ".join(readers))
    read = {}
    for name, one in given.items():
        if name not in readers:
            raise RequestError(f"{field} has no field {shown(name)}, only {', '.join(readers)}", param=field)
        if one is None:
            continue
        try:
            read[name] = readers[name](one)
        except RequestError as error:
            raise RequestError(f"{field}.{error.message}", param=f"{field}.{name}") from None
    return read
