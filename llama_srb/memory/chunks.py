"""Texts become chunks that end at the ends of sentences or lines, counted by the embedding model's tokens.

A text is cut into sentences, which are counted in a few calls; a call is one command for the engine. A chunk
has as many of them as fit, and begins with the last ones of the chunk before. It ends sooner where a function
or a heading begins that would be apart from what belongs to it. A longer sentence is cut by semchunk, at
clauses or words. semchunk does not get the whole text, because it counts one text at a time and many texts
several times, and because its chunks with an overlap are often half empty. It counts characters here, and its
pieces are then counted like sentences.

`chunked` is a generator without I/O, so that a subprocess may run it: 16 MB of short lines take seconds.
"""

from __future__ import annotations

import re
from array import array
from bisect import bisect_left
from collections.abc import Awaitable, Callable, Generator, Iterable, Iterator, Sequence, Set
from dataclasses import dataclass
from itertools import islice, pairwise, takewhile
from operator import attrgetter
from typing import NamedTuple, TypeAlias, overload

from .blocks import blocks_around
from .headings import Starts
from .records import Chunk, Chunking, extra

CountTokens: TypeAlias = Callable[[Sequence[str]], Awaitable[Sequence[int]]]
Span: TypeAlias = tuple[int, int]

COUNTED_AT_ONCE, COUNTED_SIZE = 1024, 64 << 10  # texts and characters of one call
CUT_AT_ONCE = 64 << 10  # characters: semchunk's time grows faster than its text
SENTENCES_AT_ONCE = 4096
MOST_KNOWN = 50_000  # counts that are kept, so that an equal text is counted once
SHORT = 8 << 10  # characters of a text that may be cut in the event loop: a few milliseconds
PER_TOKEN = 32  # characters, more than tokens have
SPARE = 1.3  # what a function may have instead of the tokens that its characters say
_END = re.compile(r"(?:[.!?…][\"'”’»)\]]{0,8}(?=\s)|[。！？][」』”’）]{0,8}|\n)\s*")  # noqa: RUF001, it is Chinese and Japanese
_CONTROLS = re.compile(r"[\x00-\x08\x0e-\x1f\x7f\xad\u200b\u2060\ufeff]")  # also hyphens and joints unseen
_RUNS = (  # each takes time in proportion to the text
    (re.compile(r"\r\n?|\x0b|\x0c|\u2028|\u2029"), "\n"),
    (re.compile(r"([^\S\n]{8})[^\S\n]+"), r"\1"),  # semchunk goes a level down for each length of a run
    (re.compile(r"[^\S\n]+\n"), "\n"),
    (re.compile(r"\n{3,}"), "\n\n"),
)


class Piece(NamedTuple):
    """A part of a text that is not divided, with its tokens."""

    start: int
    end: int
    tokens: int


@dataclass(frozen=True, slots=True)
class Count:
    """Asks for the numbers of tokens of these texts."""

    texts: list[str]


@dataclass(frozen=True, slots=True)
class Made:
    """The next chunks of a text."""

    chunks: list[Chunk]


class Chunks(Sequence[Chunk]):
    """The chunks of a large text, as numbers: the garbage collector need not look through them."""

    def __init__(self) -> None:
        self._numbers = array("q")

    def extend(self, numbers: Iterable[int]) -> None:
        """Adds chunks: start, end, tokens of each."""
        self._numbers.extend(numbers)

    def __len__(self) -> int:
        return len(self._numbers) // 3

    @overload
    def __getitem__(self, at: int) -> Chunk: ...

    @overload
    def __getitem__(self, at: slice) -> list[Chunk]: ...

    def __getitem__(self, at: int | slice) -> Chunk | list[Chunk]:
        if isinstance(at, slice):
            return [self[i] for i in range(*at.indices(len(self)))]
        if not 0 <= at < len(self):
            raise IndexError(at)
        return Chunk(*self._numbers[3 * at : 3 * at + 3])


