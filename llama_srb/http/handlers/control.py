"""Handlers that act on running requests: extend, cancel, stop; and WebSockets."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from aiohttp import WSCloseCode, web

from llama_srb.dialects.common.answers import warned
from llama_srb.http.answers import Cancelled, Extended
from llama_srb.http.auth.caller import CALLER
from llama_srb.http.connections import Connections
from llama_srb.http.handlers.chosen import HELD, Registry
from llama_srb.http.middleware import error_response, json_response, log_summary
from llama_srb.http.streaming import Responder
from llama_srb.http.websockets.client_socket import ClientSocket, Delivered
from llama_srb.http.websockets.conversation import Conversation
from llama_srb.http.websockets.requests import Connection
from llama_srb.request.parse import extension_from
from llama_srb.request.shapes import plain_id


class Control:
    """Handlers of routes.py."""

    def __init__(self, registry: Registry, responder: Responder, connections: Connections) -> None:
        self.registry, self.responder = registry, responder
        self._connections = connections
        self._sockets: set[web.WebSocketResponse] = set()

    async def extend(self, http: web.Request) -> web.Response:
        """Adds sequences to a running request; they stream where it streams."""
        id = plain_id("id", http.match_info["id"])
        body = await self.registry.bodies.read(http)
        extension = extension_from(body, strict=self.registry.settings.strict)
        if (found := self.registry.generation(id, http[CALLER])) is not None:
            facts, generation = found
            facts.require_room(generation, extension)
            log_summary.set(f" add={extension.add} {id}")
            made = await self.registry.admission.extend(generation, extension, http[CALLER])
            if made is not None:
                answer: Extended = {"id": id, "first": made.first, "count": made.count}
                return json_response({**answer, **warned(extension.warnings)})
        message = f'no request {id} is running; a request with "continue" continues one that has ended'
        return error_response(404, message, param="id")

    async def cancel(self, http: web.Request) -> web.Response:
        """Ends a request or one sequence of it."""
        id, index = plain_id("id", http.match_info["id"]), http.match_info.get("index")
        if not self.registry.cancel(id, None if index is None else int(index)):
            return error_response(404, f"no request {id} is running", param="id")
        answer: Cancelled = {"id": id, "cancelled": True}
        return json_response(answer)

    async def stop_generation(self, http: web.Request) -> web.Response:
        """Ends the caller's generations on OpenAI's paths."""
        self.responder.stop_of(http[CALLER].client)
        return json_response("OK")

    async def websocket(self, http: web.Request) -> web.StreamResponse:
        """Many requests on one connection, until it is closed."""

        def connection(socket: web.WebSocketResponse, delivered: Delivered) -> Connection:
            registry, strict = self.registry, self.registry.settings.strict
            choose, most = registry.chosen, self.responder.max_held
            return Connection(socket, http[CALLER], registry.admission, choose, strict, delivered, most)

        return await self._serve(http, connection)

    async def task_socket(self, http: web.Request) -> web.StreamResponse:
        """A chat with a task on one connection, until it is closed."""
        name = http.match_info["name"]
        begun = self.registry.of_task(
            name, {}, http[CALLER]
        )  # an unknown name is an error before the handshake
        begun.hold_memories(http[HELD])
        choose = partial(self.registry.of_task, name, before=begun)

        def conversation(socket: web.WebSocketResponse, delivered: Delivered) -> Conversation:
            return Conversation(socket, http[CALLER], choose, delivered, self.responder.max_held)

        return await self._serve(http, conversation)

    async def _serve(
        self, http: web.Request, make: Callable[[web.WebSocketResponse, Delivered], ClientSocket]
    ) -> web.StreamResponse:
        settings = self.registry.settings
        socket = web.WebSocketResponse(
            heartbeat=settings.keep_alive,
            max_msg_size=settings.max_body,
            compress=False,  # a few compressed bytes could expand to a large message
        )
        await socket.prepare(http)
        self._sockets.add(socket)
        try:
            with self._connections.incoming(http, socket) as incoming:
                await make(socket, incoming.delivered).serve()
        finally:
            self._sockets.discard(socket)
        return socket

    async def close_sockets(self, app: web.Application) -> None:
        for socket in list(self._sockets):
            await socket.close(code=WSCloseCode.GOING_AWAY, message=b"the server stops")
