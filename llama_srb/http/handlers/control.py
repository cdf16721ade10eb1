"""Handlers that act on running requests: extend, cancel, stop; and WebSockets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from aiohttp import WSCloseCode, web

from llama_srb.dialects import events
from llama_srb.dialects.common.answers import warned
from llama_srb.engine.exchange import Exchange
from llama_srb.http.answers import Cancelled, Extended
from llama_srb.http.auth.caller import CALLER, Caller
from llama_srb.http.connections import Connections
from llama_srb.http.handlers.bodies import Bodies
from llama_srb.http.handlers.facts import ServerFacts
from llama_srb.http.middleware import error_response, json_response, log_summary
from llama_srb.http.reservations import Admission
from llama_srb.http.streaming import Responder
from llama_srb.http.websocket import Connection
from llama_srb.request.fields import CompletionRequest, Extension
from llama_srb.request.parse import extension_from
from llama_srb.request.shapes import plain_id


class Control:
    """Handlers of routes.py."""

    def __init__(
        self,
        facts: ServerFacts,
        admission: Admission,
        bodies: Bodies,
        responder: Responder,
        connections: Connections,
    ) -> None:
        self.facts, self.admission, self.bodies, self.responder = facts, admission, bodies, responder
        self._connections = connections
        self._sockets: set[web.WebSocketResponse] = set()

    async def extend(self, http: web.Request) -> web.Response:
        """Adds sequences to a running request; they stream where it streams."""
        id = plain_id("id", http.match_info["id"])
        extension = extension_from(await self.bodies.read(http), strict=self.facts.settings.strict)
        generation = self.admission.pool.requests.generation(id)
        if generation is not None:
            self.facts.require_room(generation, extension)
            log_summary.set(f" add={extension.add} {id}")
            if (made := await self.admission.extend(generation, extension, http[CALLER])) is not None:
                answer: Extended = {"id": id, "first": made.first, "count": made.count}
                return json_response({**answer, **warned(extension.warnings)})
        message = f'no request {id} is running; a request with "continue" continues one that has ended'
        return error_response(404, message, param="id")

    async def cancel(self, http: web.Request) -> web.Response:
        """Ends a request or one sequence of it."""
        id, index = plain_id("id", http.match_info["id"]), http.match_info.get("index")
        if not self.admission.pool.requests.cancel(id, None if index is None else int(index)):
            return error_response(404, f"no request {id} is running", param="id")
        answer: Cancelled = {"id": id, "cancelled": True}
        return json_response(answer)

    async def stop_generation(self, http: web.Request) -> web.Response:
        """Ends the caller's generations on OpenAI's paths."""
        self.responder.stop_of(http[CALLER].client)
        return json_response("OK")

    async def websocket(self, http: web.Request) -> web.StreamResponse:
        """Many requests on one connection, until it is closed."""
        settings = self.facts.settings
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
                    self.admission,
                    self._read_request,
                    self._read_extension,
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

    async def _read_request(self, body: Mapping[str, Any], caller: Caller) -> CompletionRequest:
        request = events.parse(body, self.facts.defaults(caller))
        return await self.facts.with_known_tools(self.facts.require_what_continue_needs(request))

    def _read_extension(self, generation: Exchange, body: Mapping[str, Any]) -> Extension:
        extension = extension_from(body, strict=self.facts.settings.strict)
        self.facts.require_room(generation, extension)
        return extension
