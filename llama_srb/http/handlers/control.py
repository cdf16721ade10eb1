"""Handlers that act on running requests: extend, cancel, stop; and WebSockets."""

from __future__ import annotations

from aiohttp import WSCloseCode, web

from llama_srb.dialects.common.answers import warned
from llama_srb.http.answers import Cancelled, Extended
from llama_srb.http.auth.caller import CALLER
from llama_srb.http.connections import Connections
from llama_srb.http.handlers.chosen import Registry
from llama_srb.http.middleware import error_response, json_response, log_summary
from llama_srb.http.streaming import Responder
from llama_srb.http.websocket import Connection
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
                connection = Connection(
                    socket,
                    http[CALLER],
                    self.registry.admission,
                    self.registry.chosen,
                    settings.strict,
                    incoming.delivered,
                    self.responder.max_held,
                )
                await connection.serve()
        finally:
            self._sockets.discard(socket)
        return socket

    async def close_sockets(self, app: web.Application) -> None:
        for socket in list(self._sockets):
            await socket.close(code=WSCloseCode.GOING_AWAY, message=b"the server stops")
