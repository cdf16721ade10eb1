"""The types of answers about memories. Pure."""

from typing import Annotated, Any, Literal, NotRequired

from pydantic import Field
from typing_extensions import TypeAliasType, TypedDict

from llama_srb.dialects.common.response_types import Count, Frames, Warned
from llama_srb.dialects.event_types import ErrorEvent


class MemoryEntry(TypedDict):
    """A memory. shared: what one key stores, all keys find."""

    id: str
    object: Literal["memory"]
    embedding_model: str
    store: Literal["file", "qdrant"]
    chunk_tokens: Count
    chunk_overlap: Count
    chunk_separators: list[str]
    shared: bool


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


class FoundChunk(TypedDict):
    """score: the cosine of the vectors of chunk and query, at most 1."""

    id: str
    document: str
    text: str
    score: float
    metadata: dict[str, Any]


class FoundChunks(Warned):
    object: Literal["list"]
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
