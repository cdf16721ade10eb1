"""What a store of a memory does. There are two: a SQLite file, and a collection of Qdrant."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from hashlib import blake2b, sha256
from typing import NamedTuple, Protocol, TypeAlias, TypeVar

from llama_srb.request.values import SearchBy

from ..filters import Filter
from ..records import (
    OPERATOR,
    Chunk,
    Chunking,
    Document,
    Facts,
    Found,
    MemoryUnusable,
    Metadata,
    Usage,
    Vector,
    is_prompt,
)
from ..slots import Slots
from ..words import Asked

T = TypeVar("T")
ANN_ROWS = 1_000_000  # chunks above which a search is approximate


Sizes: TypeAlias = list[tuple[str, int]]
"""Ids of documents, and the bytes of each."""


@dataclass(frozen=True, slots=True)
class Reader:
    """The client that reads: it sees its own documents and the operator's; all if the memory is shared."""

    owner: str
    shared: bool = False

    @property
    def owners(self) -> frozenset[str] | None:
        """The owners of what it sees; None: all."""
        return None if self.shared else frozenset({self.owner, OPERATOR})

    def rank(self, owner: str) -> tuple[int, str]:
        """Of documents with one id: its own first, then the operator's, then the others by owner."""
        return (0 if owner == self.owner else 1 if owner == OPERATOR else 2, owner)


@dataclass(frozen=True, slots=True)
class NewDocument:
    """A document to be stored; (owner, id) names it, (owner, text) is stored once.

    is_source: whether the text is source code, which has no headings.
    """

    id: str
    owner: str
    text: str
    metadata: Metadata
    is_source: bool = False

    @property
    def is_prompt(self) -> bool:
        return is_prompt(self.id, self.metadata)

    @property
    def hash(self) -> bytes:
        return sha256(self.text.encode(errors="surrogatepass")).digest()


@dataclass(frozen=True, slots=True)
class Query:
    """What a search looks for. vector: the query's; None: no cosines are wanted. asked: its words.

    around: how many chunks before and behind each one its text has, too.
    """

    by: SearchBy
    vector: Vector | None = None
    asked: Sequence[Asked] = ()
    around: int = 0


class Unfinished(NamedTuple):
    """A text that a rebuild computes. is_source: as of NewDocument; an earlier version's lines say it."""

    key: object
    text: str
    is_source: bool


class Turns:
    """Whose turn it is: a store reads for one client at a time, and writes for one."""

    def __init__(self) -> None:
        self.reads, self.writes = Slots(1, 1), Slots(1, 1)


class Room(Protocol):
    """What owners may have; asked in the transaction that writes a document."""

    def require(self, new: NewDocument, used: Usage, chunks: int) -> None:
        """RequestError if a document's owner would have too much. used: what it has besides."""

    def too_old(self, prompts: Sizes) -> list[str]:
        """The ids of prompts, given the newest first, that are removed."""


class Store(Protocol):
    """All methods see a document either whole or not at all; each write is atomic, also against a kill."""

    turns: Turns

    @property
    def facts(self) -> Facts: ...

    @property
    def has_words(self) -> bool:
        """Whether all chunks are found by their words; those of an earlier version may not be yet."""

    async def require(self, facts: Facts) -> None:
        """MemoryOutdated if the vectors are another model's, also after a rebuild by another process.

        A memory without texts takes these facts.
        """

    async def add(self, document: NewDocument, chunks: Sequence[Chunk], vectors: Vector, room: Room) -> bool:
        """Stores a document with a new text, in place of one of its name; whether there was one.

        RequestError if it has no room; of prompts the oldest ones make room.
        """

    async def link(self, document: NewDocument, room: Room) -> tuple[int, bool] | None:
        """Stores a document whose text is there: its number of chunks, and whether one was replaced.

        None: there is no such text of this owner. RequestError as of add().
        """

    async def remove(self, owner: str, id: str) -> bool:
        """Removes an owner's document, and a text without documents; whether the document was there."""

    async def get(self, id: str, reader: Reader) -> Document | None: ...

    async def documents(
        self, reader: Reader, after: tuple[str, str], limit: int, id: str | None = None
    ) -> list[Document]:
        """Documents without texts, by (id, owner), those after this pair; id: only those of this id."""

    async def used(self, owner: str, besides: str) -> Usage:
        """What an owner has, but the document `besides`. A text that documents share counts once."""

    async def search(self, query: Query, k: int, filter: Filter, reader: Reader) -> list[Found]:
        """What `chosen` takes of the chunks by rank; those that filter.prompts leaves out cost nothing."""

    async def rebuild_next(self, facts: Facts) -> Unfinished | None:
        """A text without vectors of these facts; None if all have them and are in use now."""

    async def rebuild_text(self, key: object, chunks: Sequence[Chunk], vectors: Vector) -> None: ...

    async def close(self) -> None: ...


def begun_in(thread: ThreadPoolExecutor, name: str, work: Callable[[], T]) -> asyncio.Future[T]:
    """Work in the thread of a memory; MemoryUnusable if it has ended."""
    try:
        return asyncio.get_running_loop().run_in_executor(thread, work)
    except RuntimeError:
        raise MemoryUnusable(f"memory {name} is closed") from None


def id_of_chunk(secret: bytes, *place: str | int) -> str:
    """A chunk's id in answers: it tells nothing of other chunks, of texts and of owners.

    secret: the memory's own. place: whose text, and the character at which the chunk begins, so that a
    rebuild that cuts alike leaves the id as it is.
    """
    return blake2b("\0".join(map(str, place)).encode(), digest_size=8, key=secret).hexdigest()


def written(facts: Facts) -> str:
    """Without an empty prefix: older programs know none."""
    value = asdict(facts)
    if not facts.passage_prefix:
        del value["passage_prefix"]
    return json.dumps(value)


def read_facts(text: str) -> Facts:
    value = json.loads(text)
    chunking = value.pop("chunking")
    return Facts(**value, chunking=Chunking(**chunking | {"separators": tuple(chunking["separators"])}))
