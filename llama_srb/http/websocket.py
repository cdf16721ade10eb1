"""A WebSocket: several requests on one connection, each with an id that the client chooses.

Knows aiohttp's socket and admission; dialects/messages.py knows the form of messages. One task reads, and
each request has one task that writes. All tasks end with the connection, and their generations with them.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from aiohttp import WSCloseCode, WSMsgType, web

from llama_srb.background import begin
from llama_srb.dialects import events, messages
from llama_srb.dialects.messages import Command
from llama_srb.engine.events import Error, Start
from llama_srb.engine.exchange import CommandRefused, EngineUnavailable, Exchange
from llama_srb.engine.ranking import ranking
from llama_srb.http.auth.caller import Caller
from llama_srb.http.handlers.chosen import Chosen
from llama_srb.http.reservations import Admission, Reservation
from llama_srb.request.fields import CompletionRequest
from llama_srb.request.parse import extension_from
from llama_srb.request.values import RequestError, whole

log = logging.getLogger(__name__)

MAX_RUNNING = 256  # requests of one connection
MAX_EXTENDING = 256  # extends of one connection that wait for the engine's answer
MAX_NAMES = 4096  # ids of ended requests, which `continue` may name
SLICE = 0.005  # seconds of reading commands between two runs of the event loop
CLOSE_GRACE = 5.0  # seconds for the client to read the last events after its key has ended
MAX_REASON = 123  # bytes of text in a close frame (RFC 6455)

Json: TypeAlias = Mapping[str, Any]


@dataclass(slots=True, eq=False)
class _Running:
    """A request. It has no generation while its model is loaded and asked whether it knows tools."""

    chosen: Chosen
    request: CompletionRequest
    reservation: Reservation
    generation: Exchange | None = None
    _cancelled: list[int | None] = field(default_factory=list)  # before there is a generation

    @property
    def n(self) -> int:
        return self.request.candidates if self.generation is None else self.generation.n

    def begin(self) -> Exchange:
        """Makes the generation, which is sent when its block is entered."""
        self.generation = generation = self.reservation.generate(self.request)
        generation.shows_loading = True
        for index in self._cancelled:
            generation.cancel(index)
        return generation

    def cancel(self, index: int | None) -> None:
        if self.generation is None:
            self._cancelled.append(index)
        else:
            self.generation.cancel(index)


class Connection:
    """One client's connection.

    choose: finds the model of a body. delivered() is called for each message and returns the message's slot,
    which is held until its request has ended. max_held: tokens and alternatives of candidates that a request
    may hold back.
    """

    def __init__(
        self,
        socket: web.WebSocketResponse,
        caller: Caller,
        admission: Admission,
        choose: Callable[[Json, Caller], Chosen],
        strict: bool = False,
        delivered: Callable[[], contextlib.ExitStack] = contextlib.ExitStack,
        max_held: int | None = None,
    ) -> None:
        self._socket, self._admission, self._delivered = socket, admission, delivered
        self._max_held = max_held
        self._writing = asyncio.Lock()
        self._choose, self._strict = choose, strict
        self._running: dict[str, _Running] = {}  # by the client's id
        self._names: dict[str, str] = {}  # the client's id → the generation's id
        self._tasks: set[asyncio.Task[None]] = set()
        self._closing: asyncio.Task[None] | None = None
        self._caller, self._session = caller, caller.session

    async def serve(self) -> None:
        """Serves until the client leaves, its key ends, or the server stops."""
        if self._session is not None:
            self._session.add(self, self._end)
        try:
            since = time.perf_counter()
            async for message in self._socket:
                if message.type in (WSMsgType.TEXT, WSMsgType.BINARY):
                    with self._delivered() as held:
                        await self._handle(message.data, held)
                if time.perf_counter() - since > SLICE:  # reading buffered messages does not run the loop
                    await asyncio.sleep(0)
                    since = time.perf_counter()
        finally:
            if self._session is not None:
                self._session.discard(self)
            for task in self._tasks:
                task.cancel()
            if rest := self._tasks | ({self._closing} if self._closing else set()):
                await asyncio.wait(rest)

    def _end(self, refusal: RequestError) -> None:
        """The key has ended: closes the socket. The session ends the requests."""
        self._closing = begin(self._close(refusal), "websocket closes")

    async def _close(self, refusal: RequestError) -> None:
        """Closes the socket after the last events; a client that does not read them in time is cut off."""
        try:
            async with asyncio.timeout(CLOSE_GRACE):
                while self._tasks:
                    await asyncio.wait(set(self._tasks))
                await self._send(self._refused(None, refusal))
                reason = refusal.message.encode()[:MAX_REASON].decode(errors="ignore").encode()
                await self._socket.close(code=WSCloseCode.POLICY_VIOLATION, message=reason)
        except TimeoutError:
            log.warning("a WebSocket's client has not read its last events in %g s", CLOSE_GRACE)
            self._caller.hang_up()

    async def _handle(self, data: str | bytes, held: contextlib.ExitStack) -> None:
        command = None
        self._caller = self._caller.now  # its key's limits may have changed
        try:
            command = messages.parse(data)
            self._run(command, held)
        except (RequestError, EngineUnavailable) as error:
            await self._send(self._refused(command, error))

    def _refused(self, command: Command | None, error: RequestError | EngineUnavailable, op: str = "") -> str:
        if isinstance(error, RequestError):
            why: dict[str, Any] = {"message": error.message, "param": error.param}
            why |= {"code": error.code} if error.code else {}
        else:
            why = {"message": str(error), "code": "unavailable"}
        if command is None:
            return messages.error(**why)
        return messages.error(id=command.id, op=command.op if self._runs(command) else op, **why)

    def _run(self, command: Command, held: contextlib.ExitStack) -> None:
        match command.op:
            case "generate":
                self._start(command, held)
            case "cancel":
                running = self._running_of(command)
                running.cancel(_index(command.body, running.n))
            case "extend":
                running = self._running_of(command)
                if len(self._tasks) >= MAX_RUNNING + MAX_EXTENDING:
                    raise RequestError("too many extends wait for an answer", code="queue_full")
                self._spawn(self._extend(command, running))

    def _runs(self, command: Command) -> bool:
        return command.id in self._running

    def _running_of(self, command: Command) -> _Running:
        if (running := self._running.get(command.id)) is None:
            raise RequestError(f"no request {command.id} is running", param="id")
        return running

    def _start(self, command: Command, held: contextlib.ExitStack) -> None:
        if self._runs(command):
            raise RequestError(f"request {command.id} is running; another one needs another id", param="id")
        if len(self._running) >= MAX_RUNNING:
            raise RequestError(f"{MAX_RUNNING} requests are running, which is the maximum", param="id")
        chosen = self._choose(self._with_own_id(command.body), self._caller)
        request = chosen.checked(events.parse(chosen.body, chosen.defaults))
        # reserved here, not in the task: more commands may be in the same packet
        running = _Running(chosen, request, held.enter_context(chosen.reserve()))
        if not chosen.facts.tools.may_change(request):
            running.begin()
        self._running[command.id] = running
        kept, task = held.pop_all(), self._spawn(self._generate(command.id, running))
        task.add_done_callback(lambda _: kept.close())  # also if it was cancelled before it ran

    def _with_own_id(self, body: Json) -> Json:
        """Replaces the client's id in `continue` by the generation's."""
        named = body.get("continue")
        if not isinstance(named, dict) or named.get("id") not in self._names:
            return body
        return {**body, "continue": named | {"id": self._names[named["id"]]}}

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = begin(work, "websocket")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _generate(self, id: str, running: _Running) -> None:
        try:
            if running.generation is None:
                tools, command = running.chosen.facts.tools, running.reservation.command
                running.request = await tools.for_request(running.request, command)
            await self._send_all(id, running.request, running.generation or running.begin())
        except EngineUnavailable as error:
            await self._send(messages.error(str(error), id=id, code="unavailable"))
        except RequestError as error:
            await self._send(messages.error(error.message, id=id, param=error.param))
        except Exception:
            log.exception("request %s", running.generation.id if running.generation else "without an id")
            message = "internal error; the server's log has more"
            await self._send(messages.error(message, id=id, code="internal_error"))
        finally:
            del self._running[id]

    async def _send_all(self, id: str, request: CompletionRequest, generation: Exchange) -> None:
        rank = ranking(request, self._max_held)
        async with generation:
            async for batch in generation:
                self._remember(id, batch)
                ranked = await rank(batch)
                for text in messages.render(id, ranked, request.warnings):
                    await self._send(text)
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
            running.chosen.facts.require_room(generation, extension)  # n includes extends sent before
            if await self._admission.extend(generation, extension, self._caller) is None:
                raise RequestError(f"request {command.id} has just ended", param="id")
        except RequestError as error:
            await self._send(self._refused(command, error, op="extend"))
        except CommandRefused as refused:
            reason = RequestError(refused.error.message, param=refused.error.param, code=refused.error.code)
            await self._send(self._refused(command, reason, op="extend"))

    async def _send(self, text: str) -> None:
        """Sends a text, waiting for a slow reader. That the client has left is noticed by serve()."""
        async with self._writing:  # without it each request would buffer 64 KiB before it waits
            with contextlib.suppress(ConnectionError):
                await self._socket.send_str(text)


def _index(body: Json, n: int) -> int | None:
    return None if body.get("index") is None else whole("index", body["index"], 0, n - 1)
