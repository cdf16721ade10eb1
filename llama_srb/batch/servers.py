"""A server that gets lines of a batch: its address, how much it may have at once, whether it is well."""

from __future__ import annotations

import asyncio
import io
import os
import socket
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import aiohttp
import orjson
from aiohttp import ClientSession, ClientTimeout

PRIORITY = {"Priority": "u=7"}  # RFC 9218: the least urgent, so that interactive requests go first
CONNECT_SECONDS = 10.0
CHECK_SECONDS = 10.0  # for an answer of /health
LARGE = 1 << 20  # bytes of a body that is sent in pieces, so that the event loop runs between them
USUAL_SLOTS = 32  # of a server that does not tell
KEEPALIVE = {"TCP_KEEPIDLE": 60, "TCP_KEEPINTVL": 10, "TCP_KEEPCNT": 6}
"""Two minutes until a machine counts as lost that has vanished; a long answer sends no byte until its end."""


class Unreachable(Exception):
    """The server did not get the request."""


class Interrupted(Exception):
    """The server got the request, and has not answered it."""


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer. body: None if it is not JSON. retry_after: seconds, if the server tells."""

    status: int
    request_id: str
    body: Any
    content_type: str
    retry_after: float | None


class Window:
    """How many sequences a server has at once. It narrows when the server refuses some of them.

    A line with more sequences than that has the server for itself.
    """

    def __init__(self, size: int) -> None:
        self.size = self.limit = size
        self.n_halved = 0  # how many times
        self._used = 0
        self._change = asyncio.Event()

    async def take(self, count: int) -> None:
        """Waits for room. One task calls it at a time."""
        while self._used and self._used + count > self.limit:
            self._change.clear()
            await self._change.wait()
        self._used += count

    def free(self, count: int) -> None:
        self._used -= count
        self._change.set()

    def narrow(self, n_halved: int) -> None:
        """Halves it for a line that was refused; n_halved when that was sent: once for all of before it."""
        if n_halved == self.n_halved:
            self.limit, self.n_halved = max(1, self.limit // 2), n_halved + 1

    def widen(self) -> None:
        self.limit = min(self.size, self.limit + 1)
        self._change.set()


class Server:
    """One server, for an `async with` block. path: of its Unix socket; None: it has an address.

    window: the sequences that it has at once; None: twice as many as it generates at once, so that it always
    has others to begin when some end.
    """

    def __init__(
        self, url: str, headers: Mapping[str, str] = {}, *, path: str | None = None, window: int | None = None
    ) -> None:
        self.url = url
        self.window = Window(window or 1)
        self._knows_window = window is not None
        self._headers = {**PRIORITY, "Content-Type": "application/json", **headers}
        self._path = path
        self._http: ClientSession

    async def __aenter__(self) -> Server:
        connector = (
            aiohttp.UnixConnector(self._path, limit=0)
            if self._path is not None
            else aiohttp.TCPConnector(limit=0, socket_factory=_lasting_socket)
        )
        timeout = ClientTimeout(total=None, sock_connect=CONNECT_SECONDS)
        self._http = ClientSession(connector=connector, timeout=timeout, headers=self._headers)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._http.close()

    async def ask(self, path: str, body: bytes) -> Answer:
        """Sends a request, and waits for its answer as long as that takes. Unreachable, Interrupted."""
        try:
            data = body if len(body) < LARGE else io.BytesIO(body)
            async with self._http.post(self.url + path, data=data) as response:
                return await _answer_of(response)
        except aiohttp.ClientConnectorError as error:
            raise Unreachable(_reason(error)) from None
        except aiohttp.ConnectionTimeoutError:
            raise Unreachable(f"no connection in {CONNECT_SECONDS:g} s") from None
        except (aiohttp.ClientError, OSError) as error:
            raise Interrupted(f"the connection was lost: {error or type(error).__name__}") from None

    async def check(self) -> str | None:
        """Why the server cannot take lines now; None if it can."""
        try:
            timeout = ClientTimeout(total=CHECK_SECONDS)
            async with self._http.get(self.url + "/health", timeout=timeout) as response:
                if response.status < 500:
                    await self._learn_window()
                    return None
                return f"/health answers {response.status}"
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            return _reason(error)

    async def _learn_window(self) -> None:
        if self._knows_window:
            return
        timeout, slots = ClientTimeout(total=CHECK_SECONDS), None
        async with self._http.get(self.url + "/props", timeout=timeout) as response:
            if response.status == 200 and isinstance(told := (await _answer_of(response)).body, dict):
                slots = told.get("total_slots")
        self.window = Window(2 * slots if type(slots) is int and slots > 0 else 2 * USUAL_SLOTS)
        self._knows_window = True


async def _answer_of(response: aiohttp.ClientResponse) -> Answer:
    data = await response.read()
    try:
        body = orjson.loads(data)
    except orjson.JSONDecodeError:
        body = None
    wait = response.headers.get("Retry-After", "")
    seconds = float(wait) if wait.isascii() and wait.isdecimal() and len(wait) < 9 else None
    request_id = response.headers.get("X-Request-Id", "")
    return Answer(response.status, request_id, body, response.content_type, seconds)


def _lasting_socket(address: tuple[Any, ...]) -> socket.socket:
    """A socket that notices when the other machine has vanished."""
    family, kind, protocol, *_ = address
    made = socket.socket(family, kind, protocol)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in KEEPALIVE.items():
        if (option := getattr(socket, name, None)) is not None:  # macOS has not all of them
            made.setsockopt(socket.IPPROTO_TCP, option, value)
    return made


def _reason(error: Exception) -> str:
    """Why no connection was made, without the address, which the messages have already."""
    if isinstance(error, aiohttp.ClientConnectorError):
        cause = error.os_error
        if isinstance(cause, ssl.SSLError):
            return f"cannot connect: {cause}"
        number = cause.errno or 0  # a fault of the name service has a negative one
        said = os.strerror(number) if number > 0 else cause.strerror or str(cause)
        return f"cannot connect: {said}; is llama-srb serve running there?"
    return str(error) or type(error).__name__
