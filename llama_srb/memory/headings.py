"""The headings of a text, and those above each of its chunks. Pure, and linear in the text.

A heading is a line of Markdown (`# Title`, or a line above === or ---, not within fenced code), a line of
capitals between an empty line and a text, as manual pages have them, or the first line of a manual page.
Source code has none.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from .records import Chunk

LONGEST = 100  # characters of a heading; the rest is cut
MOST = 200  # characters of the headings of a chunk
AT_ONCE = 16 << 10  # characters that are searched at once: nothing else runs meanwhile, for 2 ms at most
_LINE = re.compile(
    r"""^(?:[ \t]*(?P<fence>`{3,}|~{3,})(?P<info>[^`\n]*)$
    | (?P<marks>\#{1,6})[ \t]+(?P<marked>[^\n]+)$
    | (?:\A|(?<=\n\n))(?P<underlined>[^\s\#|>*+=-][^\n]{0,119})\n(?P<line>={3,}|-{3,})$
    | (?:\A|(?<=\n\n))(?P<capitals>[^\W\d_a-z][^a-z\n]{2,59})$(?=\n[^\n])
    | \A(?P<page>[^\s()]{1,60}\(\w{1,4}\))[ ]{2,})""",
    re.MULTILINE | re.VERBOSE,
)
_WORD = re.compile(r"\w")
_CLOSING = re.compile(r"[ \t]#+$")
_ENDS = (".", ",", ";", "!", "?")  # of a sentence in capitals


class Heading(NamedTuple):
    """A heading whose line begins at this character. level: 1 is the highest."""

    at: int
    level: int
    title: str


class Headings(NamedTuple):
    """Those above a chunk's beginning, the highest first, and those in the chunk."""

    above: tuple[str, ...] = ()
    within: tuple[str, ...] = ()

    def words(self, text: str) -> str:
        """The text by whose words the chunk is found: its own headings weigh more than those above it."""
        return "\n".join((*self.above, *self.within, *self.within, text))


def headings(text: str) -> Iterator[Heading]:
    """The headings of a cleaned text in order; a part of it is searched when it is asked for."""
    fence, begin = "", 0
    while begin < len(text):
        end = _end_of_part(text, begin)
        for found in _LINE.finditer(text, begin, end):
            if mark := found["fence"]:
                if not fence:
                    fence = mark
                elif mark.startswith(fence) and not found["info"].strip():
                    fence = ""
            elif not fence and (heading := _heading(found)) is not None:
                yield heading
        begin = end


def _end_of_part(text: str, begin: int) -> int:
    """Where the next part ends: behind an empty line, if there is one, else behind a line."""
    if len(text) - begin <= AT_ONCE:
        return len(text)
    if (empty := text.rfind("\n\n", begin, begin + AT_ONCE)) >= 0:
        return empty + 2
    return (text.find("\n", begin + AT_ONCE) + 1) or len(text)


def _heading(found: re.Match[str]) -> Heading | None:
    if marked := found["marked"]:
        level, title = len(found["marks"]), _CLOSING.sub("", marked[: 2 * LONGEST])
    elif title := found["underlined"]:
        level = 1 if found["line"][0] == "=" else 2
    elif title := found["page"]:
        level = 1
    else:
        level, title = 2, found["capitals"]
        if not title.isupper() or title.endswith(_ENDS):
            return None
    title = title.strip()[:LONGEST]
    return Heading(found.start(), level, title) if _WORD.search(title) else None


class Starts:
    """Whether headings of a cleaned text begin at characters, which are asked for in order."""

    def __init__(self, text: str, *, is_source: bool = False) -> None:
        self._coming = headings("" if is_source else text)
        self._next = next(self._coming, None)

    def has(self, at: int) -> bool:
        while self._next is not None and self._next.at < at:
            self._next = next(self._coming, None)
        return self._next is not None and self._next.at == at


class HeadingPath:
    """The headings of the chunks of a cleaned text, which are asked for in its order."""

    def __init__(self, text: str, *, is_source: bool = False) -> None:
        self._text = text
        self._coming = headings("" if is_source else text)
        self._next = next(self._coming, None)
        self._above = list[Heading]()
        self._within = deque[Heading]()

    def of(self, chunk: Chunk) -> Headings:
        while self._next is not None and self._next.at < chunk.end:
            self._within.append(self._next)
            self._next = next(self._coming, None)
        while self._within and self._within[0].at < chunk.start:
            passed = self._within.popleft()
            self._above = [*(one for one in self._above if one.level < passed.level), passed]
        own = tuple(one.title for one in self._within)
        return Headings(_shortened([one.title for one in self._above_first(chunk)]), own)

    def _above_first(self, chunk: Chunk) -> list[Heading]:
        """Those above the chunk: where it begins with a heading, without those that this one ends."""
        first = self._within[0] if self._within else None
        if first is None or self._text[chunk.start : first.at].strip():
            return self._above
        return [one for one in self._above if one.level < first.level]


def _shortened(titles: Sequence[str]) -> tuple[str, ...]:
    """The first one and the last ones, which have at most MOST characters together."""
    kept = list(titles)
    while sum(map(len, kept)) > MOST:
        del kept[1 if len(kept) > 2 else 0]
    return tuple(kept)
