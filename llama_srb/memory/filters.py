"""Filters of a search: conditions on metadata and on the score, as `{"metadata": {"year": {"gte": 1900}}}`.

A value instead of an object of operators means "equal". All conditions must hold.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, TypeAlias

from llama_srb.request.values import RequestError, is_number, is_text, shown, wrong

from .records import Metadata

MAX_CONDITIONS, MAX_IN = 64, 1000
MAX_VALUES = 16_000  # of all lists of a filter
PER_VALUE = 100  # characters, or bytes of metadata as JSON, that cost as much as one condition
ITEMS_PER_VALUE = 8  # items of a list
QUICK = 8192  # characters of a text times those of a part: a few microseconds
PLACES = ("metadata", "score")

_Single: TypeAlias = str | int | float | bool


def _is_single(value: object) -> bool:
    return is_text(value) or isinstance(value, bool) or is_number(value)


def _is_ordered(value: object) -> bool:
    return is_text(value) or is_number(value)


def _is_bool(value: object) -> bool:
    return isinstance(value, bool)


def _is_singles(value: object) -> bool:
    return isinstance(value, list) and 0 < len(value) <= MAX_IN and all(map(_is_single, value))


def _same(one: object, other: object) -> bool:
    """Equal as JSON: true is not 1."""
    return isinstance(one, bool) == isinstance(other, bool) and one == other


def _distinct(some: list[_Single]) -> frozenset[tuple[bool, _Single]]:
    """The values as a set in which true is not 1."""
    return frozenset((isinstance(one, bool), one) for one in some)


def _among(one: object, some: Any) -> bool:
    return not isinstance(one, list) and (isinstance(one, bool), one) in some


def _ordered(compare: Callable[[Any, Any], bool]) -> Callable[[Any, Any], bool]:
    """A comparison that is false for values of two types."""

    def holds(one: Any, other: Any) -> bool:
        both_texts = isinstance(one, str) and isinstance(other, str)
        return (both_texts or (is_number(one) and is_number(other))) and compare(one, other)

    return holds


def _contains(one: object, wanted: Any) -> bool:
    """Whether a list has an item, or a text a part."""
    if isinstance(one, str):
        return isinstance(wanted, str) and _has(one, wanted)
    if not isinstance(one, list) or wanted not in one:
        return False
    return _same(wanted, one[one.index(wanted)]) or any(_same(wanted, other) for other in one)


def _has(text: str, part: str) -> bool:
    """Whether a text has a part, in time that grows with the text alone."""
    if len(part) > len(text) or len(text) * len(part) <= QUICK:
        return part in text
    return _pattern(part).search(text) is not None


@lru_cache(1024)
def _pattern(part: str) -> re.Pattern[str]:
    """Finds a part in one pass, which `in` does not for each text of repeated letters."""
    return re.compile(re.escape(part))


@dataclass(frozen=True, slots=True)
class _Operator:
    """wanted: the operand's type in words; without: the result for metadata without the key.

    compiled: the operand as `holds` gets it.
    """

    accepts: Callable[[object], bool]
    wanted: str
    holds: Callable[[Any, Any], bool]
    without: Callable[[Any], bool] = lambda _: False
    compiled: Callable[[Any], Any] = lambda operand: operand


_VALUE, _ORDERED = "a text, a number, true or false", "a text or a number"
_LIST = f"a list of 1 to {MAX_IN} texts, numbers, true and false"

OPERATORS = {
    "eq": _Operator(_is_single, _VALUE, _same),
    "ne": _Operator(_is_single, _VALUE, lambda one, other: not _same(one, other), lambda _: True),
    "lt": _Operator(_is_ordered, _ORDERED, _ordered(lambda one, other: one < other)),
    "lte": _Operator(_is_ordered, _ORDERED, _ordered(lambda one, other: one <= other)),
    "gt": _Operator(_is_ordered, _ORDERED, _ordered(lambda one, other: one > other)),
    "gte": _Operator(_is_ordered, _ORDERED, _ordered(lambda one, other: one >= other)),
    "in": _Operator(_is_singles, _LIST, _among, compiled=_distinct),
    "not_in": _Operator(_is_singles, _LIST, lambda *both: not _among(*both), lambda _: True, _distinct),
    "contains": _Operator(_is_ordered, _ORDERED, _contains),
    "exists": _Operator(_is_bool, "true or false", lambda _, wanted: wanted, lambda wanted: not wanted),
}  # fmt: skip
OF_SCORES = ("lt", "lte", "gt", "gte")


@dataclass(frozen=True, slots=True)
class Condition:
    """One condition. key: of the metadata; None: it is about the score. operand: as OPERATORS compiles it."""

    key: str | None
    operator: str
    operand: Any

    def holds(self, score: float, metadata: Metadata) -> bool:
        row = OPERATORS[self.operator]
        if self.key is None:
            return row.holds(score, self.operand)
        if self.key not in metadata:
            return row.without(self.operand)
        return row.holds(metadata[self.key], self.operand)


@dataclass(frozen=True, slots=True)
class Filter:
    """before: limits the chunks of which the k best are taken; after: limits these k, so few may be left.

    lacking: texts that none of the k chunks has. besides: the id of a document of which nothing is taken.
    prompts: True: only prompts that tasks have stored are looked at; False: only other documents.
    per_document: the most chunks of one document; None: any number.
    diversity: how much it counts that a chunk is unlike those before it; 0: not at all, 1: nothing else does.
    on_bound: gets why a search has ended at a bound of its work, with what it had found; None: an error.
    """

    before: tuple[Condition, ...] = ()
    after: tuple[Condition, ...] = ()
    lacking: tuple[str, ...] = ()
    besides: str = ""
    prompts: bool | None = None
    per_document: int | None = None
    diversity: float = 0.0
    on_bound: Callable[[str], None] | None = field(default=None, compare=False)

    def cost_of_taking(self, metadata: Metadata, size: int) -> int:
        """How many values takes() compares: conditions, and items of lists. size: bytes of the metadata."""
        cost = 1 + len(self.before) + size // PER_VALUE
        for one in self.before:
            if one.operator == "contains" and isinstance(items := metadata.get(str(one.key)), list):
                cost += len(items) // ITEMS_PER_VALUE
        return cost

    def takes(self, metadata: Metadata) -> bool:
        """Whether the chunks of a document may be taken, if their scores may."""
        return all(one.holds(0.0, metadata) for one in self.before if one.key is not None)

    def takes_score(self, score: float) -> bool:
        return all(one.holds(score, {}) for one in self.before if one.key is None)

    def cost_of_letting(self, text: str) -> int:
        """How many values lets() compares."""
        return len(self.lacking) * (1 + len(text) // PER_VALUE)

    def lets(self, text: str) -> bool:
        """Whether a chunk has none of the texts that it must lack."""
        return not any(_has(text, one) for one in self.lacking)

    @property
    def has_scores(self) -> bool:
        """Whether a condition is about the score."""
        return any(one.key is None for one in (*self.before, *self.after))

    def ends_at(self, score: float) -> bool:
        """Whether chunks with this score or a lower one cannot pass."""
        least = (one for one in self.before if one.key is None and one.operator in ("gt", "gte"))
        return any(not one.holds(score, {}) for one in least)

    def keeps(self, score: float, metadata: Metadata) -> bool:
        return all(one.holds(score, metadata) for one in self.after)

    def with_prompts(self, *, only: bool, besides: str = "") -> Filter:
        """This filter, which takes only prompts that tasks have stored, or none."""
        return replace(self, prompts=only, besides=besides)


NO_FILTER = Filter()


def parse_filter(before: object = None, after: object = None, name: str = "filter") -> Filter:
    """The filters of a search out of JSON; `name` is that of the first one in errors."""
    return Filter(parse(before, name), parse(after, "post_filter"))


def parse(value: object, name: str) -> tuple[Condition, ...]:
    """The conditions of one filter; RequestError names the wrong value and the nearest right name."""
    if value is None:
        return ()
    if not isinstance(value, Mapping):
        raise wrong(name, value, "an object")
    found: list[Condition] = []
    for place, conditions in value.items():
        if place not in PLACES:
            raise _unknown(name, place, PLACES)
        if place == "score":
            found += _conditions(None, conditions, f"{name}.score", OF_SCORES, name)
            continue
        if not isinstance(conditions, Mapping):
            raise wrong(f"{name}.metadata", conditions, "an object", name)
        for key, one in conditions.items():
            found += _conditions(str(key), one, f"{name}.metadata.{str(key)[:60]}", tuple(OPERATORS), name)
    if len(found) > MAX_CONDITIONS:
        raise RequestError(
            f"{name} has {len(found)} conditions; it must have at most {MAX_CONDITIONS}", param=name
        )
    n_values = sum(len(one.operand) for one in found if isinstance(one.operand, frozenset))
    if n_values > MAX_VALUES:
        raise RequestError(
            f"the lists of {name} have {n_values:,} values; they must have at most {MAX_VALUES:,}", param=name
        )
    return tuple(found)


def _conditions(
    key: str | None, value: object, name: str, known: tuple[str, ...], param: str
) -> list[Condition]:
    if not isinstance(value, Mapping):
        if key is None or not _is_single(value):
            raise wrong(name, value, f"an object of {', '.join(known)}", param)
        return [Condition(key, "eq", value)]
    for operator, operand in value.items():
        if operator not in known:
            raise _unknown(name, operator, known, param)
        row = OPERATORS[operator]
        if key is None and not is_number(operand):
            raise wrong(f"{name}.{operator}", operand, "a number", param)
        if not row.accepts(operand):
            raise wrong(f"{name}.{operator}", operand, row.wanted, param)
    return [Condition(key, name, OPERATORS[name].compiled(operand)) for name, operand in value.items()]


def _unknown(name: str, given: object, known: tuple[str, ...], param: str | None = None) -> RequestError:
    near = difflib.get_close_matches(str(given)[:100], known, n=1)
    hint = f"; did you mean {near[0]}?" if near else ""
    return RequestError(
        f"{name} has {shown(given)}; it may have {', '.join(known)}{hint}", param=param or name
    )
