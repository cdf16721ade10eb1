"""The facts of a memory as data: settings, documents, chunks, what was found; their bounds and errors."""

from __future__ import annotations

import importlib
import json
import math
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeAlias

from llama_srb.request.values import RequestError, SearchBy, is_number, is_text, shown, whole, wrong

from .words import count_words

INSTALL = "pip install 'llama-srb[memory]'"
REBUILD = "llama-srb memory rebuild"

OPERATOR = ""  # the owner of documents that an operator has put in; every client finds them
WITHOUT_KEY = "without a key"  # the owner of prompts of a server without keys
PROMPT = {"kind": "prompt"}  # the metadata of a prompt that a task has stored
PROMPT_ID = "prompt-"  # the beginning of its id; 32 digits follow
MAX_ID = 512  # bytes of a document's id
MAX_FOUND = 1000  # chunks of one search
MAX_LISTED = 1000  # documents of one list
MAX_QUERY = 64 << 10  # bytes of a query
MAX_TEXT = 16 << 20  # bytes of a document's text
MAX_METADATA, MAX_KEY, MAX_VALUE, MAX_VALUES = (
    64,
    128,
    4096,
    256,
)  # entries; bytes of a key, a text; of a list
MAX_METADATA_SIZE = 16 << 10  # bytes of a document's metadata as JSON: a search may read those of 10,000
CHUNK_TOKENS = (8, 8192)  # the bounds of Chunking.tokens

Value: TypeAlias = str | int | float | bool | list[str | int | float]
Metadata: TypeAlias = Mapping[str, Value]
Vector: TypeAlias = Any  # a row of float32: numpy is an extra, and is imported when a store is opened


class MemoryUnusable(Exception):
    """A memory cannot be used as it is configured; the operator must act, and the message says how."""


class MemoryOutdated(MemoryUnusable):
    """A memory's vectors are another model's, so it must be rebuilt."""


def extra(module: str) -> Any:
    """Imports a module of the extra; MemoryUnusable names the command that installs it."""
    try:
        return importlib.import_module(module)
    except ImportError:
        raise MemoryUnusable(f"memories need {module.partition('.')[0]}: {INSTALL}") from None


# ----------------------------------------------------------------------------------------------------
# Settings
# ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class EmbeddingModel:
    """A model that gives vectors. fingerprint: changes with the weights; width: numbers of a vector.

    embed: texts → a vector each. count_tokens: texts → the tokens of each, without special tokens.
    is_made_to_embed: its vectors were trained for searches. Width 0: there is no model, so tokens are words.
    """

    name: str
    fingerprint: str
    width: int
    embed: Callable[[Sequence[str]], Awaitable[Sequence[Sequence[float]]]]
    count_tokens: Callable[[Sequence[str]], Awaitable[Sequence[int]]]
    is_made_to_embed: bool = False

    def facts(self, memory: MemorySettings) -> Facts:
        """The facts of vectors that it makes."""
        return Facts(self.name, self.fingerprint, self.width, memory.chunking, memory.passage_prefix)


async def _no_vectors(texts: Sequence[str]) -> Sequence[Sequence[float]]:
    return [[] for _ in texts]


async def _count_words(texts: Sequence[str]) -> Sequence[int]:
    return count_words(texts)


NO_MODEL = EmbeddingModel("", "", 0, _no_vectors, _count_words)
"""What a memory without an embedding model has in its place."""


