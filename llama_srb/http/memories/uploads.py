"""Bodies of documents: received into files without a name."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from tempfile import TemporaryFile
from typing import BinaryIO, cast

from aiohttp import web

from llama_srb.http.request_keys import CALLER
from llama_srb.http.uploads.receiving import Uploads
from llama_srb.memory.documents import DocumentLimits, require_size
from llama_srb.request.values import RequestError


class DocumentUploads:
    """The documents that a server receives. seconds: within which each MiB of a body must arrive."""

    def __init__(self, limits: DocumentLimits, seconds: float) -> None:
        self._limits, self._uploads = limits, Uploads("document", seconds)

    @contextlib.asynccontextmanager
    async def received(self, http: web.Request, folder: Path | None) -> AsyncIterator[BinaryIO]:
        """The body in a file that is gone after the block. folder: where; None: that of temporary files."""
        self._require_size(http.content_length or 0)
        with self._uploads.slot(http[CALLER].client), TemporaryFile(dir=folder) as file:
            opened = cast(BinaryIO, file)
            if not await self._uploads.receive(http.content.iter_any(), opened, self._grow):
                raise RequestError("the body is empty; it must be a document", param="body")
            yield opened

    def _grow(self, size: int, _: int) -> None:
        self._require_size(size)

    def _require_size(self, size: int) -> None:
        require_size(size, self._limits)
