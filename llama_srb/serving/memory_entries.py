"""What callers are told of memories, documents and chunks: types of answers, and what makes them. Pure."""

from typing import Annotated, Any, Literal, NotRequired, cast

from pydantic import Field
from typing_extensions import TypeAliasType, TypedDict

from llama_srb.dialects.common.response_types import Count, Frames, Warned
from llama_srb.dialects.event_types import ErrorEvent
from llama_srb.memory.records import OPERATOR, Document, FileStore, Found, MemorySettings
from llama_srb.memory.requests import Page, Search
from llama_srb.memory.words import asked, highlights
from llama_srb.request.values import SearchBy
from llama_srb.serving.keys.caller import Caller
from llama_srb.serving.memories import owner_of, reader_of

MOST_HIGHLIGHTED = 1_000_000  # characters of an answer's texts; they take half a second


class MemoryEntry(TypedDict):
    """A memory. shared: what one key stores, all keys find.

    embedding_model: null if it has none. search: how it is searched where a request says nothing.
    """

    id: str
    object: Literal["memory"]
    embedding_model: str | None
    store: Literal["file", "qdrant"]
    chunk_tokens: Count
    chunk_overlap: Count
    chunk_separators: list[str]
    shared: bool
    search: Literal["words", "meaning", "hybrid"]


class MemoryList(TypedDict):
    object: Literal["list"]
    data: list[MemoryEntry]


class DocumentEntry(TypedDict):
    """A document. characters: of its text. created: seconds since 1970. own: it is the caller's.

    owner: the client that has stored it; admins see it of documents that are not the operator's.
    """

    id: str
    object: Literal["document"]
    created: Count
    characters: Count
    chunks: Count
    own: bool
    owner: NotRequired[str]
    metadata: dict[str, Any]


class DocumentWithText(DocumentEntry):
    text: str


class DocumentList(TypedDict):
    """By id. next: of the next page, if there is one; it is its `after`."""

    object: Literal["list"]
    data: list[DocumentEntry]
    next: NotRequired[str]


class StoredDocument(TypedDict):
    """embedded: chunks whose vectors were computed; 0 if the caller has stored the same text before."""

    id: str
    object: Literal["document"]
    chunks: Count
    embedded: Count
    replaced: bool


class DeletedDocument(TypedDict):
    id: str
    deleted: Literal[True]


class ScoresEntry(TypedDict, total=False):
    """words: BM25 over what the key finds (not of Qdrant's chunks); meaning: the cosine; fused: of both.

    relevance: as the memory's reranker gives it, a logit with most models.
    """

    words: float
    meaning: float
    fused: float
    relevance: float


class FoundChunk(TypedDict):
    """score: the cosine of the vectors of chunk and query, at most 1; null in a memory without a model.

    headings: those above the text, the highest first. scores: why it was found. highlights: where the query's
    words are in the text, if the request asks: first character (Unicode code points), and the one behind the
    last.
    """

    id: str
    document: str
    text: str
    headings: list[str]
    score: float | None
    scores: ScoresEntry
    highlights: NotRequired[list[list[Count]]]
    metadata: dict[str, Any]


class FoundChunks(Warned):
    """search: how the memory was searched."""

    object: Literal["list"]
    search: Literal["words", "meaning", "hybrid"]
    data: list[FoundChunk]


class StoringEvent(TypedDict):
    """How far a document is: `done` of `total` characters were read, chunks made, embedded or stored."""

    event: Literal["progress"]
    stage: Literal["read", "chunked", "embedded", "stored"]
    done: Count
    total: Count


class StoredEvent(StoredDocument):
    event: Literal["done"]


StoreEvent = TypeAliasType(
    "StoreEvent",
    Annotated[StoringEvent | StoredEvent | ErrorEvent, Field(discriminator="event")],
)
STORE_EVENTS = Frames(StoreEvent, "Server-sent events, one JSON object each; the last one is done or error.")


def memory_entry(settings: MemorySettings, search: SearchBy) -> MemoryEntry:
    """A memory, and how it is searched where a request says nothing."""
    return {
        "id": settings.name,
        "object": "memory",
        "embedding_model": settings.embedding_model,
        "store": "file" if isinstance(settings.store, FileStore) else "qdrant",
        "chunk_tokens": settings.chunking.tokens,
        "chunk_overlap": settings.chunking.overlap,
        "chunk_separators": list(settings.chunking.separators),
        "shared": settings.shared,
        "search": search,
    }


def document_entry(row: Document, caller: Caller) -> DocumentEntry:
    """A document without its text, as this caller may see it."""
    own = row.owner in (owner_of(caller), reader_of(caller))
    entry: DocumentEntry = {
        "id": row.id,
        "object": "document",
        "created": int(row.stored_at),
        "characters": row.characters,
        "chunks": row.chunks,
        "own": own,
        "metadata": dict(row.metadata),
    }
    if caller.is_admin and not own:
        entry["owner"] = row.owner
    return entry


def next_page(shown: list[Document], page: Page) -> str:
    """The next page's `after`: how many documents of the last id were shown, but the operator's, and the id.

    Documents of several owners may have one id. The owners' names stay secret.
    """
    last = shown[-1].id
    count = sum(row.id == last and row.owner != OPERATOR for row in shown)
    return f"{count + (page.skip if last == page.after else 0)}:{last}"


def found_chunk(one: Found, search: Search) -> FoundChunk:
    """A chunk that a search has found, with its headings if they are asked for."""
    return {
        "id": one.id,
        "document": one.document,
        "text": one.text_with_headings if search.headings else one.text,
        "headings": list(one.headings),
        "score": one.score,
        "scores": cast(ScoresEntry, one.scores.known()),
        "metadata": dict(one.metadata),
    }


def highlight(data: list[FoundChunk], found: list[Found], query: str) -> bool:
    """Says where the words of the query are in each text. False: there is too much text."""
    words, left = asked(query), MOST_HIGHLIGHTED
    for entry, one in zip(data, found, strict=True):
        left -= len(entry["text"])
        if left < 0:
            return False
        entry["highlights"] = [[start, end] for start, end in highlights(entry["text"], words, one.instead)]
    return True