Chunked: TypeAlias = Generator[Count | Made, Sequence[int], None]
"""Yields what it asks for and what it has made; the answer to Count is sent, and nothing to Made."""


def cleaned(text: str) -> str:
    """The text that is kept: without control characters and long runs of space. Offsets are those in it."""
    text = _CONTROLS.sub("", text.replace("\x0c", "\n"))
    for pattern, instead in _RUNS:
        text = pattern.sub(instead, text)
    return text.strip()


async def chunks_of(
    text: str, chunking: Chunking, count_tokens: CountTokens, *, is_source: bool = False
) -> list[Chunk]:
    """The chunks of a cleaned text, in order. The tokens of a chunk's pieces are at most chunking.tokens."""
    steps, made = chunked(text, chunking, is_source=is_source), list[Chunk]()
    step = next(steps, None)
    while step is not None:
        counts: Sequence[int] = ()
        if isinstance(step, Made):
            made += step.chunks
        else:
            counts = await count_tokens(step.texts)
        step = following(steps, counts)
    return made


def following(steps: Chunked, counts: Sequence[int]) -> Count | Made | None:
    """The step behind the one that these counts answer; None at the end."""
    try:
        return steps.send(counts)
    except StopIteration:
        return None


def chunked(text: str, chunking: Chunking, *, is_source: bool = False) -> Chunked:
    """The steps in which a cleaned text becomes chunks. is_source: it has no headings."""
    sentences, known, left = _sentences(text, chunking.separators), dict[str, int](), list[Piece]()
    known_headings, begins = Starts(text, is_source=is_source), set[int]()
    while some := list(islice(sentences, SENTENCES_AT_ONCE)):
        pieces = yield from _counted(text, some, chunking.tokens, known)
        begins = {one.start for one in left if one.start in begins}
        begins.update(one.start for one in pieces if known_headings.has(one.start))
        full, left = _filled(text, left, pieces, chunking, begins)
        if full:
            yield Made([_chunk(text, one) for one in full])
    if left:
        yield Made([_chunk(text, left)])


def _sentences(text: str, separators: Sequence[str]) -> Iterator[Span]:
    """Stretches that cover the text, each with the separator and the space at its end."""
    end = _END
    if separators:
        longest_first = sorted(separators, key=len, reverse=True)
        end = re.compile(rf"(?:{'|'.join(map(re.escape, longest_first))})\s*")
    begin = 0
    for found in end.finditer(text):
        yield begin, (begin := found.end())
    if begin < len(text):
        yield begin, len(text)


def _counted(
    text: str, spans: list[Span], tokens: int, known: dict[str, int]
) -> Generator[Count, Sequence[int], list[Piece]]:
    """The stretches with their tokens; one with more than a chunk is cut, until nothing can be cut."""
    spans = [part for one in spans for part in _short(text, one, tokens)]
    n_spans = -1
    while len(spans) != n_spans:
        n_spans = len(spans)
        texts = [text[start:end] for start, end in spans]
        if len(known) > MOST_KNOWN:
            known.clear()
        for some in _calls(one for one in dict.fromkeys(texts) if one not in known):
            known.update(zip(some, (yield Count(some)), strict=True))
        counts = [known[one] for one in texts]
        if max(counts) > tokens:
            spans = [
                part
                for span, count in zip(spans, counts, strict=True)
                for part in ([span] if count <= tokens else _cut(text, span, _half(span, tokens, count)))
            ]
    return [Piece(*span, count) for span, count in zip(spans, counts, strict=True)]


def _short(text: str, span: Span, tokens: int) -> list[Span]:
    """The parts of a stretch that certainly has more tokens than a chunk; they are cut without counting."""
    start, end = span
    if end - start <= PER_TOKEN * tokens:
        return [span]
    borders = [*range(start, end, CUT_AT_ONCE), end]
    return [part for one in pairwise(borders) for part in _cut(text, one, 2 * tokens)]


