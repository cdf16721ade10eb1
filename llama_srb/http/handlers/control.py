"""Handlers that act on running requests: extend, cancel, stop, drain; and WebSockets."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from functools import partial

from aiohttp import WSCloseCode, web

from llama_srb.dialects.common.response_types import warned
from llama_srb.http.connections import Connections
from llama_srb.http.middleware import error_response, json_response
from llama_srb.http.request_keys import BODY, CALLER, HELD, ROUTE
from llama_srb.http.response_types import AbortedRequests, Cancelled, DrainState, Extended
from llama_srb.http.websockets.client_socket import ClientSocket, Delivered
from llama_srb.http.websockets.conversation import Conversation
from llama_srb.http.websockets.requests import Connection
from llama_srb.request.parse import extension_from
from llama_srb.request.sequence_name import plain_id
from llama_srb.request.values import wrong
from llama_srb.serving.model_registry import ModelRegistry
from llama_srb.serving.observe.logs import log_summary
from llama_srb.serving.running import Running

log = logging.getLogger("llama_srb.server")  # this name is documented

LONGEST_WAIT = 3600.0  # seconds


class Control:
    """Handlers of routes.py."""

    def __init__(self, registry: ModelRegistry, running: Running, connections: Connections) -> None:
        self.registry, self._running = registry, running
        self._connections = connections
        self._sockets: set[web.WebSocketResponse] = set()

    async def extend(self, http: web.Request) -> web.Response:
        """Adds sequences to a running request; they stream where it streams."""
        id = plain_id("id", http.match_info["id"])
        body = await self.registry.bodies.read(http[BODY])
        extension = extension_from(body, strict=self.registry.settings.strict)
        if (found := self.registry.generation(id, http[CALLER])) is not None:
            facts, generation = found
            facts.require_room(generation, extension)
            log_summary.set(f" add={extension.add} {id}")
            made = await self.registry.admission.extend(generation, extension, http[CALLER])
            if made is not None:
                answer: Extended = {"id": id, "first": made.first, "count": made.count}
                return json_response({**answer, **warned(extension.warnings)})
        ended = 'it has ended (a request with "continue" goes on from it), waits for its model, or is unknown'
        message = f"no request {id} is running: {ended}"
        return error_response(404, message, param="id")

    async def cancel(self, http: web.Request) -> web.Response:
        """Ends a request or one sequence of it."""
        id, index = plain_id("id", http.match_info["id"]), http.match_info.get("index")
        if not self.registry.cancel(id, None if index is None else int(index)):
            return error_response(404, f"no request {id} is running", param="id")
        answer: Cancelled = {"id": id, "cancelled": True}
        return json_response(answer)

    async def abort(self, http: web.Request) -> web.Response:
        """Ends all of the caller's requests, so that a model's weights may be changed."""
        client, models = http[CALLER].client, self.registry.with_leaving
        answer: AbortedRequests = {"aborted": sum(facts.pool.requests.abort(client) for facts in models)}
        return json_response(answer)

    async def stop_generation(self, http: web.Request) -> web.Response:
        """Ends the caller's generations on OpenAI's paths."""
        self._running.stop_of(http[CALLER].client)
        return json_response("OK")

    # Drain

    async def drain(self, http: web.Request) -> web.Response:
        """New requests get 503 from now on. Answers when nothing is open, or after ?wait= seconds."""
        wait, admission = _wait_in(http.query.get("wait", "0")), self.registry.admission
        if self._set_draining(True):
            log.info("a drain has begun: new requests get 503")
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(wait):
                while admission.is_draining and (admission.open or self._sockets):
                    await admission.change.wait()
        return json_response(self._drain_state())

    async def end_drain(self, http: web.Request) -> web.Response:
        """Requests are served again."""
        if self._set_draining(False):
            log.info("the drain has ended: requests are served again")
        return json_response(self._drain_state())

    def _set_draining(self, is_draining: bool) -> bool:
        """Whether this is a change."""
        admission = self.registry.admission
        if admission.is_draining == is_draining:
            return False
        admission.is_draining = is_draining
        admission.change.notify()
        for listener in self.registry.residency.listeners[:]:  # gRPC's health depends on it, too
            listener()
        return True

    def _drain_state(self) -> DrainState:
        admission = self.registry.admission
        return {
            "status": "draining" if admission.is_draining else "serving",
            "requests_open": admission.open,
            "websockets_open": len(self._sockets),
        }

    # WebSockets

    async def websocket(self, http: web.Request) -> web.StreamResponse:
        """Many requests on one connection, until it is closed."""

        def connection(socket: web.WebSocketResponse, delivered: Delivered) -> Connection:
            registry, strict = self.registry, self.registry.settings.strict
            choose, most = registry.choose, self._running.max_held
            return Connection(socket, http[CALLER], registry.admission, choose, strict, delivered, most)

        return await self._serve(http, connection)

    async def task_socket(self, http: web.Request) -> web.StreamResponse:
        """A chat with a task on one connection, until it is closed."""
        name = http.match_info["name"]
        begun = self.registry.of_task(
            name, {}, http[CALLER]
        )  # an unknown name is an error before the handshake
        if begun.memories is not None:
            http[HELD].enter_context(begun.memories.use())
        choose = partial(self.registry.of_task, name, before=begun)

        def conversation(socket: web.WebSocketResponse, delivered: Delivered) -> Conversation:
            return Conversation(socket, http[CALLER], choose, delivered, self._running.max_held)

        return await self._serve(http, conversation)

    async def _serve(
        self, http: web.Request, make: Callable[[web.WebSocketResponse, Delivered], ClientSocket]
    ) -> web.StreamResponse:
        settings, admission = self.registry.settings, self.registry.admission
        admission.require_no_drain(http[CALLER])
        socket = web.WebSocketResponse(
            heartbeat=settings.keep_alive,
            max_msg_size=settings.max_body,
            compress=False,  # a few compressed bytes could expand to a large message
        )
        route = f"{http.method} {http[ROUTE].path}"

        def delivered() -> contextlib.ExitStack:
            held = incoming.delivered()
            held.enter_context(admission.metrics.loop.during(route))
            return held

        await socket.prepare(http)
        self._sockets.add(socket)
        try:
            with self._connections.incoming(http, socket) as incoming:
                await make(socket, delivered).serve()
        finally:
            self._sockets.discard(socket)
            admission.change.notify()
        return socket

    async def close_sockets(self, app: web.Application) -> None:
        for socket in list(self._sockets):
            await socket.close(code=WSCloseCode.GOING_AWAY, message=b"the server stops")


def _wait_in(text: str) -> float:
    try:
        wait = float(text)
    except ValueError:
        wait = -1.0
    if 0 <= wait <= LONGEST_WAIT:  # NaN is not
        return wait
    raise wrong("wait", text[:100], f"a number of seconds from 0 to {LONGEST_WAIT:g}")
