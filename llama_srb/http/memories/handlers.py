"""Handlers of memories: documents are put, listed, read and deleted; chunks of them are found."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import orjson
from aiohttp import web

from llama_srb.http.memories.progress import streamed, wants_events
from llama_srb.http.memories.uploads import DocumentUploads
from llama_srb.http.middleware import json_response, send_pieces
from llama_srb.http.request_keys import BODY, CALLER, HELD
from llama_srb.http.route import FILE
from llama_srb.memory.documents import DocumentLimits, kind_of, more_exact, type_of
from llama_srb.memory.one_memory import Memory, OnProgress
from llama_srb.memory.records import (
    OPERATOR,
    FileStore,
    checked_id,
    no_such,
    nothing_shown,
)
from llama_srb.memory.requests import METADATA, Page, metadata_of, search_of
from llama_srb.memory.slots import Slots
from llama_srb.request.values import RequestError
from llama_srb.serving.memories import MemoryAccess, owner_of, reader_of
from llama_srb.serving.memory_entries import (
    MOST_HIGHLIGHTED,
    DeletedDocument,
    DocumentList,
    DocumentWithText,
    FoundChunks,
    MemoryList,
    StoredDocument,
    document_entry,
    found_chunk,
    highlight,
    memory_entry,
    next_page,
)
from llama_srb.serving.model_registry import ModelRegistry
from llama_srb.serving.observe.logs import log_summary

UNKNOWN = FILE  # what many clients say if nobody has told them
ANSWERS, ANSWERS_OF_A_CLIENT = 16, 4  # documents that are sent at the same time; each may take 64 MB
PIECE = 256 << 10  # characters that become JSON at once


class MemoryRoutes:
    """Handlers of routes.py."""

    def __init__(self, registry: ModelRegistry) -> None:
        settings = registry.settings
        self._registry, self._pause = registry, settings.keep_alive
        limits = DocumentLimits(body=settings.max_document)
        self._uploads = DocumentUploads(limits, settings.body_timeout)
        self._answers = Slots(ANSWERS, ANSWERS_OF_A_CLIENT)

    def _access(self, http: web.Request) -> MemoryAccess:
        """The memories, which stay open until the request is over."""
        access = self._registry.memories
        assert isinstance(access, MemoryAccess)
        return http[HELD].enter_context(access.use())

    async def list_memories(self, http: web.Request) -> web.Response:
        """The memories that the caller may use."""
        access = self._access(http)
        data = [memory_entry(one, await access.search_by(one)) for one in access.allowed(http[CALLER])]
        answer: MemoryList = {"object": "list", "data": data}
        return json_response(answer)

    async def put_document(self, http: web.Request) -> web.StreamResponse:
        """Stores a document in place of the caller's one of this id."""
        name, id = http.match_info["memory"], checked_id(http.match_info["document"])
        content_type = http.headers.get("Content-Type", "")
        if content_type in ("", UNKNOWN):
            content_type = type_of(id) or content_type
        content_type = more_exact(content_type, id)
        kind_of(content_type)
        metadata = metadata_of(list(http.query.items()), http.headers.get(METADATA))
        caller, access = http[CALLER], self._access(http)
        memory = await access.reading(name, caller)  # an error before the body is read
        store = memory.settings.store
        folder = store.path.parent if isinstance(store, FileStore) else None
        async with self._uploads.received(http, folder) as file:

            async def storing(on_progress: OnProgress) -> StoredDocument:
                chunking = memory.settings.chunking
                async with (
                    access.lasting.documents.reading(file, content_type, chunking, caller.client) as read,
                    access.computing(name, caller) as (computing, _),
                ):
                    stored = await computing.put_read(
                        id, read, metadata=metadata, owner=owner_of(caller), on_progress=on_progress
                    )
                log_summary.set(f" {name} chunks={stored.chunks} embedded={stored.embedded}")
                return {
                    "id": stored.id,
                    "object": "document",
                    "chunks": stored.chunks,
                    "embedded": stored.embedded,
                    "replaced": stored.replaced,
                }

            if wants_events(http):
                return await streamed(http, storing, self._pause)
            answer = await storing(nothing_shown)
        return json_response(answer, 200 if answer["replaced"] else 201)

    async def list_documents(self, http: web.Request) -> web.Response:
        """The documents that the caller finds, in order of their ids, without texts."""
        caller, page = http[CALLER], Page.of(http.query)
        memory = await self._access(http).reading(http.match_info["memory"], caller)
        after, owner = (page.after, OPERATOR), reader_of(caller)
        rows = await memory.documents(owner, after, page.limit + page.skip + 1, of_all=caller.is_admin)
        rows = rows[page.skip :]
        shown = rows[: page.limit]
        data = [document_entry(row, caller) for row in shown]
        answer: DocumentList = {"object": "list", "data": data}
        if len(rows) > len(shown):
            answer["next"] = next_page(shown, page)
        return json_response(answer)

    async def get_document(self, http: web.Request) -> web.StreamResponse:
        """A document with its text."""
        caller, id = http[CALLER], http.match_info["document"]
        memory = await self._access(http).reading(http.match_info["memory"], caller)
        owner = await _of_all(memory, id, http) if caller.is_admin else reader_of(caller)
        async with self._answers.slot(caller.client):  # each has a text in memory while it is read
            if (found := await memory.get(id, owner)) is None:
                raise no_such("document", id)
            answer: DocumentWithText = {**document_entry(found, caller), "text": ""}
            if len(found.text) <= PIECE:
                return json_response({**answer, "text": found.text})
            response = web.StreamResponse(headers={"Content-Type": "application/json"})
            return await send_pieces(http, response, _pieces_of(answer, found.text))

    async def delete_document(self, http: web.Request) -> web.Response:
        """Deletes a document of the caller; an admin deletes anybody's."""
        caller, id = http[CALLER], http.match_info["document"]
        memory = await self._access(http).reading(http.match_info["memory"], caller)
        if caller.is_admin:
            is_deleted = await memory.delete(id, await _of_all(memory, id, http))
        else:  # without keys a prompt has another owner than a document
            own, prompts = owner_of(caller), reader_of(caller)
            is_deleted = await memory.delete(id, own) or await memory.delete(id, prompts)
        if not is_deleted:
            if caller.is_admin or await memory.get(id, reader_of(caller)) is None:
                raise no_such("document", id)
            message = "this document is another client's; only who has stored a document may delete it"
            raise RequestError(message, param="document", status=403, code="not_own")
        answer: DeletedDocument = {"id": id, "deleted": True}
        return json_response(answer)

    async def search_memory(self, http: web.Request) -> web.Response:
        """The chunks that fit a query best, by words, by meaning or by both."""
        caller, name = http[CALLER], http.match_info["memory"]
        search = search_of(
            await self._registry.bodies.read(http[BODY]), strict=self._registry.settings.strict
        )
        async with self._access(http).searching(name, caller) as memory:
            by = search.by or memory.search_by
            found = await memory.search(
                search.query, search.k, search.filter, reader_of(caller), by, search.around
            )
        log_summary.set(f" {name} {by} found={len(found)}")
        data = [found_chunk(one, search) for one in found]
        answer: FoundChunks = {"object": "list", "search": by, "data": data}
        warnings = [*search.warnings]
        if by != "meaning" and not memory.has_words:
            warnings.append("not all chunks have their words yet: by words the others are not found")
        if search.highlights and not await asyncio.to_thread(highlight, answer["data"], found, search.query):
            warnings.append(f"only the first {MOST_HIGHLIGHTED} characters of the texts have highlights")
        if warnings:
            answer["warnings"] = tuple(warnings)
        return json_response(answer)


async def _pieces_of(answer: DocumentWithText, text: str) -> AsyncIterator[bytes]:
    """An answer with a long text, of which never more than a piece becomes JSON at once."""
    head, end = orjson.dumps(answer).rsplit(b'""', 1)  # the text is the last member
    yield head + b'"'
    for first in range(0, len(text), PIECE):
        yield orjson.dumps(text[first : first + PIECE])[1:-1]
        await asyncio.sleep(0)
    yield b'"' + end + b"\n"


async def _of_all(memory: Memory, id: str, http: web.Request) -> str:
    """The owner of the document that an admin means: the one in ?owner=, the operator, or the only one."""
    found = await memory.named(id, http.query.get("owner"))
    if not found:
        raise no_such("document", id)
    if len(found) > 1 and found[0].owner != OPERATOR:
        owners = ", ".join(one.owner for one in found[:8])
        message = f"{len(found)} clients have a document of this id; say in ?owner= whose: {owners}"
        raise RequestError(message, param="owner", status=409, code="several_owners")
    return found[0].owner
