"""The calls of the gRPC API: from a message to a generation and its events, as the HTTP handlers do it.

Keys, models, reservations and counts are those of HTTP. All methods are registered as streams of both sides,
which is the same on the wire: so a key is checked before the message is read.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, ParamSpec, TypeAlias, TypeVar
from urllib.parse import unquote

import grpc

from llama_srb import threads
from llama_srb.dialects import embeddings, events
from llama_srb.dialects.common.response_types import Noted, noted
from llama_srb.dialects.openai import chat
from llama_srb.engine.events import Done, Error
from llama_srb.grpc import messages
from llama_srb.request.fields import CompletionRequest
from llama_srb.request.parse import Defaults
from llama_srb.request.values import RequestError
from llama_srb.serving.bodies import without_stalling
from llama_srb.serving.context import RequestContext
from llama_srb.serving.faults import INTERNAL, Fault, fault_in, fault_of
from llama_srb.serving.generation import generation_of
from llama_srb.serving.keys.access import key_in
from llama_srb.serving.keys.caller import Caller, priority_of
from llama_srb.serving.keys.scopes import CHAT, COMPLETE, EMBED, Scopes
from llama_srb.serving.observe.logs import log_line, log_summary, name_request
from llama_srb.serving.recall import recalled_chunks
from llama_srb.serving.running import Work, summary_of, unranked
from llama_srb.serving.service import Service

log = logging.getLogger("llama_srb.server")  # this name is documented

Context: TypeAlias = Any  # grpc.aio.ServicerContext, whose type parameters are of no use here
P = ParamSpec("P")
T = TypeVar("T")
Parse: TypeAlias = Callable[[Mapping[str, Any], Defaults], CompletionRequest]

CODES: Mapping[int, grpc.StatusCode] = {  # by HTTP status
    400: grpc.StatusCode.INVALID_ARGUMENT,
    401: grpc.StatusCode.UNAUTHENTICATED,
    403: grpc.StatusCode.PERMISSION_DENIED,
    404: grpc.StatusCode.NOT_FOUND,
    408: grpc.StatusCode.DEADLINE_EXCEEDED,
    409: grpc.StatusCode.FAILED_PRECONDITION,
    413: grpc.StatusCode.RESOURCE_EXHAUSTED,
    429: grpc.StatusCode.RESOURCE_EXHAUSTED,
    503: grpc.StatusCode.UNAVAILABLE,
}


class _Failed(Exception):
    """The call ends with this fault."""

    def __init__(self, fault: Fault) -> None:
        super().__init__(fault.message)
        self.fault = fault


@dataclass(slots=True)
class Call:
    """One call of an allowed caller. held: what it holds until it is over. size: of its message, in bytes."""

    method: str
    context: Context
    caller: Caller
    held: contextlib.ExitStack
    size: int = 0

    async def parsed(self, parse: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Calls parse() on the message, while the event loop runs."""
        return await without_stalling(self.size, parse, *args, **kwargs)


