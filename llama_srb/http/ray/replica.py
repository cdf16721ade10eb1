"""A replica: the whole server on a Unix socket in this process, and calls passed to it as bytes."""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
from collections import OrderedDict
from collections.abc import AsyncIterator
from typing import Any

from aiohttp import ClientSession, ClientTimeout, UnixConnector, WSMsgType
from ray import serve
from yarl import URL

from llama_srb import config
from llama_srb.background import begin
from llama_srb.http import server
from llama_srb.http.ray.call import NEW_ID, OF_THIS_END, Call, Head, refusal, without

MAX_IDS = 20_000  # ids that a replica remembers; the engine keeps the tokens of fewer requests
FOREVER = ClientTimeout(total=None)  # the server has its own limits
NAMED_BY = "X-Worker"


class Replica:
    """What Ray Serve starts and calls."""

    async def __init__(self, settings: dict[str, Any]) -> None:
        """Answers once the model is loaded. StartError, SettingsError: the settings are wrong."""
        self.name: str = serve.get_replica_context().replica_id.unique_id
        self._folder = tempfile.TemporaryDirectory(prefix="llama-srb-")
        path = f"{self._folder.name}/server"
        loaded = config.load({**settings, "host": f"unix:{path}"})
        ready: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        running = server.serve(loaded, on_loading=lambda _: None, on_ready=ready.set_result, signals=False)
        self._server = begin(running, "server")
        await asyncio.wait({self._server, ready}, return_when=asyncio.FIRST_COMPLETED)
        if self._server.done():
            self._server.result()
        self._http = ClientSession(
            connector=UnixConnector(path, limit=0), timeout=FOREVER, auto_decompress=False, raise_for_status=False
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

    async def has(self, id: str) -> str | None:
        """The replica's name if it has made the request with this id."""
        return self.name if id in self._ids else None

    async def named(self) -> str:
        """The replica's name."""
        return self.name

    async def answer(self, call: Call | None = None, **given: Any) -> AsyncIterator[Head | bytes]:
        """The server's answer, as it comes. given: the call when the router is not to compare prompts; replica."""
        asked: Call = call or given["call"]
        if refused := self._refusal(given.get("replica")):
            for part in refused:
                yield part
            return
        url = URL(f"http://localhost{asked.target}", encoded=True)
        async with self._http.request(
            asked.method,
            url,
            headers=asked.headers,
            data=asked.body or None,
            allow_redirects=False,
            skip_auto_headers=("Accept", "Accept-Encoding", "User-Agent", "Content-Type"),
        ) as response:
            headers = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in response.raw_headers]
            yield Head(response.status, [*without(OF_THIS_END, headers), (NAMED_BY, self.name)])
            is_first = True
            async for chunk in response.content.iter_any():
                if is_first and (found := NEW_ID.search(chunk)):
                    self._remember(found[1].decode())
                is_first = False
                yield chunk

    def _refusal(self, wanted: str | None) -> list[Head | bytes]:
        """An answer for a call that is for another replica, which is gone; empty if there is none."""
        if wanted is None or wanted == self.name:
            return []
        return refusal(404, f"there is no replica {wanted}; GET /w lists those that run", "not_found")

    def _remember(self, id: str) -> None:
        self._ids[id] = None
        while len(self._ids) > MAX_IDS:
            self._ids.popitem(last=False)

    # WebSockets

    async def socket(self, call: Call, id: str, replica: str | None = None) -> AsyncIterator[str | bytes]:
        """The server's messages on a WebSocket; the first is the replica's name. say() sends messages to it."""
        said: asyncio.Queue[str | bytes] = asyncio.Queue()
        self._sockets[id] = said
        try:
            url = URL(f"http://localhost{call.target}", encoded=True)
            async with self._http.ws_connect(url, headers=call.headers, max_msg_size=0) as socket:
                yield self.name
                sender = begin(_send_all(socket, said), "messages of a WebSocket")
                try:
                    async for message in socket:
                        if message.type in (WSMsgType.TEXT, WSMsgType.BINARY):
                            yield message.data
                finally:
                    sender.cancel()
        finally:
            del self._sockets[id]

    async def say(self, id: str, message: str | bytes, replica: str) -> None:
        """A client's message on a WebSocket that is open here."""
        with contextlib.suppress(KeyError):
            self._sockets[id].put_nowait(message)


async def _send_all(socket: Any, said: asyncio.Queue[str | bytes]) -> None:
    while True:
        message = await said.get()
        await (socket.send_str(message) if isinstance(message, str) else socket.send_bytes(message))

