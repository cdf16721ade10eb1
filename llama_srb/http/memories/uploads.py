"""Bodies of documents: received into files without a name, so that none is held in memory."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from tempfile import TemporaryFile
from typing import BinaryIO, cast

from aiohttp import web

from llama_srb.http.auth.caller import CALLER
from llama_srb.memory.documents import DocumentLimits, require_size
from llama_srb.request.values import RequestError

MIB = 1 << 20
MOST, MOST_OF_A_CLIENT = 16, 4  # uploads at the same time
RETRY = 5  # seconds until one of them may have ended


class Uploads:
    """The uploads of a server. seconds: within which each MiB of a body must arrive."""

    def __init__(self, limits: DocumentLimits, seconds: float) -> None:
        self._limits, self._seconds = limits, seconds
        self._open: Counter[str] = Counter()  # by client

    @contextlib.asynccontextmanager
    async def received(self, http: web.Request, folder: Path | None) -> AsyncIterator[BinaryIO]:
        """The body in a file that is gone after the block. folder: where; None: that of temporary files."""
        if (size := http.content_length) is not None:
            require_size(size, self._limits)
        with self._slot(http[CALLER].client):
            try:
                with TemporaryFile(dir=folder) as file:
                    await self._receive(http, cast(BinaryIO, file))
                    yield cast(BinaryIO, file)
            except OSError as error:
                if isinstance(error, ConnectionError):
                    raise
                message = f"the document cannot be kept while it is read: {error.strerror}"
                raise RequestError(message, status=503, code="no_room") from None

    @contextlib.contextmanager
    def _slot(self, client: str) -> Iterator[None]:
        own, all_open = self._open[client], self._open.total()
        if own >= MOST_OF_A_CLIENT or all_open >= MOST:
            most = f"{own} of yours, of at most {MOST_OF_A_CLIENT}; {all_open} in all, of at most {MOST}"
            message = f"other documents are being stored: {most}"
            raise RequestError(message, status=503, code="busy", retry_after=RETRY)
        self._open[client] += 1
        try:
            yield
        finally:
            self._open[client] -= 1
            self._open += Counter()  # drops clients without uploads

    async def _receive(self, http: web.Request, file: BinaryIO) -> None:
        size = 0
        try:
            async with asyncio.timeout(self._seconds) as time:
                while chunk := await http.content.readany():
                    more = (size + len(chunk)) // MIB - size // MIB
                    size += len(chunk)
                    require_size(size, self._limits)
                    file.write(chunk)
                    if more:
                        time.reschedule(asyncio.get_running_loop().time() + self._seconds)
        except TimeoutError:
            message = f"a MiB of the body took more than {self._seconds:g} s (--body-timeout)"
            raise RequestError(message, status=408, code="body_timeout") from None
        except web.RequestPayloadError:
            raise RequestError("the body is incomplete, or its chunked encoding is invalid") from None
        if not size:
            raise RequestError("the body is empty; it must be a document", param="body")
