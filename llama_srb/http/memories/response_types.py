"""The types of answers about memories. Pure."""

from typing import Annotated, Any, Literal, NotRequired

from pydantic import Field
from typing_extensions import TypeAliasType, TypedDict

from llama_srb.dialects.common.response_types import Count, Frames, Warned
from llama_srb.dialects.event_types import ErrorEvent


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
