"""Several requests on one WebSocket, each with an id that the client chooses.

Knows admission; dialects/messages.py knows the form of messages. One task reads, and each request has one
task that writes. All tasks end with the connection, and their generations with them.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeAlias

from aiohttp import web

from llama_srb.dialects import events, messages
from llama_srb.dialects.common.response_types import noted
from llama_srb.dialects.messages import Command
from llama_srb.engine.events import Error, Start
from llama_srb.engine.exchange import CommandRefused, EngineUnavailable, Exchange
from llama_srb.http.websockets.client_socket import ClientSocket, Delivered
from llama_srb.request.fields import CompletionRequest
from llama_srb.request.parse import extension_from
from llama_srb.request.values import RequestError, whole
from llama_srb.serving.admission import Admission, Reservation
from llama_srb.serving.bodies import without_stalling
from llama_srb.serving.context import RequestContext
from llama_srb.serving.generation import is_ready, prepared, rank_of
from llama_srb.serving.keys.caller import Caller

log = logging.getLogger(__name__)

MAX_RUNNING = 256  # requests of one connection
MAX_EXTENDING = 256  # extends of one connection that wait for the engine's answer
MAX_NAMES = 4096  # ids of ended requests, which `continue` may name

Json: TypeAlias = Mapping[str, Any]


@dataclass(slots=True, eq=False)
class _Running:
    """A request. It has no generation while it is prepared: its model may be asked whether it knows tools."""

    context: RequestContext
    request: CompletionRequest
    reservation: Reservation
    generation: Exchange | None = None
    _cancelled: list[int | None] = field(default_factory=list)  # before there is a generation

    @property
    def n(self) -> int:
        return self.request.candidates if self.generation is None else self.generation.n

    def begin(self) -> Exchange:
        """Makes the generation, which is sent when its block is entered."""
        self.generation = generation = self.reservation.generate(self.request, shows_loading=True)
        for index in self._cancelled:
            generation.cancel(index)
        return generation

    def cancel(self, index: int | None) -> None:
        if self.generation is None:
            self._cancelled.append(index)
        else:
            self.generation.cancel(index)


class Connection(ClientSocket):
    """One client's connection.

    choose: finds the model of a body. max_held: tokens and alternatives of candidates that a request may hold
    back.
    """

    def __init__(
        self,
        socket: web.WebSocketResponse,
        caller: Caller,
        admission: Admission,
        choose: Callable[[Json, Caller], RequestContext],
        strict: bool = False,
        delivered: Delivered = contextlib.ExitStack,
        max_held: int | None = None,
    ) -> None:
        super().__init__(socket, caller, delivered)
        self._admission, self._max_held = admission, max_held
        self._choose, self._strict = choose, strict
        self._running: dict[str, _Running] = {}  # by the client's id
        self._names: dict[str, str] = {}  # the client's id → the generation's id

    def refusal(self, why: RequestError) -> str:
        return self._refused(None, why)

    async def handle(self, data: str | bytes, held: contextlib.ExitStack) -> None:
        command = None
        try:
            command = await without_stalling(len(data), messages.parse, data)
            await self._run(command, held, len(data))
        except (RequestError, EngineUnavailable) as error:
            await self.send(self._refused(command, error))

    def _refused(self, command: Command | None, error: RequestError | EngineUnavailable, op: str = "") -> str:
        if isinstance(error, RequestError):
            why: dict[str, Any] = {"message": error.message, "param": error.param}
            why |= {"code": error.code} if error.code else {}
        else:
            why = {"message": str(error), "code": "unavailable"}
        if command is None:
            return messages.error(**why)
        return messages.error(id=command.id, op=command.op if self._runs(command) else op, **why)

    async def _run(self, command: Command, held: contextlib.ExitStack, size: int) -> None:
        match command.op:
            case "generate":
                await self._start(command, held, size)
            case "cancel":
                running = self._running_of(command)
                running.cancel(_index(command.body, running.n))
            case "extend":
                running = self._running_of(command)
                if len(self.tasks) >= MAX_RUNNING + MAX_EXTENDING:
                    raise RequestError("too many extends wait for an answer", code="queue_full")
                self.spawn(self._extend(command, running))

    def _runs(self, command: Command) -> bool:
        return command.id in self._running

    def _running_of(self, command: Command) -> _Running:
        if (running := self._running.get(command.id)) is None:
            raise RequestError(f"no request {command.id} is running", param="id")
        return running

    async def _start(self, command: Command, held: contextlib.ExitStack, size: int) -> None:
        if self._runs(command):
            raise RequestError(f"request {command.id} is running; another one needs another id", param="id")
        if len(self._running) >= MAX_RUNNING:
            raise RequestError(f"{MAX_RUNNING} requests are running, which is the maximum", param="id")
        trace = held.enter_context(self.caller.trace.request())
        context = self._choose(self._with_own_id(command.body), self.caller.traced(trace))
        if context.memories is not None:
            held.enter_context(context.memories.use())
        request = await without_stalling(size, events.parse, context.body, context.defaults)
        context.check(request)
        # reserved here, not in the task: more commands may be in the same packet
        running = _Running(context, request, held.enter_context(context.reserve()))
        if is_ready(request, context):
            running.begin()
        self._running[command.id] = running
        kept, task = held.pop_all(), self.spawn(self._generate(command.id, running))
        task.add_done_callback(lambda _: kept.close())  # also if it was cancelled before it ran

    def _with_own_id(self, body: Json) -> Json:
        """Replaces the client's id in `continue` by the generation's."""
        named = body.get("continue")
        if not isinstance(named, dict) or named.get("id") not in self._names:
            return body
        return {**body, "continue": named | {"id": self._names[named["id"]]}}

    async def _generate(self, id: str, running: _Running) -> None:
        try:
            await self.attempt(self._answer(id, running), partial(messages.error, id=id))
        finally:
            del self._running[id]

    async def _answer(self, id: str, running: _Running) -> bool:
        if running.generation is None:
            running.request = await prepared(running.request, running.context, running.reservation)
        await self._send_all(id, running, running.generation or running.begin())
        return True

    async def _send_all(self, id: str, running: _Running, generation: Exchange) -> None:
        request = running.request
        rank, notes = rank_of(request, running.context, self._max_held, generation), noted(request)
        async with generation:
            async for batch in generation:
                self._remember(id, batch)
                ranked = await rank(batch)
                for text in messages.render(id, ranked, notes):
                    await self.send(text)
                if ranked and isinstance(ranked[-1], Error):
                    break

    def _remember(self, id: str, batch: list[Any]) -> None:
        if start := next((event for event in batch if isinstance(event, Start)), None):
            self._names[id] = start.id
            if len(self._names) > MAX_NAMES:
                del self._names[next(iter(self._names))]

    async def _extend(self, command: Command, running: _Running) -> None:
        try:
            if (generation := running.generation) is None:
                raise RequestError(f"request {command.id} has not begun: its model loads", param="id")
            extension = extension_from(command.body, strict=self._strict)
            running.context.facts.require_room(generation, extension)  # n includes extends sent before
            if await self._admission.extend(generation, extension, self.caller) is None:
                raise RequestError(f"request {command.id} has just ended", param="id")
        except RequestError as error:
            await self.send(self._refused(command, error, op="extend"))
        except CommandRefused as refused:
            reason = RequestError(refused.error.message, param=refused.error.param, code=refused.error.code)
            await self.send(self._refused(command, reason, op="extend"))


def _index(body: Json, n: int) -> int | None:
    return None if body.get("index") is None else whole("index", body["index"], 0, n - 1)