def _half(span: Span, tokens: int, count: int) -> int:
    """The characters of about half a chunk, so that few parts are still too long."""
    length = span[1] - span[0]
    return max(1, min(length * tokens // (2 * count), length // 2))


def _cut(text: str, span: Span, characters: int) -> list[Span]:
    """Cuts a long stretch into parts of at most so many characters."""
    start, end = span
    _, offsets = extra("semchunk").chunk(text[start:end], characters, len, memoize=False, offsets=True)
    begins = [start, *(start + first for first, _ in offsets[1:]), end]  # each with the space behind it
    return list(pairwise(begins))


def _calls(texts: Iterable[str]) -> Iterator[list[str]]:
    """The texts of each call that counts tokens."""
    some, size = list[str](), 0
    for text in texts:
        if some and (len(some) == COUNTED_AT_ONCE or size + len(text) > COUNTED_SIZE):
            yield some
            some, size = [], 0
        some.append(text)
        size += len(text)
    if some:
        yield some


def _filled(
    text: str, begun: list[Piece], pieces: Sequence[Piece], chunking: Chunking, headings: Set[int]
) -> tuple[list[list[Piece]], list[Piece]]:
    """The pieces of each full chunk, and those of the one that is begun. headings: where they begin."""
    full = list[list[Piece]]()
    n_tokens = _tokens(begun)
    for piece in pieces:
        while begun and n_tokens + piece.tokens > chunking.tokens:
            end, room = _end(text, begun, piece, chunking, headings)
            full.append(begun[:end])
            begun = _overlap(begun[:end], min(chunking.overlap, room)) + begun[end:]
            n_tokens = _tokens(begun)
        begun.append(piece)  # a character with more tokens than a chunk is a chunk
        n_tokens += piece.tokens
    return full, begun


def _end(
    text: str, begun: Sequence[Piece], piece: Piece, chunking: Chunking, headings: Set[int]
) -> tuple[int, int]:
    """How many pieces a chunk has for which another one is too much; the tokens that may come again.

    It ends before a function that the next one has as a whole, or before headings of what comes; but it has
    more than it may share with the chunk before.
    """

    def is_enough(end: int, needed: float) -> bool:
        return needed <= chunking.tokens and _tokens(begun[:end]) > chunking.overlap

    begin, behind = begun[0].start, begun[-1].end
    per_character = _tokens(begun) / (behind - begin)
    most = min(2 * behind - begin, len(text))  # about a chunk more
    for start, stop in blocks_around(text, begin, piece.start, most):
        end, needed = bisect_left(begun, start, key=attrgetter("start")), (stop - start) * per_character
        if begun[end].start == start and is_enough(end, needed):  # else a separator has made the pieces
            return end, int(chunking.tokens - SPARE * needed)
    n_headings = sum(1 for _ in takewhile(lambda one: one.start in headings, reversed(begun)))
    end = len(begun) - n_headings
    needed = _tokens(begun[end:]) + piece.tokens
    return (end, chunking.tokens - needed) if is_enough(end, needed) else (
        len(begun), chunking.tokens - piece.tokens
    )  # fmt: skip


def _tokens(pieces: Iterable[Piece]) -> int:
    return sum(one.tokens for one in pieces)


def _overlap(before: Sequence[Piece], room: int) -> list[Piece]:
    """The last pieces of a chunk, but not all, that have at most `room` tokens."""
    begin = len(before)
    while begin > 1 and before[begin - 1].tokens <= room:
        begin -= 1
        room -= before[begin].tokens
    return list(before[begin:])


def _chunk(text: str, pieces: Sequence[Piece]) -> Chunk:
    """The chunk of these pieces, without the space around it."""
    start, end = pieces[0].start, pieces[-1].end
    part = text[start:end]
    start, end = start + len(part) - len(part.lstrip()), end - len(part) + len(part.rstrip())
    return Chunk(start, end, _tokens(pieces))