@dataclass(frozen=True, slots=True)
class Chunking:
    """How texts become chunks. separators: texts after which a chunk may end; none: sentences and lines."""

    tokens: int = 200
    overlap: int = 40
    separators: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        whole("chunk_tokens", self.tokens, *CHUNK_TOKENS)
        whole("chunk_overlap", self.overlap, 0, self.tokens // 2)
        for separator in self.separators:
            if not separator:
                raise wrong("chunk_separators", separator, "texts that are not empty")


@dataclass(frozen=True, slots=True)
class FileStore:
    """A SQLite file with the memory."""

    path: Path


@dataclass(frozen=True, slots=True)
class QdrantSettings:
    """A collection of a Qdrant server. url: its address, or the path of a folder for the local mode."""

    url: str
    collection: str
    api_key: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class Bounds:
    """What one key may have in a memory; an operator has no bounds. Sizes are bytes of texts.

    chunks: of documents and prompts. Beyond the other numbers of prompts the oldest ones are removed.
    """

    documents: int = 10_000
    size: int = 256 << 20
    chunks: int = 200_000
    prompts: int = 10_000
    prompts_size: int = 64 << 20


@dataclass(frozen=True, slots=True)
class Usage:
    """What an owner has in a memory: documents and prompts, the bytes of each, the chunks of both."""

    documents: int = 0
    size: int = 0
    chunks: int = 0
    prompts: int = 0
    prompts_size: int = 0


@dataclass(frozen=True, slots=True)
class MemorySettings:
    """One memory as it is configured. shared: whether each client finds what any client has stored.

    embedding_model: None: it has no vectors. search: None: what its model was made for says it.
    passage_prefix, query_prefix: what the model wants to stand before the texts of chunks and before queries.
    reranker: the model that orders what is found; None: there is none.
    """

    name: str
    embedding_model: str | None
    store: FileStore | QdrantSettings
    chunking: Chunking = Chunking()
    shared: bool = False
    bounds: Bounds = Bounds()
    search: SearchBy | None = None
    passage_prefix: str = ""
    query_prefix: str = ""
    reranker: str | None = None

    def searched_by(self, is_made_to_embed: bool) -> SearchBy:
        """How it is searched where a request says nothing."""
        if self.embedding_model is None:
            return "words"
        return self.search or ("hybrid" if is_made_to_embed else "words")

    def require_search(self, wanted: SearchBy) -> None:
        """RequestError if it cannot be searched so."""
        if self.embedding_model is None and wanted != "words":
            why = f'the memory {self.name} has no embedding model: "words" is possible'
            raise RequestError(f'search is "{wanted}", but {why}', param="search")

    def require_scores(self, name: str) -> None:
        """RequestError if there are no cosines, which the filter of this name asks for."""
        if self.embedding_model is None:
            message = f"{name} has a score, but the memory {self.name} has no embedding model"
            raise RequestError(message, param=name)


@dataclass(frozen=True, slots=True)
class Facts:
    """What the vectors of a store were made with."""

    model: str
    fingerprint: str
    width: int
    chunking: Chunking
    passage_prefix: str = ""

    def fit(self, wanted: Facts) -> bool:
        """Whether the vectors are those of the same model, behind the same prefix."""
        ours, others = (
            (one.fingerprint, one.width, one.passage_prefix if one.width else "") for one in (self, wanted)
        )
        return ours == others

    def require(self, name: str, wanted: Facts) -> None:
        """MemoryOutdated if the vectors are those of another model."""
        if not self.fit(wanted):
            if not self.width:
                raise MemoryOutdated(
                    f"memory {name} was made without an embedding model, but embedding_model is "
                    f"{wanted.model}: run {REBUILD} {name}, which computes the vectors, or write "
                    "embedding_model = false"
                )
            if (self.fingerprint, self.width) == (wanted.fingerprint, wanted.width):
                raise MemoryOutdated(
                    f"memory {name} was made with passage_prefix {self.passage_prefix!r}, which is "
                    f"{wanted.passage_prefix!r} now: write the first one, or run {REBUILD} {name}"
                )
            other = f"{wanted.model} ({wanted.fingerprint}, {wanted.width})" if wanted.width else "false"
            raise MemoryOutdated(
                f"memory {name} was made with {self.model} ({self.fingerprint}, {self.width} numbers a "
                f"vector), "
                f"but embedding_model is {other}: use the "
                f"first model, or run {REBUILD} {name}"
            )


# ----------------------------------------------------------------------------------------------------
# Contents
# ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Chunk:
    """A part of a text, from character `start` to before `end`. tokens: about, by the embedding model."""

    start: int
    end: int
    tokens: int


@dataclass(frozen=True, slots=True)
class Document:
    """A stored document. text: empty in lists; characters: its length; stored_at: seconds since 1970."""

    id: str
    owner: str
    metadata: Metadata
    characters: int
    chunks: int
    stored_at: float
    text: str = ""


def is_prompt(id: str, metadata: Metadata) -> bool:
    """Whether a document is a prompt that a task has stored."""
    return id.startswith(PROMPT_ID) and metadata == PROMPT


@dataclass(frozen=True, slots=True)
class Scores:
    """Why a chunk was found; None: not by this. words: BM25; meaning: the cosine; fused: by both ranks.

    relevance: what the memory's reranker makes of it and the query.
    """

    words: float | None = None
    meaning: float | None = None
    fused: float | None = None
    relevance: float | None = None

    def known(self) -> dict[str, float]:
        return {name: one for name, one in asdict(self).items() if one is not None}


NO_SCORES = Scores()


@dataclass(frozen=True, slots=True)
class Found:
    """A chunk that a search has found. score: the cosine of its vector and the query's, at most 1.

    score: None in a memory without vectors. headings: those above the text, the highest first. instead: the
    terms by which the search has looked in place of the query's words with a typo.
    """

    id: str
    document: str
    text: str
    score: float | None
    metadata: Metadata
    owner: str
    start: int
    end: int
    scores: Scores = NO_SCORES
    headings: tuple[str, ...] = ()
    instead: frozenset[int] = frozenset()

    @property
    def text_with_headings(self) -> str:
        """The text with the headings in front, a line each."""
        return "\n".join((*self.headings, self.text))


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a document is. stage: read, chunked, embedded, stored; done of total: characters or chunks."""

    stage: Literal["read", "chunked", "embedded", "stored"]
    done: int
    total: int


@dataclass(frozen=True, slots=True)
class Stored:
    """The result of a put. embedded: chunks whose vectors were computed; 0 if the text was already there."""

    id: str
    chunks: int
    embedded: int
    replaced: bool


def nothing_shown(_: Progress) -> None:
    pass


# ----------------------------------------------------------------------------------------------------
# Values of clients
# ----------------------------------------------------------------------------------------------------


def checked_id(value: object) -> str:
    """A document's id; RequestError."""
    if not isinstance(value, str) or not is_text(value) or not 0 < len(value.encode()) <= MAX_ID:
        raise wrong("id", value, f"a text of 1 to {MAX_ID} bytes")
    if re.search(r"[\x00-\x1f\x7f]", value):
        raise wrong("id", value, "a text without control characters")
    return value


def checked_text(value: object, name: str, most: int) -> str:
    """A text with content; RequestError. most: bytes."""
    if not isinstance(value, str):
        raise wrong(name, value, "a text")
    try:
        size = len(value.encode())
    except UnicodeEncodeError:  # lone surrogates; is_text() takes a second for 16 MB
        raise wrong(name, value, "a text") from None
    if size > most:
        raise RequestError(f"{name} has {size:,} bytes; it must have at most {most:,}", param=name)
    if not value.strip():
        raise RequestError(f"{name} has no text", param=name)
    return value


def checked_metadata(value: object) -> dict[str, Value]:
    """A document's metadata; RequestError. None is no metadata."""
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise wrong("metadata", value, "an object")
    if len(value) > MAX_METADATA:
        raise RequestError(
            f"metadata has {len(value)} entries; it must have at most {MAX_METADATA}", param="metadata"
        )
    for key, one in value.items():
        if not isinstance(key, str) or not is_text(key) or not 0 < len(key.encode()) <= MAX_KEY:
            raise wrong("metadata", key, f"an object whose keys have 1 to {MAX_KEY} bytes")
        if isinstance(one, list | tuple):
            if len(one) > MAX_VALUES or not all(_is_single(x) and not isinstance(x, bool) for x in one):
                raise wrong(f"metadata.{key}", one, f"a list of at most {MAX_VALUES} texts and numbers",
                            "metadata")  # fmt: skip
        elif not _is_single(one):
            raise wrong(f"metadata.{key}", one, f"a text of at most {MAX_VALUE} bytes, a number, true, false "
                        "or a list of texts and numbers", "metadata")  # fmt: skip
    checked = {key: list(one) if isinstance(one, tuple) else one for key, one in value.items()}
    if (size := len(json.dumps(checked))) > MAX_METADATA_SIZE:
        message = f"metadata has {size} bytes as JSON; it must have at most {MAX_METADATA_SIZE}"
        raise RequestError(message, param="metadata")
    return checked


def _is_single(value: object) -> bool:
    if isinstance(value, str):
        return is_text(value) and len(value.encode()) <= MAX_VALUE
    if isinstance(value, int) and not isinstance(value, bool):
        return abs(value) < 2**63
    return isinstance(value, bool) or (is_number(value) and math.isfinite(value))  # type: ignore[arg-type]


def no_such(kind: str, name: object, known: Sequence[str] = ()) -> RequestError:
    """The error for an unknown name, with the nearest known one; status 404."""
    import difflib

    near = difflib.get_close_matches(str(name)[:100], known, n=1)
    hint = f"; did you mean {shown(near[0])}?" if near else ""
    return RequestError(f"there is no {kind} {shown(name)}{hint}", param=kind, status=404, code="not_found")
