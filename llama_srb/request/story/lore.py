"""Which entries of a story's lore a text calls, and why. Knows nothing of tokens and prompts.

A key is a word or several words, in any case of their letters, and no part of a longer word; or /a regular
expression/ with the flags i, m and s, which re2 searches in linear time.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any

import re2

from llama_srb.request.story.parts import Call
from llama_srb.request.story.shape import LoreEntry, Story
from llama_srb.request.values import RequestError

NOTATION = re.compile(r"/(.+)/([ims]*)", re.DOTALL)
WITHOUT_SPACES = r"\u0e00-\u0eff\u1100-\u11ff\u2e80-\ud7ff\uf900-\ufaff\U00020000-\U0003ffff"
"""Characters of scripts that put no space between words, or none before particles."""
LETTER = f"[^\\W{WITHOUT_SPACES}]"
MAX_MEMORY = 1 << 20  # bytes that an expression's automaton may take; beyond them the search is slower
MAX_WORK = 100_000_000  # characters, for each key anew; for an expression as often as its program has steps
QUICK = 4_000_000  # of these, which take a few milliseconds
MAX_EXPRESSIONS = 500


async def called(story: Story, text: str, end: int) -> list[Call]:
    """For each entry of the lore whether the text up to `end` calls it; RequestError for wrong keys."""
    keys = [key for entry in story.lore for key in (*entry.keys, *entry.also)]
    longest = max((_length(entry, story, end) for entry in story.lore), default=0)
    n_expressions = len([key for key in keys if NOTATION.fullmatch(key)])
    if n_expressions > MAX_EXPRESSIONS:
        message = f"story.lore has {n_expressions} expressions; it may have {MAX_EXPRESSIONS}"
        raise RequestError(message, param="story.lore")
    if not n_expressions and len(keys) * longest <= QUICK:
        return _called(story, text, end)
    return await asyncio.to_thread(_called, story, text, end)


def _called(story: Story, text: str, end: int) -> list[Call]:
    work = sum(_work(f"story.lore[{i}]", entry, story, end) for i, entry in enumerate(story.lore))
    if work > MAX_WORK:
        message = (
            f"story.lore searches {work} characters, each key anew, an expression as often as its program "
            f"has steps; it may search {MAX_WORK}: lower search, or send fewer keys"
        )
        raise RequestError(message, param="story.lore")
    lowered: dict[int, str] = {}
    return [_call(f"story.lore[{i}]", entry, story, text, end, lowered) for i, entry in enumerate(story.lore)]


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


def _call(name: str, entry: LoreEntry, story: Story, text: str, end: int, lowered: dict[int, str]) -> Call:
    if entry.always:
        return Call("always")
    begin = end - _length(entry, story, end)
    if begin not in lowered:
        lowered[begin] = text[begin:end].lower()
    found = _first(f"{name}.keys", entry.keys, text[begin:end], lowered[begin])
    if found is None:
        return Call("no_key")
    if entry.also and _first(f"{name}.also", entry.also, text[begin:end], lowered[begin]) is None:
        return Call("no_second_key")
    return Call("key", found[0], begin + found[1])


def _first(name: str, keys: Sequence[str], text: str, lowered: str) -> tuple[str, int] | None:
    """The first of the keys that the text has, and its place there."""
    for i, key in enumerate(keys):
        if (given := NOTATION.fullmatch(key)) is not None:
            found = _compiled(f"{name}[{i}]", given[1], given[2]).search(text)
        else:
            found = _search_words(key.lower(), lowered)
        if found is not None:
            return key, found.start()
    return None


def _search_words(key: str, text: str) -> re.Match[str] | None:
    """The first place of a key that is no part of a longer word."""
    if key not in text:  # nearly always, and ten times as fast
        return None
    before = f"(?<!{LETTER})" if re.match(LETTER, key[0]) else ""
    behind = f"(?!{LETTER})" if re.match(LETTER, key[-1]) else ""
    return re.search(before + re.escape(key) + behind, text)


def _compiled(name: str, pattern: str, flags: str) -> Any:
    try:
        return _expression(f"(?{flags}){pattern}" if flags else pattern)
    except ValueError as error:
        raise RequestError(f"{name} is no regular expression: {error}", param=name) from None


@lru_cache(maxsize=2 * MAX_EXPRESSIONS)
def _expression(pattern: str) -> Any:
    """ValueError says what is wrong."""
    options = re2.Options()
    options.max_mem, options.log_errors = MAX_MEMORY, False
    try:
        return re2.compile(pattern, options)
    except re2.error as error:
        raise ValueError(error.args[0].decode(errors="replace") if error.args else "") from None
