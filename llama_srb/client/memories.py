"""The memories of a server: what they hold, and the requests for them. No I/O here, but files are read."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias
from urllib.parse import quote

from llama_srb.client.core import EVENT_STREAM, Call, body_of
from llama_srb.client.reader import as_text, read_as, records

PAGE = 500  # documents of one answer, the most that the server lists
TEXT = "text/plain; charset=utf-8"

Content: TypeAlias = str | bytes | Path
"""A document: a text, the bytes of a file, or the path of a file."""


@dataclass(frozen=True, slots=True)
class MemoryEntry:
    """A memory of the server. store: file or qdrant. shared: what one key stores, all keys find.

    embedding_model: None if it has none. search: words, meaning or hybrid, where a search says nothing.
    """

    id: str
    embedding_model: str | None
    store: str
    chunk_tokens: int
    chunk_overlap: int
    chunk_separators: tuple[str, ...]
    shared: bool
    search: str = "meaning"


@dataclass(frozen=True, slots=True)
class Document:
    """A document. created: seconds since 1970. characters: of its text. own: the caller may change it.

    text: None in a list of documents.
    """

    id: str
    created: int
    characters: int
    chunks: int
    own: bool
    metadata: Mapping[str, Any]
    text: str | None = None


@dataclass(frozen=True, slots=True)
class Stored:
    """A document that was stored. replaced: it was there before.

    embedded: chunks whose vectors were computed; 0 if the same text was there before.
    """

    id: str
    chunks: int
    embedded: int
    replaced: bool


@dataclass(frozen=True, slots=True)
class Chunk:
    """A chunk that was found. score: the cosine of the vectors of chunk and query, at most 1.

    score: None in a memory without a model. scores: why it was found: words (BM25), meaning, fused. headings:
    those above the text, the highest first. highlights: where the query's words begin and end in the text, in
    characters, if the search asks for that.
    """

    id: str
    document: str
    text: str
    score: float | None
    metadata: Mapping[str, Any]
    scores: Mapping[str, float] = field(default_factory=dict)
    headings: tuple[str, ...] = ()
    highlights: tuple[Sequence[int], ...] = ()


@dataclass(frozen=True, slots=True)
class Page:
    """A page of the list of documents. next: where the next page begins; None if this is the last one."""

    documents: list[Document]
    next: str | None


MEMORIES: Call[list[MemoryEntry]] = Call(
    "/v1/memories", None, lambda answer: records(MemoryEntry, answer["data"])
)


def _path(memory: str, *rest: str) -> str:
    return "/".join(["/v1/memories", *(quote(part, safe="") for part in (memory, *rest))])


def put(
    memory: str, id: str, content: Content, content_type: str | None, metadata: Mapping[str, Any] | None
) -> Call[Stored]:
    """The request shows its progress, so that a large document may take longer than the client's timeout."""
    if isinstance(content, str):
        content, content_type = content.encode(errors="surrogatepass"), content_type or TEXT
    headers = {"Content-Type": content_type, "X-Metadata": json.dumps(metadata) if metadata else None}
    return Call(
        _path(memory, "documents", id),
        content.read_bytes() if isinstance(content, Path) else content,
        lambda answer: read_as(Stored, answer),
        "PUT",
        {"Accept": EVENT_STREAM, **body_of(**headers)},
    )


def page(memory: str, after: str) -> Call[Page]:
    """after: `next` of the page before, empty for the first page."""
    return Call(f"{_path(memory, 'documents')}?limit={PAGE}&after={quote(after, safe='')}", None, _page)


def _page(answer: Mapping[str, Any]) -> Page:
    next = answer.get("next")
    return Page(records(Document, answer["data"]), None if next is None else as_text(next))


def get(memory: str, id: str) -> Call[Document]:
    return Call(_path(memory, "documents", id), None, lambda answer: read_as(Document, answer))


def delete(memory: str, id: str) -> Call[None]:
    return Call(_path(memory, "documents", id), None, lambda answer: None, "DELETE")


def search(
    memory: str,
    query: str,
    k: int | None,
    filter: Mapping[str, Any] | None,
    post_filter: Mapping[str, Any] | None,
    by: str | None,
    around: int | None,
    per_document: int | None,
    diversity: float | None,
    headings: bool | None,
    highlights: bool | None,
) -> Call[list[Chunk]]:
    body = body_of(
        query=query, k=k, filter=filter, post_filter=post_filter, search=by, around=around,
        per_document=per_document, diversity=diversity, headings=headings, highlights=highlights,
    )  # fmt: skip
    return Call(_path(memory, "search"), body, lambda answer: records(Chunk, answer["data"]))
