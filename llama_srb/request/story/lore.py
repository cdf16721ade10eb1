"""Which entries of a story's lore a text calls, and why. Knows nothing of tokens and prompts.

A key is a word or several words, in any case of their letters, and no part of a longer word; or /a regular
expression/ with the flags i, m and s, which re2 searches in linear time.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeAlias

import re2

from llama_srb.request.story.parts import Call
from llama_srb.request.story.shape import LoreEntry, Story
from llama_srb.request.values import RequestError

NOTATION = re.compile(r"/(.+)/([ims]*)", re.DOTALL)
WITHOUT_SPACES = r"\u0e00-\u0eff\u1100-\u11ff\u2e80-\ud7ff\uf900-\ufaff\U00020000-\U0003ffff"
"""Characters of scripts that put no space between words, or none before particles."""
LETTER = re.compile(f"[^\\W{WITHOUT_SPACES}]")
MAX_MEMORY = 1 << 18  # bytes that an expression's automaton may take; beyond them the search is slower
MAX_WORK = 100_000_000  # characters, for each key anew; for an expression as often as its program has steps
MAX_EXPRESSIONS = 500
MAX_PLACES = 1_000_000  # where keys stand within longer words; a second or so


Near: TypeAlias = Callable[[Sequence[Call], str], Awaitable[list[Call]]]
"""Calls entries without keys, too, that are near by meaning to the end of a text."""


async def called(story: Story, text: str, end: int, near: Near | None = None) -> list[Call]:
    """For each entry of the lore whether the text up to `end` calls it; RequestError for wrong keys."""
    calls = await asyncio.to_thread(_called, story, text, end) if story.lore else []
    return calls if near is None else await near(calls, text[:end])


def _called(story: Story, text: str, end: int) -> list[Call]:
    keys = [key for entry in story.lore for key in (*entry.keys, *entry.also)]
    n_expressions = len([key for key in keys if NOTATION.fullmatch(key)])
    if n_expressions > MAX_EXPRESSIONS:
        message = f"story.lore has {n_expressions} expressions; it may have {MAX_EXPRESSIONS}"
        raise RequestError(message, param="story.lore")
    work = sum(_work(f"story.lore[{i}]", entry, story, end) for i, entry in enumerate(story.lore))
    if work > MAX_WORK:
        message = (
            f"story.lore searches {work} characters, each key anew, an expression as often as its program "
            f"has steps; it may search {MAX_WORK}: lower search, or send fewer keys"
        )
        raise RequestError(message, param="story.lore")
    begin = end - max((_length(entry, story, end) for entry in story.lore if entry.keys), default=0)
    searched = _Searched(text, begin, end, _lower(text[begin:end]))
    return [_call(f"story.lore[{i}]", entry, story, searched) for i, entry in enumerate(story.lore)]


def _lower(text: str) -> str:
    """In small letters, each at its place: only one letter has two small ones."""
    return text.replace("\u0130", "i").lower()


@dataclass(slots=True)
class _Searched:
    """The part of a text that some entry searches, and its small letters."""

    text: str
    begin: int
    end: int
    lowered: str
    places: int = MAX_PLACES  # that may still be looked at

    def find_words(self, key: str, begin: int) -> int | None:
        """The first place of a key that is no part of a longer word."""
        ends = [LETTER.match(key[i]) is not None for i in (0, -1)]
        at = self.lowered.find(key, begin - self.begin)
        while at >= 0:
            around = (at - 1, at + len(key))
            if not any(end and self._has_letter(i) for end, i in zip(ends, around, strict=True)):
                return self.begin + at
            self.places -= 1
            if not self.places:
                message = f"story.lore has keys that stand within longer words at {MAX_PLACES} places"
                raise RequestError(f"{message}: send longer keys, or lower search", param="story.lore")
            at = self.lowered.find(key, at + 1)
        return None

    def _has_letter(self, i: int) -> bool:
        return 0 <= i < len(self.lowered) and LETTER.match(self.lowered[i]) is not None


def _length(entry: LoreEntry, story: Story, end: int) -> int:
    """How many characters are searched."""
    return min(entry.search or story.search, end)


def _work(name: str, entry: LoreEntry, story: Story, end: int) -> int:
    if entry.always:
        return 0
    steps = (*_steps(f"{name}.keys", entry.keys), *_steps(f"{name}.also", entry.also))
    return sum(steps) * _length(entry, story, end)


def _steps(name: str, keys: Sequence[str]) -> Iterator[int]:
    for i, key in enumerate(keys):
        given = NOTATION.fullmatch(key)
        yield 1 if given is None else _compiled(f"{name}[{i}]", given[1], given[2]).programsize


def _call(name: str, entry: LoreEntry, story: Story, searched: _Searched) -> Call:
    if entry.always:
        return Call("always")
    begin = searched.end - _length(entry, story, searched.end)
    found = _first(f"{name}.keys", entry.keys, searched, begin)
    if found is None:
        return Call("no_key")
    if entry.also and _first(f"{name}.also", entry.also, searched, begin) is None:
        return Call("no_second_key")
    return Call("key", *found)


def _first(name: str, keys: Sequence[str], searched: _Searched, begin: int) -> tuple[str, int] | None:
    """The first of the keys that the text has, and its place there."""
    for i, key in enumerate(keys):
        if (given := NOTATION.fullmatch(key)) is not None:
            text = searched.text[begin : searched.end]
            match = _compiled(f"{name}[{i}]", given[1], given[2]).search(text)
            at = None if match is None else begin + match.start()
        else:
            at = searched.find_words(_lower(key), begin)
        if at is not None:
            return key, at
    return None


def _compiled(name: str, pattern: str, flags: str) -> Any:
    try:
        return _expression(f"(?{flags}){pattern}" if flags else pattern)
    except ValueError as error:
        raise RequestError(f"{name} is no regular expression: {error}", param=name) from None


@lru_cache(maxsize=MAX_EXPRESSIONS)
def _expression(pattern: str) -> Any:
    """ValueError says what is wrong."""
    options = re2.Options()
    options.max_mem, options.log_errors = MAX_MEMORY, False
    try:
        return re2.compile(pattern, options)
    except re2.error as error:
        raise ValueError(error.args[0].decode(errors="replace") if error.args else "") from None
