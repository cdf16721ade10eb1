"""How many files are received at the same time, in which time, and up to which size."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from typing import BinaryIO

from aiohttp import web

from llama_srb.request.values import RequestError

MIB = 1 << 20
MOST, MOST_OF_A_CLIENT = 16, 4  # uploads at the same time
RETRY = 5  # seconds until one of them may have ended


class Uploads:
    """The uploads of a kind. what: the kind, as "document". seconds: in which each MiB of one must arrive."""

    def __init__(self, what: str, seconds: float) -> None:
        self._what, self._seconds = what, seconds
        self._open: Counter[str] = Counter()  # by client

    @contextlib.contextmanager
    def slot(self, client: str) -> Iterator[None]:
        """A slot for one upload of a client; RequestError if there is none, or if the disk has no room."""
        own, all_open = self._open[client], self._open.total()
        if own >= MOST_OF_A_CLIENT or all_open >= MOST:
            most = f"{own} of yours, of at most {MOST_OF_A_CLIENT}; {all_open} in all, of at most {MOST}"
            message = f"other {self._what}s are being stored: {most}"
            raise RequestError(message, status=503, code="busy", retry_after=RETRY)
        self._open[client] += 1
        try:
            yield
        except OSError as error:
            if isinstance(error, ConnectionError):
                raise
            message = f"the {self._what} cannot be stored: {error.strerror}"
            raise RequestError(message, status=503, code="no_room") from None
        finally:
            self._open[client] -= 1
            self._open += Counter()  # drops clients without uploads

    async def receive(
        self, chunks: AsyncIterator[bytes], file: BinaryIO, grow: Callable[[int, int], None]
    ) -> int:
        """Writes the chunks to a file; returns its size. RequestError.

        grow: is called with the size so far and the bytes that come to it, and raises RequestError if they
        may not.
        """
        size = 0
        try:
            async with asyncio.timeout(self._seconds) as time:
                async for chunk in chunks:
                    more = (size + len(chunk)) // MIB - size // MIB
                    size += len(chunk)
                    grow(size, len(chunk))
                    file.write(chunk)
                    if more:
                        time.reschedule(asyncio.get_running_loop().time() + self._seconds)
        except TimeoutError:
            message = f"a MiB of the body took more than {self._seconds:g} s (--body-timeout)"
            raise RequestError(message, status=408, code="body_timeout") from None
        except web.RequestPayloadError:
            raise RequestError("the body is incomplete, or its chunked encoding is invalid") from None
        return size
