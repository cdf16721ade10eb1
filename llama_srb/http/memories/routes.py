"""The paths of memories, as rows of the table of routes."""

from __future__ import annotations

from llama_srb.dialects.openai import Error
from llama_srb.http.memories.handlers import MemoryRoutes
from llama_srb.http.route import FAILED, FILE, GENERATION_ERRORS, JSON, SSE, Answer, Route, json_of
from llama_srb.memory.documents import KINDS
from llama_srb.serving.keys.scopes import MEMORY
from llama_srb.serving.memory_entries import (
    STORE_EVENTS,
    DeletedDocument,
    DocumentList,
    DocumentWithText,
    FoundChunks,
    MemoryList,
    StoredDocument,
)

UNUSABLE = {
    **FAILED,
    404: json_of("There is no such memory or document.", Error),
    409: json_of(
        "The memory's vectors are another model's: llama-srb memory rebuild. Or several clients have a "
        "document of this id, and an admin has not said whose.",
        Error,
    ),
    503: json_of("The memory cannot be opened, for the reason in the message.", Error),
}
READING = {
    400: json_of("The id or a parameter is wrong; the message has value and bound.", Error),
    **UNUSABLE,
}
COMPUTING = GENERATION_ERRORS | {name: UNUSABLE[name] for name in (404, 409)}
STORED = {JSON: StoredDocument, SSE: STORE_EVENTS}
DOCUMENTS = "/v1/memories/{memory}/documents"

# fmt: off
MEMORIES: tuple[Route, ...] = (
    Route("GET", "/v1/memories", MEMORY, MemoryRoutes.list_memories,
        "The memories that the configuration has and the key may use.",
        {200: json_of("A list.", MemoryList), **FAILED}),
    Route("PUT", DOCUMENTS + "/{document}", MEMORY, MemoryRoutes.put_document,
        "Stores a document, in place of the key's one of this id. The body is the file. Its metadata are the "
        "query, as ?year=1900&tag=a&tag=b, or JSON in the header X-Metadata. Without a Content-Type the "
        "end of the id says what it is. With Accept: text/event-stream the answer shows the progress.",
        {
            200: Answer("It has replaced one; or the events of a new one.", STORED),
            201: json_of("It is stored.", StoredDocument),
            **COMPUTING,
            408: json_of("A MiB of the body took longer than --body-timeout.", Error),
            413: json_of("The document is larger than --max-document.", Error),
            415: json_of("The Content-Type is none of those that are read.", Error),
        }, files=(*KINDS, FILE)),
    Route("GET", DOCUMENTS, MEMORY, MemoryRoutes.list_documents,
        "The documents that the key finds, by id, without texts. An admin sees those of all keys.",
        {200: json_of("A page of the list.", DocumentList), **READING}, works=True,
        queries=("limit", "after")),
    Route("GET", DOCUMENTS + "/{document}", MEMORY, MemoryRoutes.get_document,
        "A document with its text: the key's own, the operator's, or another one of a shared memory. "
        "An admin reads anybody's; ?owner= says whose, if several keys have one of this id.",
        {200: json_of("The document.", DocumentWithText), **READING}, works=True),
    Route("DELETE", DOCUMENTS + "/{document}", MEMORY, MemoryRoutes.delete_document,
        "Deletes a document of the key. An admin deletes anybody's; ?owner= says whose, if several keys have "
        "one of this id.",
        {200: json_of("It is deleted.", DeletedDocument), **READING}),
    Route("POST", "/v1/memories/{memory}/search", MEMORY, MemoryRoutes.search_memory,
        "The chunks that fit the query best, by words, by meaning or by both, best first.",
        {200: json_of("The chunks.", FoundChunks), **COMPUTING}, request="MemorySearch"),
)
# fmt: on
