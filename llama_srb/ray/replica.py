"""A replica: the whole server on a Unix socket in this process, and calls passed to it as bytes."""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
from collections import OrderedDict
from collections.abc import AsyncIterator
from typing import Any

from aiohttp import ClientSession, ClientTimeout, ClientWebSocketResponse, UnixConnector, WSMsgType
from ray import serve
from yarl import URL

from llama_srb import config
from llama_srb.background import begin
from llama_srb.ray.call import OF_THIS_END, Call, Head, NewId, new_id_in, refusal, texts, without
from llama_srb.server import lifetime as server

MAX_IDS = 20_000  # requests whose replica is found; the engine keeps the tokens of fewer
FOREVER = ClientTimeout(total=None)  # the server has its own limits
NOT_ADDED = ("Accept", "Accept-Encoding", "User-Agent", "Content-Type")  # what aiohttp would add


class Replica:
    """What Ray Serve starts and calls."""

    async def __init__(self, settings: dict[str, Any]) -> None:  # type: ignore[misc] # Ray awaits it
        """Returns when the model is loaded; SettingsError, StartError, ModelFileError, EngineError."""
        self.name: str = serve.get_replica_context().replica_id.unique_id
        self._folder = tempfile.TemporaryDirectory(prefix="llama-srb-ray-")
        path = f"{self._folder.name}/server"
        loaded = config.load({**settings, "host": f"unix:{path}"})
        ready: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        running = server.serve(loaded, on_loading=lambda _: None, on_ready=ready.set_result, signals=False)
        self._server = begin(running, "server")
        self._server.add_done_callback(lambda _: ready.cancel())
        with contextlib.suppress(asyncio.CancelledError):
            await ready
        if self._server.done():
            self._server.result()
        self._http = ClientSession(
            connector=UnixConnector(path, limit=0), timeout=FOREVER, auto_decompress=False
        )
        self._ids: OrderedDict[str, None] = OrderedDict()
        self._sockets: dict[str, asyncio.Queue[str | bytes]] = {}

    async def check_health(self) -> None:
        """Ray calls it, and starts another replica when it raises."""
        if self._server.done():
            raise RuntimeError("the server has ended")

    async def __del__(self) -> None:
        if hasattr(self, "_http"):
            await self._http.close()
        if hasattr(self, "_server"):
            self._server.cancel()
            await asyncio.wait({self._server})
        self._folder.cleanup()

    async def named(self) -> str:
        """The replica's name."""
        return self.name

    async def has(self, id: str) -> str | None:
        """The replica's name if it has made the request with this id."""
        return self.name if id in self._ids else None

    # HTTP

    async def answer(self, call: Call, replica: str | None = None) -> AsyncIterator[Head | bytes]:
        """The server's answer, as it comes. replica: the name of the one that was asked for."""
        if replica not in (None, self.name):
            for part in refusal(
                404, f"there is no worker {replica}; GET /w lists those that run", "not_found"
            ):
                yield part
            return
        async with self._http.request(
            call.method,
            _url(call),
            headers=call.headers,
            data=call.body or None,
            allow_redirects=False,
            skip_auto_headers=NOT_ADDED,
        ) as response:
            headers = without(OF_THIS_END, texts(response.raw_headers))
            yield Head(response.status, [*headers, ("X-Worker", self.name)])
            new = NewId()
            async for chunk in response.content.iter_any():
                self._remember(new.read(chunk))
                yield chunk

    def _remember(self, id: str | None) -> None:
        if id is None:
            return
        self._ids[id] = None
        while len(self._ids) > MAX_IDS:
            self._ids.popitem(last=False)

    # WebSockets

    async def socket(
        self, call: Call, id: str, replica: str | None = None
    ) -> AsyncIterator[str | bytes | int]:
        """The replica's name, a WebSocket's messages from the server, its code. say() has those to it."""
        if replica not in (None, self.name):
            return
        said: asyncio.Queue[str | bytes] = asyncio.Queue()
        self._sockets[id] = said
        try:
            async with self._http.ws_connect(_url(call), headers=_without_handshake(call)) as socket:
                yield self.name
                sender = begin(_send_all(socket, said), "messages of a WebSocket")
                try:
                    async for message in socket:
                        if message.type is WSMsgType.TEXT:
                            self._remember(new_id_in(message.data))
                        if message.type in (WSMsgType.TEXT, WSMsgType.BINARY):
                            yield message.data
                finally:
                    sender.cancel()
                yield socket.close_code or 1000
        finally:
            del self._sockets[id]

    async def say(self, id: str, message: str | bytes, replica: str) -> None:
        """A client's message on a WebSocket that is open here; without effect if it has closed."""
        if id in self._sockets:
            self._sockets[id].put_nowait(message)


async def _send_all(socket: ClientWebSocketResponse, said: asyncio.Queue[str | bytes]) -> None:
    while True:
        message = await said.get()
        await (socket.send_str(message) if isinstance(message, str) else socket.send_bytes(message))


def _url(call: Call) -> URL:
    return URL(f"http://localhost{call.target}", encoded=True)


def _without_handshake(call: Call) -> list[tuple[str, str]]:
    """A WebSocket's headers; aiohttp makes its own handshake."""
    return [one for one in call.headers if not one[0].lower().startswith("sec-websocket")]
