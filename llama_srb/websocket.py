"""A WebSocket: several requests on one connection, each by the id that the client gave it.

Knows aiohttp's socket and the pool; what messages mean is dialects/messages.py's business. One task reads,
each request has one that writes; all end with the connection, and with them what they generate.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, TypeAlias

from aiohttp import WSMsgType, web

from llama_srb.dialects import messages
from llama_srb.dialects.messages import Command
from llama_srb.pool import EngineUnavailable, Generation, Pool
from llama_srb.protocol import Start
from llama_srb.ranking import ranking
from llama_srb.request import CompletionRequest, Extension
from llama_srb.values import RequestError, whole

MAX_RUNNING = 256  # requests of one connection
MAX_NAMES = 4096  # of requests that are over, which continue may name

Json: TypeAlias = Mapping[str, Any]


class Connection:
    """One client; read_request and read_extension check bodies, with what the server knows."""

    def __init__(
        self,
        socket: web.WebSocketResponse,
        pool: Pool,
        read_request: Callable[[Json], CompletionRequest],
        read_extension: Callable[[Generation, Json], Extension],
    ) -> None:
        self._socket, self._pool = socket, pool
        self._read_request, self._read_extension = read_request, read_extension
        self._running: dict[str, Generation] = {}  # by the client's id
        self._names: dict[str, str] = {}  # the client's id: ours
        self._tasks: set[asyncio.Task[None]] = set()

    async def serve(self) -> None:
        """Until the client leaves or the server stops."""
        try:
            async for message in self._socket:
                if message.type in (WSMsgType.TEXT, WSMsgType.BINARY):
                    await self._take(message.data)
        finally:
            for task in self._tasks:
                task.cancel()
            if self._tasks:
                await asyncio.wait(self._tasks)

    async def _take(self, data: str | bytes) -> None:
        command = None
        try:
            command = messages.parse(data)
            self._obey(command)
        except (RequestError, EngineUnavailable) as error:
            await self._send(self._refused(command, error))

    def _refused(self, command: Command | None, error: RequestError | EngineUnavailable) -> str:
        if isinstance(error, RequestError):
            why: dict[str, Any] = {"message": error.message, "param": error.param}
        else:
            why = {"message": str(error), "code": "unavailable"}
        if command is None:
            return messages.error(**why)
        return messages.error(id=command.id, op=command.op if self._runs(command) else "", **why)

    def _obey(self, command: Command) -> None:
        match command.op:
            case "generate":
                self._start(command)
            case "cancel":
                generation = self._required(command)
                generation.cancel(_index(command.body, generation.n))
            case "extend":
                generation = self._required(command)
                extension = self._read_extension(generation, command.body)
                self._spawn(self._extend(command, generation, extension))

    def _runs(self, command: Command) -> bool:
        return command.id in self._running

    def _required(self, command: Command) -> Generation:
        if (generation := self._running.get(command.id)) is None:
            raise RequestError(f"no request {command.id} is running", param="id")
        return generation

    def _start(self, command: Command) -> None:
        if self._runs(command):
            raise RequestError(f"request {command.id} is running; another one needs another id", param="id")
        if len(self._running) >= MAX_RUNNING:
            raise RequestError(f"{MAX_RUNNING} requests are running, which is the most", param="id")
        request = self._read_request(self._named(command.body))
        self._running[command.id] = generation = self._pool.generate(request)
        self._spawn(self._generate(command.id, request, generation))

    def _named(self, body: Json) -> Json:
        """continue may name a request by the client's own id."""
        named = body.get("continue")
        if not isinstance(named, dict) or named.get("id") not in self._names:
            return body
        return {**body, "continue": named | {"id": self._names[named["id"]]}}

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work, name="websocket")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _generate(self, id: str, request: CompletionRequest, generation: Generation) -> None:
        rank = ranking(request)
        try:
            async with generation:
                async for batch in generation:
                    self._remember(id, batch)
                    for text in messages.render(id, rank(batch), request.warnings):
                        await self._send(text)
        except EngineUnavailable as error:
            await self._send(messages.error(str(error), id=id, code="unavailable"))
        finally:
            del self._running[id]

    def _remember(self, id: str, batch: list[Any]) -> None:
        if isinstance(batch[0], Start):
            self._names[id] = batch[0].id
            if len(self._names) > MAX_NAMES:
                del self._names[next(iter(self._names))]

    async def _extend(self, command: Command, generation: Generation, extension: Extension) -> None:
        if await self._pool.extend(generation, extension) is None:
            message = f"request {command.id} has just ended"
            await self._send(messages.error(message, id=command.id, op="extend", param="id"))

    async def _send(self, text: str) -> None:
        """Waits for a slow reader; one that has left is noticed by serve()."""
        with contextlib.suppress(ConnectionError):
            await self._socket.send_str(text)


def _index(body: Json, n: int) -> int | None:
    return None if body.get("index") is None else whole("index", body["index"], 0, n - 1)
