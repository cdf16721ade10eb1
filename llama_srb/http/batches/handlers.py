"""Handlers of files and batches."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from functools import partial
from typing import BinaryIO

from aiohttp import web

from llama_srb.batch.files import opened
from llama_srb.batch.records import Batch, StoredFile, new_id
from llama_srb.http.middleware import json_response, send_pieces
from llama_srb.http.request_keys import BODY, CALLER, ROUTES
from llama_srb.http.route import FILE
from llama_srb.http.uploads.multipart import read_form
from llama_srb.http.uploads.receiving import Uploads
from llama_srb.request.values import RequestError, wrong
from llama_srb.serving.batches.asked import (
    DEFAULT_BATCHES,
    DEFAULT_FILES,
    MOST_BATCHES,
    Page,
    batch_of,
    file_expiry,
)
from llama_srb.serving.batches.entries import (
    BatchList,
    DeletedFile,
    FileList,
    batch_entry,
    ends_of,
    file_entry,
)
from llama_srb.serving.batches.service import BatchService
from llama_srb.serving.model_registry import ModelRegistry
from llama_srb.serving.observe.logs import log_summary

PIECE = 256 << 10  # bytes of a content that are read at once
FORM = 64 << 10  # bytes of a form beside its file, which has the rest


class BatchRoutes:
    """Handlers of routes.py."""

    def __init__(self, registry: ModelRegistry, batches: BatchService) -> None:
        self._registry, self._batches = registry, batches
        self._seconds = registry.settings.body_timeout
        self._uploads = Uploads("file", self._seconds)

    # Files

    async def create_file(self, http: web.Request) -> web.Response:
        """Stores a file."""
        caller, store, id = http[CALLER], self._batches.store, new_id("file-")
        least = max(0, (http.content_length or 0) - FORM)
        await self._batches.require_room(caller, least)
        size = 0

        async def receive(name: str, pieces: AsyncIterator[bytes]) -> None:
            nonlocal size
            with path.open("xb") as file:
                size = await self._uploads.receive(pieces, file, partial(self._batches.grow, id))

        with self._uploads.slot(caller.client):
            async with store.uploading(id) as path:
                form = await read_form(http, receive, self._seconds)
                keep = _checked(form)
                now, name = int(time.time()), form["file"]
                relative = store.relative(path)
                file = StoredFile(id, caller.owner, name, size, "batch", now, now + keep, relative)
                await self._batches.add_file(file)
        log_summary.set(f" {id} bytes={size}")
        return json_response(file_entry(file))

    async def list_files(self, http: web.Request) -> web.Response:
        """The files of the caller."""
        page = Page.of(http.query, DEFAULT_FILES)
        found = await self._batches.files(page, http[CALLER])
        data = [file_entry(one) for one in found[: page.limit]]
        ends = ends_of([one["id"] for one in data])
        answer: FileList = {"object": "list", "data": data, **ends, "has_more": len(found) > len(data)}
        return json_response(answer)

    async def get_file(self, http: web.Request) -> web.Response:
        """A file of the caller."""
        return json_response(file_entry(await self._file(http)))

    async def file_content(self, http: web.Request) -> web.StreamResponse:
        """The content of a file, in pieces."""
        file = await self._file(http)
        try:
            content = await asyncio.to_thread(opened, self._batches.store.content(file))
        except FileNotFoundError:
            message = f"the content of {file.id} is lost"
            raise RequestError(message, status=404, code="no_such_file") from None
        with content:
            response = web.StreamResponse(headers={"Content-Type": FILE})
            response.content_length = file.bytes
            return await send_pieces(http, response, _pieces_of(content))

    async def delete_file(self, http: web.Request) -> web.Response:
        """Deletes a file of the caller."""
        file = await self._file(http)
        await self._batches.delete(file)
        answer: DeletedFile = {"id": file.id, "object": "file", "deleted": True}
        return json_response(answer)

    async def _file(self, http: web.Request) -> StoredFile:
        return await self._batches.file(http.match_info["file_id"], http[CALLER])

    # Batches

    async def create_batch(self, http: web.Request) -> web.Response:
        """Begins a batch."""
        body = await self._registry.bodies.read(http[BODY])
        asked = batch_of(body, strict=self._registry.settings.strict)
        _require_scope(http, asked.endpoint)
        batch = await self._batches.create(asked, http[CALLER])
        log_summary.set(f" {batch.id}")
        return json_response(batch_entry(batch))

    async def list_batches(self, http: web.Request) -> web.Response:
        """The batches of the caller."""
        page = Page.of(http.query, DEFAULT_BATCHES)
        page = replace(page, limit=min(page.limit, MOST_BATCHES))  # their metadata make an answer large
        found = await self._batches.batches(page, http[CALLER])
        data = [batch_entry(one) for one in found[: page.limit]]
        ends = ends_of([one["id"] for one in data])
        answer: BatchList = {"object": "list", "data": data, **ends, "has_more": len(found) > len(data)}
        return json_response(answer)

    async def get_batch(self, http: web.Request) -> web.Response:
        """A batch of the caller."""
        return json_response(batch_entry(await self._batch(http)))

    async def cancel_batch(self, http: web.Request) -> web.Response:
        """Cancels a batch of the caller."""
        return json_response(batch_entry(await self._batches.cancel(await self._batch(http))))

    async def _batch(self, http: web.Request) -> Batch:
        return await self._batches.batch(http.match_info["batch_id"], http[CALLER])


def _checked(form: Mapping[str, str]) -> int:
    """The seconds that the file of a form is kept; RequestError if the form is wrong."""
    for name in ("file", "purpose"):
        if name not in form:
            raise RequestError(f"the form has no part {name}; file and purpose are needed", param=name)
    if form["purpose"] != "batch":
        raise wrong("purpose", form["purpose"], '"batch"')
    return file_expiry(form)


async def _pieces_of(content: BinaryIO) -> AsyncIterator[bytes]:
    while piece := await asyncio.to_thread(content.read, PIECE):
        yield piece


def _require_scope(http: web.Request, endpoint: str) -> None:
    """RequestError if the caller may not send what the batch would send in its name."""
    grant, rows = http[CALLER].grant, http.app[ROUTES]
    scopes = next(row.scopes for row in rows if (row.method, row.path) == ("POST", endpoint))
    if grant is not None and not grant.may(scopes):
        message = f"{grant.name} has the scopes {' '.join(grant.scopes)}; lines of {endpoint}"
        raise RequestError(f"{message} need {' or '.join(scopes)}", status=403, code="scope_missing")