class Calls:
    """The methods of the service. max_held: tokens and alternatives that candidates may hold in memory."""

    def __init__(self, service: Service) -> None:
        self._settings, self._registry, self._access = service.settings, service.registry, service.access
        self._large, self._running = service.large, service.running

    def handler(self) -> grpc.GenericRpcHandler:
        """The handler of the service for a server."""
        rows: tuple[tuple[str, Scopes, Callable[[Call], Awaitable[None]]], ...] = (
            ("Complete", COMPLETE, self.complete),
            ("Chat", CHAT, self.chat),
            ("Embed", EMBED, self.embed),
        )
        return grpc.method_handlers_generic_handler(
            messages.SERVICE,
            {
                name: grpc.stream_stream_rpc_method_handler(
                    partial(self._answer, name, scopes, run),
                    response_serializer=lambda message: message.SerializeToString(),
                )
                for name, scopes, run in rows
            },
        )

    # The methods

    async def complete(self, call: Call) -> None:
        """n continuations of a prompt."""
        body = await self._read(call, messages.body_of)
        await self._generate(call, body, events.parse)

    async def chat(self, call: Call) -> None:
        """n answers to a chat."""
        body = await self._read(call, messages.chat_body)
        await self._generate(call, body, lambda body, defaults: chat.parse(body, defaults)[0])

    async def embed(self, call: Call) -> None:
        """Vectors of texts."""
        body = await self._read(call, messages.body_of)
        context = (await self._context(call, body)).refusing_adapter()
        request = await call.parsed(embeddings.parse, context.body, strict=self._settings.strict)
        answer = embeddings.Body(request, context.origin)
        with context.reserve() as reservation:
            generation = reservation.run("embed", **request.engine_fields())
            work = Work(generation, unranked, f"texts={len(request.input)}{reservation.about}")
            last, _ = await self._running.collected(work, answer)
            if isinstance(last, Error):
                raise _Failed(fault_in(last))
            assert isinstance(last, Done)
            warnings = (*context.warnings, *answer.warnings)
            await self._write(call, messages.embed_reply(answer.body(last), warnings))

    async def _generate(self, call: Call, body: dict[str, Any], parse: Parse) -> None:
        context = await self._context(call, body)
        request = await call.parsed(parse, context.body, context.defaults)
        with context.reserve() as reservation:
            most = self._running.max_held
            work, request = await generation_of(request, context, reservation, most, as_events=True)
            await self._stream(call, work, noted(request))

    async def _context(self, call: Call, body: dict[str, Any]) -> RequestContext:
        """The model of a body, or of the task that it names; it is in use until the call is over."""
        context = self._registry.choose(body, call.caller)
        await context.use(call.held)
        return context

    async def _stream(self, call: Call, work: Work, notes: Noted) -> None:
        """Sends the events of a generation, which ends with the call."""
        async with self._running.opened(work) as generation:
            async for batch in generation:
                last, ranked = batch[-1], await work.rank(batch)
                for message in messages.messages_of(ranked, notes):
                    await self._write(call, message)
                if ranked and isinstance(ranked[-1], Error):
                    last = ranked[-1]
                    break
        log_summary.set(log_summary.get() + summary_of(last))
        if isinstance(last, Error):
            raise _Failed(fault_in(last))

    async def _write(self, call: Call, message: Any) -> None:
        """Sends a message; waits for a reader that is slow, but not for one that has stalled."""
        seconds = self._settings.write_timeout
        try:
            async with asyncio.timeout(seconds):
                await call.context.write(message)
        except TimeoutError:
            message = f"the client has read nothing for {seconds:g} s (--write-timeout)"
            raise _Failed(Fault(503, message)) from None

    # Around each call

    async def _answer(
        self,
        name: str,
        scopes: Scopes,
        run: Callable[[Call], Awaitable[None]],
        _: object,
        context: Context,
    ) -> None:
        """Checks the caller, runs the method, and makes a status of its error; counts and logs the call."""
        began, outcome, path = time.monotonic(), "client left", f"/{messages.SERVICE}/{name}"
        metadata, metrics = text_of(context.invocation_metadata()), self._registry.admission.metrics
        log_summary.set("")
        recalled_chunks.set(())
        id = name_request(metadata.get("x-request-id", ""))
        try:
            await context.send_initial_metadata((("x-request-id", id),))
            with metrics.loop.during(f"gRPC {path}"):
                fault = await self._run(name, scopes, run, metadata, context)
            outcome = "OK" if fault is None else code_of(fault).name
            if fault is not None:
                await context.abort(code_of(fault), fault.message, trailing_of(fault))
        finally:
            metrics.answered(path, "grpc", outcome)
            log_line(f"gRPC {path}", outcome, time.monotonic() - began, id)

    async def _run(
        self,
        name: str,
        scopes: Scopes,
        run: Callable[[Call], Awaitable[None]],
        metadata: Mapping[str, str],
        context: Context,
    ) -> Fault | None:
        try:
            async with self._opened(name, scopes, metadata, context) as call:
                await run(call)
        except _Failed as error:
            return error.fault
        except Exception as error:
            if (fault := fault_of(error)) is None:
                log.exception("gRPC %s", name)
                return INTERNAL
            return fault
        return None

    @contextlib.asynccontextmanager
    async def _opened(
        self, name: str, scopes: Scopes, metadata: Mapping[str, str], context: Context
    ) -> AsyncIterator[Call]:
        """The call, if its caller is allowed to make it. Its caller's hang_up ends it with an error."""
        attributes = {"rpc.system": "grpc", "rpc.service": messages.SERVICE, "rpc.method": name}
        with (
            self._registry.traces.request(f"{messages.SERVICE}/{name}", metadata, attributes) as trace,
            contextlib.ExitStack() as held,
        ):
            scope = asyncio.timeout(None)

            def hang_up() -> None:
                with contextlib.suppress(RuntimeError):  # the call is over
                    scope.reschedule(asyncio.get_running_loop().time())

            caller = Caller(
                address=_address(context.peer()),
                hang_up=hang_up,
                priority=priority_of(metadata.get("priority", "")),
                dialect="grpc",
                trace=trace,
            )
            caller = held.enter_context(self._access.authorized(scopes, key_in(metadata), caller))
            threads.client.set(caller.client)
            try:
                async with scope:
                    yield Call(name, context, caller, held)
            except TimeoutError:
                message = f"more than {self._settings.max_unread} events are unread (--max-unread)"
                raise _Failed(Fault(429, message, code="reader_too_slow")) from None

    async def _read(self, call: Call, body_of: Callable[[Any], dict[str, Any]]) -> dict[str, Any]:
        """The message as a body; a large one holds a slot until the call is over."""
        seconds, name = self._settings.body_timeout, f"{call.method}Request"
        try:
            async with asyncio.timeout(seconds):
                data = await call.context.read()
        except TimeoutError:
            message = f"the message was not complete after {seconds:g} s (--body-timeout)"
            raise RequestError(message, status=408, code="body_timeout") from None
        if data is grpc.aio.EOF:
            raise RequestError(f"the call has no message; send a {name}")
        call.size = len(data)
        self._large.make_room(0, call.size, call.held, call.caller.client)
        async with self._registry.bodies.turn(call.size):
            return await call.parsed(lambda: body_of(messages.parsed(name, data)))


def code_of(fault: Fault) -> grpc.StatusCode:
    """The status of a call with this fault."""
    return CODES.get(fault.status, grpc.StatusCode.INTERNAL)


def trailing_of(fault: Fault) -> tuple[tuple[str, str], ...]:
    """What HTTP's error bodies have beside the message, as metadata."""
    given = {
        "error-code": fault.code,
        "error-param": fault.param,
        "retry-after": None if fault.retry_after is None else str(fault.retry_after),
    }
    return tuple((name, value) for name, value in given.items() if value)


def text_of(metadata: Any) -> Mapping[str, str]:
    """The metadata that is text."""
    return {name: value for name, value in metadata or () if isinstance(value, str)}


def _address(peer: str) -> str:
    """The address in gRPC's name of a peer: ipv4:127.0.0.1:50051, ipv6:[::1]:50051."""
    host = unquote(peer).partition(":")[2].rpartition(":")[0]
    return host.strip("[]")
