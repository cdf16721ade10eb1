"""Texts become chunks that end at the ends of sentences or lines, counted by the embedding model's tokens.

A text is cut into sentences, which are counted in a few calls; a call is one command for the engine. A chunk
has as many of them as fit, and begins with the last ones of the chunk before. A longer sentence is cut by
semchunk, at clauses or words. semchunk does not get the whole text, because it counts one text at a time and
many texts several times, and because its chunks with an overlap are often half empty. It counts characters
here, and its pieces are then counted like sentences.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Sequence
from itertools import accumulate, pairwise
from typing import TypeAlias

from .records import Chunk, Chunking, extra

CountTokens: TypeAlias = Callable[[Sequence[str]], Awaitable[Sequence[int]]]

COUNTED_AT_ONCE = 1024  # texts of one call
_END = re.compile(r"(?:[.!?…][\"'”’»)\]]{0,8}(?=\s)|[。！？][」』”’）]{0,8}|\n)\s*")  # noqa: RUF001, it is Chinese and Japanese
_CONTROLS = re.compile(r"[\x00-\x08\x0e-\x1f\x7f\ufeff]")
_RUNS = (  # each takes time in proportion to the text
    (re.compile(r"\r\n?|\x0b|\x0c|\u2028|\u2029"), "\n"),
    (re.compile(r"([^\S\n]{8})[^\S\n]+"), r"\1"),  # semchunk goes a level down for each length of a run
    (re.compile(r"[^\S\n]+\n"), "\n"),
    (re.compile(r"\n{3,}"), "\n\n"),
)


def cleaned(text: str) -> str:
    """The text that is kept: without control characters and long runs of space. Offsets are those in it."""
    text = _CONTROLS.sub("", text.replace("\x0c", "\n"))
    for pattern, instead in _RUNS:
        text = pattern.sub(instead, text)
    return text.strip()


async def chunks_of(text: str, chunking: Chunking, count_tokens: CountTokens) -> list[Chunk]:
    """The chunks of a cleaned text, in order. The tokens of a chunk's pieces are at most chunking.tokens."""
    spans, n_spans = _sentences(text, chunking.separators), -1
    while len(spans) != n_spans:  # until nothing is cut any more
        n_spans = len(spans)
        counts = await _count(text, spans, count_tokens)
        spans = [
            part
            for span, count in zip(spans, counts, strict=True)
            for part in ([span] if count <= chunking.tokens else _cut(text, span, count, chunking.tokens))
        ]
    return [
        Chunk(*_stripped(text, spans[first][0], spans[last - 1][1]), sum(counts[first:last]))
        for first, last in _filled(counts, chunking)
    ]


def _sentences(text: str, separators: Sequence[str]) -> list[tuple[int, int]]:
    """Stretches that cover the text, each with the separator and the space at its end."""
    end = _END
    if separators:
        longest_first = sorted(separators, key=len, reverse=True)
        end = re.compile(rf"(?:{'|'.join(map(re.escape, longest_first))})\s*")
    borders = [0, *(found.end() for found in end.finditer(text))]
    if borders[-1] < len(text):
        borders.append(len(text))
    return list(pairwise(borders))


def _cut(text: str, span: tuple[int, int], count: int, tokens: int) -> list[tuple[int, int]]:
    """Cuts a long stretch into parts of about half a chunk, so that few of them are still too long."""
    start, end = span
    characters = max(1, min((end - start) * tokens // (2 * count), (end - start) // 2))
    _, offsets = extra("semchunk").chunk(text[start:end], characters, len, memoize=False, offsets=True)
    begins = [start, *(start + first for first, _ in offsets[1:]), end]  # each with the space behind it
    return list(pairwise(begins))


async def _count(text: str, spans: Sequence[tuple[int, int]], count_tokens: CountTokens) -> list[int]:
    """The tokens of each stretch; an equal one is counted once."""
    pieces = [text[start:end] for start, end in spans]
    known: dict[str, int] = {}
    wanted = list(dict.fromkeys(pieces))
    for first in range(0, len(wanted), COUNTED_AT_ONCE):
        some = wanted[first : first + COUNTED_AT_ONCE]
        known |= zip(some, await count_tokens(some), strict=True)
    return [known[piece] for piece in pieces]


def _filled(counts: Sequence[int], chunking: Chunking) -> list[tuple[int, int]]:
    """Which pieces are in each chunk, as (first, behind the last)."""
    before = list(accumulate(counts, initial=0))
    found: list[tuple[int, int]] = []
    first = last = 0
    while last < len(counts):
        last += 1  # a character with more tokens than a chunk is a chunk
        while last < len(counts) and before[last + 1] - before[first] <= chunking.tokens:
            last += 1
        found.append((first, last))
        if last == len(counts):
            break
        first = _overlapping(before, first, last, chunking)
    return found


def _overlapping(before: Sequence[int], first: int, last: int, chunking: Chunking) -> int:
    """Where the next chunk begins: before `last` by as many pieces as the overlap has room for."""
    next_piece = before[last + 1] - before[last]
    room = min(chunking.overlap, chunking.tokens - next_piece)
    begin = last
    while begin - 1 > first and before[last] - before[begin - 1] <= room:
        begin -= 1
    return begin


def _stripped(text: str, start: int, end: int) -> tuple[int, int]:
    part = text[start:end]
    return start + len(part) - len(part.lstrip()), end - len(part) + len(part.rstrip())
