"""Bodies on their way through the ingress: whose are read, and how many, how large and how slow they may be.

Knows not what is in them. Ray's own HTTP server before it takes bytes as they come, until it has an answer.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from llama_srb.config import Settings
from llama_srb.ray.call import Headers
from llama_srb.request.values import RequestError
from llama_srb.serving.bodies import LargeBodies
from llama_srb.serving.keys.access import Access, AccessError, key_in

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]

MAX_BODY = 64 << 20  # bytes; the most that --max-body may say
LOOK = 1.0  # seconds between two looks into the files of keys, for a key that is new


class Bodies:
    """AccessError if a file of keys cannot be read."""

    def __init__(self, settings: Settings) -> None:
        self._access, self._seconds = Access(settings), settings.body_timeout
        self._large, self._looked = LargeBodies(MAX_BODY), 0.0

    def are_read(self, headers: Headers) -> bool:
        """Whether this client may send a body: no key is needed, or it has one, with whatever scopes."""
        key = key_in({name.lower(): value for name, value in headers})
        if self._access.is_known(key):
            return True
        now = asyncio.get_running_loop().time()
        if now - self._looked < LOOK:
            return False
        self._looked = now
        with contextlib.suppress(AccessError):  # the keys of before count
            self._access.reload()
        return self._access.is_known(key)

    async def read(self, headers: Headers, receive: Receive, held: contextlib.ExitStack) -> bytes:
        """The whole body; a large one takes a slot until `held` is closed. RequestError."""
        announced = next((value for name, value in headers if name.lower() == "content-length"), "0")
        size, largest, parts = 0, int(announced), list[bytes]()
        client = key_in({name.lower(): value for name, value in headers}) or ""
        self._make_room(0, largest, held, client)
        try:
            async with asyncio.timeout(self._seconds):
                while (message := await receive())["type"] == "http.request":
                    parts.append(message.get("body", b""))
                    size += len(parts[-1])
                    self._make_room(largest, max(largest, size), held, client)
                    largest = max(largest, size)
                    if not message.get("more_body", False):
                        return b"".join(parts)
        except TimeoutError:
            slow = f"the body was not complete after {self._seconds:g} s (--body-timeout)"
            raise RequestError(slow, status=408, code="body_timeout") from None
        raise ClientLeft

    def _make_room(self, before: int, size: int, held: contextlib.ExitStack, client: str) -> None:
        if size > MAX_BODY:
            message = f"the body has {size} bytes or more; it may have {MAX_BODY}"
            raise RequestError(message, status=413, code="too_large")
        self._large.make_room(before, size, held, client)


class ClientLeft(Exception):
    """The client has left before its body was complete."""
