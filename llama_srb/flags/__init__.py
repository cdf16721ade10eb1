"""The flags of llama-server on our command line: one table has the meaning of each here.

`translate` reads the words before `--`, as people type them for llama-server, and `sort` those after it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from .flag_actions import Default, FlagAction, Ours, Passed, Refused
from .table import ROWS

ADDRESS, MAX_PORT = re.compile(r"[^\s:,]+:(\d{1,5})", re.ASCII), 65535  # host:port


class FlagError(Exception):
    """A flag cannot be used; the message is one line with its name and what to use instead."""


@dataclass(frozen=True, slots=True)
class Flag:
    """One row of the table: names of one meaning, the number of values, and its meaning here."""

    names: tuple[str, ...]
    values: int
    action: FlagAction

    @property
    def name(self) -> str:
        """The first long name."""
        return next((name for name in self.names if name.startswith("--")), self.names[0])


FLAGS = tuple(Flag(tuple(names.split()), values, action) for names, values, action in ROWS)
BY_NAME = {name: flag for flag in FLAGS for name in flag.names}


@dataclass(slots=True)
class Sorted:
    """Words for the engine, the defaults of request fields, and the values of flags that the engine gets."""

    engine: list[str] = field(default_factory=list)
    fields: dict[str, Any] = field(default_factory=dict)
    passed: dict[str, tuple[str, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Found:
    """A flag with its values, or a word that is no flag of llama-server (flag is None)."""

    word: str  # as it was written
    flag: Flag | None = None
    values: tuple[str, ...] = ()

    @property
    def words(self) -> tuple[str, ...]:
        """The flag and its values; FlagError if one is missing."""
        if self.flag is None:
            return (self.word,)
        if len(self.values) < self.flag.values:
            raise FlagError(f"{self.word} needs a value")
        return (self.word.partition("=")[0], *self.values)


def translate(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """From words before `--`: those for our own options, and those for `sort`. FlagError."""
    ours: list[str] = []
    others: list[str] = []
    for found in _find(words):
        match found.flag.action if found.flag else None:
            case None:
                ours.append(found.word)
            case Ours() as action:
                ours += _our_words(found, action)
            case Passed(also=also):
                ours += also.split()
                others += found.words
            case _:
                _sort_one(found, Sorted())  # refuses what cannot be used
                others += found.words
    return ours, others


def sort(words: Iterable[str]) -> Sorted:
    """Sorts words after `--`; the engine refuses those that are no flags of llama-server. FlagError."""
    done = Sorted()
    for found in _find(list(words)):
        _sort_one(found, done)
    return done


def unknown(words: Sequence[str]) -> str | None:
    """The first of words after `--` that is no flag of llama-server, nor a value of one."""
    return next((found.word for found in _find(words) if found.flag is None), None)


def _find(words: Sequence[str]) -> Iterator[_Found]:
    at = 0
    while at < len(words):
        name, equals, value = words[at].partition("=")
        flag = BY_NAME.get(name.replace("_", "-") if name.startswith("--") else name)
        if flag is None:
            yield _Found(words[at])
            at += 1
        elif equals and flag.values == 1:
            yield _Found(words[at], flag, (value,))
            at += 1
        else:
            yield _Found(words[at], flag, tuple(words[at + 1 : at + 1 + flag.values]))
            at += 1 + flag.values


def _sort_one(found: _Found, done: Sorted) -> None:
    if found.flag is None:
        done.engine.append(found.word)
        return
    match found.flag.action:
        case (Passed() | Ours(after=True)) as action:
            done.engine += found.words
            if isinstance(action, Passed) and action.field:
                done.fields.setdefault(action.field, True)
            done.passed.pop(found.flag.name, None)  # so that the order is that of the last ones
            done.passed[found.flag.name] = found.values
        case Default() as action if found.words:
            _set_default(found, action, done.fields)
        case Ours() as ours:
            raise FlagError(f"{found.word} after -- is a setting of the server; use {ours.instead}")
        case Refused(instead=instead, same=same) if " ".join(found.values) not in same.split():
            raise FlagError(f"{found.word} is not possible here: {instead}")


def _set_default(found: _Found, action: Default, fields: dict[str, Any]) -> None:
    text = found.values[0] if found.values else ""
    if not action.many:
        value = _read(found, action.read, text)
        if action.join and action.field in fields:
            value = action.join(fields[action.field], value)
        fields[action.field] = value
    elif text == action.none:
        fields[action.field] = []
    else:
        fields.setdefault(action.field, []).append(_read(found, action.read, text))


def _our_words(found: _Found, action: Ours) -> list[str]:
    _, *values = found.words
    if not values:
        return action.words.split()
    if values[0] == action.drop:
        return []
    value = _read(found, action.read, values[0])
    return [word.format(value) for word in action.words.split()]


def _read(found: _Found, read: Any, text: str) -> Any:
    try:
        return read(text)
    except ValueError as error:
        raise FlagError(f"{found.word} is {text[:60]!r}; {error}") from None


def check_needs(words: Sequence[str]) -> None:
    """FlagError if a value needs a flag that is not among these, which are all words of an engine."""
    passed = sort(words).passed
    for found in _find(words):
        match found.flag:
            case Flag(action=Default(needs=(value, other))) as flag if found.values == (value,):
                if other not in passed:
                    raise FlagError(f"{flag.name} {value} needs {other}")


def check_servers(words: Sequence[str]) -> None:
    """FlagError if an address of --rpc is not of the form that llama.cpp reads; it would abort."""
    lists = [value for flag, value in pairwise(words) if flag == "--rpc"]
    for address in (one for given in lists for one in given.split(",")):
        found = ADDRESS.fullmatch(address)
        if found is None or not 0 < int(found[1]) <= MAX_PORT:
            raise FlagError(
                f"--rpc has {address!r}; each address must be host:port with a port from 1 to {MAX_PORT}, as "
                "192.168.7.2:50052, and commas between several"
            )


def chat_template(passed: Mapping[str, tuple[str, ...]]) -> str:
    """The template of --chat-template or --chat-template-file, of which the last one counts; else empty."""
    for name, values in reversed(list(passed.items())):
        if name == "--chat-template":
            return values[0]
        if name == "--chat-template-file":
            try:
                with open(values[0], encoding="utf-8") as file:
                    return file.read()
            except (OSError, UnicodeDecodeError) as error:
                raise FlagError(f"--chat-template-file is {values[0]!r}: {error}") from None
    return ""
