"""Which entries of a story's lore a text calls, and why. Knows nothing of tokens and prompts.

A key is a word or several words, in any case of their letters, and no part of a longer word; or /a regular
expression/ with the flags i, m and s, which re2 searches in linear time.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from llama_srb.request.story.parts import Call
from llama_srb.request.story.shape import LoreEntry, Story
from llama_srb.request.values import RequestError

NOTATION = re.compile(r"/(.+)/([ims]*)", re.DOTALL)
WITHOUT_SPACES = re.compile(r"[\u0e00-\u0eff\u1100-\u11ff\u2e80-\ud7ff\uf900-\ufaff\U00020000-\U0003ffff]")
"""Characters of scripts that put no space between words, or none before particles."""
MAX_MEMORY = 1 << 20  # bytes that an expression's automaton may take; beyond them the search is slower


def called(story: Story, text: str, end: int) -> list[Call]:
    """For each entry of the lore whether the text up to `end` calls it; RequestError for a wrong key."""
    lowered: dict[int, str] = {}
    return [_call(f"story.lore[{i}]", entry, story, text, end, lowered) for i, entry in enumerate(story.lore)]


def _call(name: str, entry: LoreEntry, story: Story, text: str, end: int, lowered: dict[int, str]) -> Call:
    if entry.always:
        return Call("always")
    begin = max(0, end - (entry.search or story.search))
    if begin not in lowered:
        lowered[begin] = text[begin:end].lower()
    found = _first(f"{name}.keys", entry.keys, text[begin:end], lowered[begin])
    if found is None:
        return Call("no_key")
    if entry.also and _first(f"{name}.also", entry.also, text[begin:end], lowered[begin]) is None:
        return Call("no_second_key")
    return Call("key", found[0], begin + found[1])


def _first(name: str, keys: Sequence[str], text: str, lowered: str) -> tuple[str, int] | None:
    """The first of the keys that the text has, and its last place there."""
    for i, key in enumerate(keys):
        if (given := NOTATION.fullmatch(key)) is not None:
            at = _place_of_pattern(f"{name}[{i}]", given[1], given[2], text)
        else:
            at = _place_of_words(key.lower(), lowered)
        if at is not None:
            return key, at
    return None


def _place_of_words(key: str, text: str) -> int | None:
    at = text.rfind(key)
    while at >= 0:
        before, behind = text[at - 1 : at] if at else "", text[at + len(key) : at + len(key) + 1]
        if not _joined(before, key[0]) and not _joined(key[-1], behind):
            return at
        at = text.rfind(key, 0, at + len(key) - 1)
    return None


def _joined(one: str, other: str) -> bool:
    """Whether two neighbouring characters are of one word."""
    words = all(c and (c.isalnum() or c == "_") for c in (one, other))
    return words and not WITHOUT_SPACES.match(one) and not WITHOUT_SPACES.match(other)


def _place_of_pattern(name: str, pattern: str, flags: str, text: str) -> int | None:
    last = None
    for found in _compiled(name, pattern, flags).finditer(text):
        last = found.start()
    return last


@lru_cache(maxsize=512)
def _compiled(name: str, pattern: str, flags: str) -> Any:
    try:
        import re2
    except ImportError:
        message = f"{name} is a regular expression, which needs the extra llama-srb[lore] on the server"
        raise RequestError(message, param=name) from None
    options = re2.Options()
    options.max_mem, options.log_errors = MAX_MEMORY, False
    try:
        return re2.compile(f"(?{flags}){pattern}" if flags else pattern, options)
    except re2.error as error:
        why = error.args[0].decode(errors="replace") if error.args else ""
        raise RequestError(f"{name} is no regular expression: {why}", param=name) from None
