"""Tokens of texts, and of places in a long text, which is counted in blocks.

A block's borders depend only on the text before, so a text that has grown keeps its blocks, whose counts are
remembered. Asks the engine for tokens.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate

from llama_srb.request.story.remembered import Remembered
from llama_srb.request.truncate import Command

BLOCK = 1024  # characters of a block, at least; at most twice as many
MAX_KNOWN = 65_536  # texts whose counts are remembered: a story of a million words has 6,000 blocks
MAX_COUNTED = 4096  # texts of one command: the engine's limit
LINES = re.compile(r"\n+")


class Counts:
    """How many tokens texts have, by a model."""

    def __init__(self) -> None:
        self._known = Remembered[int](MAX_KNOWN)

    async def of(self, texts: Sequence[str], command: Command) -> list[int]:
        """The tokens of each text, as if it stood alone."""

        async def counted(new: list[str]) -> list[int]:
            parts = [new[i : i + MAX_COUNTED] for i in range(0, len(new), MAX_COUNTED)]
            return [
                count for part in parts for count in (await command("count_tokens", texts=part))["counts"]
            ]

        return await self._known.of(texts, counted)


def blocks_of(text: str) -> list[int]:
    """Where the blocks of a text begin: behind a line break, else before a space, else anywhere."""
    starts = [0]
    while (border := _border(text, starts[-1])) is not None:
        starts.append(border)
    return starts


def _border(text: str, start: int) -> int | None:
    """The end of a block that begins here; None if the text has to go on before that is known."""
    low, high = start + BLOCK, start + 2 * BLOCK
    if (lines := LINES.search(text, low, high)) is not None:
        return lines.end() if lines.end() < len(text) else None
    if len(text) < high:
        return None
    space = text.find(" ", low, high)
    return high if space < 0 else space


@dataclass(slots=True)
class Ruler:
    """A text with the tokens of its blocks, to look up places by tokens and tokens by places."""

    text: str
    starts: Sequence[int]  # of its blocks, characters
    counts: Sequence[int]  # tokens of each block
    command: Command
    _before: list[int] = field(default_factory=list)  # tokens before each block
    _inside: dict[int, list[int]] = field(default_factory=dict)  # where the tokens of a block begin

    def __post_init__(self) -> None:
        self._before = [0, *accumulate(self.counts)]

    @classmethod
    async def of(cls, text: str, counts: Counts, command: Command) -> Ruler:
        starts = blocks_of(text)
        ends = [*starts[1:], len(text)]
        blocks = [text[start:end] for start, end in zip(starts, ends, strict=True)]
        return cls(text, starts, await counts.of(blocks, command), command)

    @property
    def total(self) -> int:
        """Tokens of the whole text."""
        return self._before[-1]

    def block_at(self, n: int) -> int:
        """Where the block begins that has the n-th token."""
        return self.starts[self._block_of_token(n)]

    def _block_of_token(self, n: int) -> int:
        return min(bisect_right(self._before, n) - 1, len(self.starts) - 1)

    async def place(self, n: int) -> int:
        """Where the n-th token begins."""
        if n >= self.total:
            return len(self.text)
        block = self._block_of_token(max(n, 0))
        inside = await self._tokens_in(block)
        i = max(n, 0) - self._before[block]
        return inside[i] if i < len(inside) else self._end(block)

    async def tokens_before(self, place: int) -> int:
        """How many tokens begin before a place."""
        block = bisect_right(self.starts, place) - 1
        if place == self.starts[block]:
            return self._before[block]
        inside = await self._tokens_in(block)
        return self._before[block] + len([at for at in inside if at < place])

    def _end(self, block: int) -> int:
        return self.starts[block + 1] if block + 1 < len(self.starts) else len(self.text)

    async def _tokens_in(self, block: int) -> list[int]:
        if block not in self._inside:
            start = self.starts[block]
            text = self.text[start : self._end(block)]
            answer = await self.command("tokenize", text=text, add_special=False, pieces=True)
            self._inside[block] = [start + at for at in places_of(text, map(bytes, answer["pieces"]))]
        return self._inside[block]


def places_of(text: str, pieces: Iterable[bytes]) -> list[int]:
    """Where each token of a text begins; one that begins within a character begins behind it."""
    data = text.encode()
    is_ascii, at, places = len(data) == len(text), 0, list[int]()
    characters = [] if is_ascii else [i for i, c in enumerate(text) for _ in c.encode()]
    for piece in pieces:
        places.append(at if is_ascii else _character(characters, at, len(text)))
        fits = next((one for one in (piece, piece.lstrip(b" ")) if data.startswith(one, at)), piece)
        at = min(at + len(fits), len(data))  # a tokenizer may add a space at the beginning
    return places


def _character(characters: Sequence[int], at: int, end: int) -> int:
    if at >= len(characters):
        return end
    begins = at == 0 or characters[at - 1] != characters[at]
    return characters[at] + (not begins)
