"""The ingress: reads a request once, calls a replica by its handle, and passes the answer on as bytes."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import AsyncIterable, Awaitable, Callable, Iterable, Mapping
from typing import Any

import orjson
from ray.exceptions import RayError
from ray.serve.exceptions import RayServeException, RequestCancelledError
from ray.serve.handle import DeploymentHandle

from llama_srb import config
from llama_srb.background import begin
from llama_srb.dialects.openai import error_body
from llama_srb.ray.bodies import Bodies, ClientLeft, Message, Receive
from llama_srb.ray.call import (
    HOP_BY_HOP,
    WORKER,
    Call,
    Head,
    id_of,
    parsed,
    prompt_of,
    refusal,
    texts,
    without,
)
from llama_srb.request.values import RequestError
from llama_srb.serving.bodies import without_stalling

LOST, LOST_CODE = "the replica that had this request is gone; send it again", "replica_lost"
FAULTS = (RayError, RayServeException)
TRY_AGAIN_LATER = 1013  # a WebSocket's code

Send = Callable[[Message], Awaitable[None]]


class Ingress:
    """What Ray Serve calls for each connection. servers: the handle of the replicas, with these settings."""

    def __init__(self, servers: DeploymentHandle, settings: Mapping[str, Any]) -> None:
        self._servers = servers
        self._bodies = Bodies(config.load(settings))
        self._answer = servers.options(method_name="answer", stream=True)
        self._socket = servers.options(method_name="socket", stream=True)
        self._say = servers.options(method_name="say")

    def __serve_build_asgi_app__(self) -> Callable[[Message, Receive, Send], Awaitable[None]]:
        """Ray calls it. The result is a function because uvicorn takes a method for ASGI 2."""
        kinds = {"http": self._http, "websocket": self._websocket, "lifespan": _lifespan}

        async def asgi(scope: Message, receive: Receive, send: Send) -> None:
            await kinds[scope["type"]](scope, receive, send)

        return asgi

    async def _asked(self, method: str, **given: Any) -> list[str]:
        """What all replicas say to a question; one that is lost says nothing."""
        try:
            answers = await self._servers.broadcast(method, **given).results_async(return_exceptions=True)
        except FAULTS:
            return []  # there is no replica
        return sorted(one for one in answers if isinstance(one, str))

    # HTTP

    async def _http(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["path"] == "/w":
            listed = orjson.dumps({"workers": await self._asked("named")})
            await _pass([Head(200, [("Content-Type", "application/json")]), listed], send)
            return
        with contextlib.ExitStack() as held:
            try:
                await self._called(scope, receive, send, held)
            except RequestError as error:
                wait = [("Retry-After", str(error.retry_after))] if error.retry_after else []
                await _pass(refusal(error.status, error.message, str(error.code), wait), send)
            except ClientLeft:
                pass

    async def _called(self, scope: Message, receive: Receive, send: Send, held: contextlib.ExitStack) -> None:
        """Calls a replica, and passes its answer on. RequestError, ClientLeft."""
        headers = texts(scope["headers"])
        if self._bodies.are_read(headers):
            body = await self._bodies.read(headers, receive, held)
        else:  # the server says what it says to anybody without a key, before it would read a body
            scope, body = {**scope, "headers": [one for one in scope["headers"] if not _is_length(one)]}, b""
        fields, prompt = dict[str, Any](), ""
        if scope["method"] == "POST":
            fields, prompt = await without_stalling(len(body), _read, body)
        call, replica = _call(scope, body, prompt)
        if replica is None and (id := id_of(call.target, fields)):
            replica = next(iter(await self._asked("has", id=id)), None)
        # Ray's router reads the prompt of each positional argument, and fails at one without text.
        by_prompt, other = ((call,), {}) if call.prompt else ((), {"call": call})
        answer = self._answer.remote(*by_prompt, **other, replica=replica)
        leaving = begin(_until_left(receive, answer), "a client that leaves")
        try:
            await _pass_on(answer, send)
        finally:
            leaving.cancel()
            answer.cancel()

    # WebSockets

    async def _websocket(self, scope: Message, receive: Receive, send: Send) -> None:
        await receive()  # websocket.connect
        call, replica = _call(scope, b"", "")
        id = secrets.token_hex(16)
        messages = self._socket.remote(call=call, id=id, replica=replica)
        close: Message = {"type": "websocket.close", "code": TRY_AGAIN_LATER, "reason": LOST}
        reader: asyncio.Task[None] | None = None
        try:
            async for message in messages:
                if reader is None:  # the first message is the replica's name
                    await send({"type": "websocket.accept"})
                    reader = begin(self._read(receive, id, message, messages), "a client's messages")
                elif isinstance(message, int):  # the last one is the server's code
                    close = {"type": "websocket.close", "code": message}
                else:
                    await send({"type": "websocket.send", _kind(message): message})
        except RequestCancelledError:
            return  # the client has left
        except FAULTS:
            pass
        finally:
            messages.cancel()
            if reader is not None:
                reader.cancel()
        await send(close)

    async def _read(self, receive: Receive, id: str, replica: str, messages: Any) -> None:
        """Passes a client's messages to its replica, until it leaves."""
        while (message := await receive())["type"] != "websocket.disconnect":
            data = message.get("text")
            data = message["bytes"] if data is None else data
            with contextlib.suppress(*FAULTS):  # `messages` ends with the same fault
                await self._say.remote(id=id, message=data, replica=replica)
        messages.cancel()


def _read(body: bytes) -> tuple[dict[str, Any], str]:
    """The fields of a body, and the text of them that the router compares."""
    fields = parsed(body)
    return fields, prompt_of(fields)


def _call(scope: Message, body: bytes, prompt: str) -> tuple[Call, str | None]:
    """The call, and the replica that its path names."""
    path = scope.get("raw_path") or scope["path"].encode()
    parts = (path.partition(b"?")[0], scope["query_string"])
    target = b"?".join(filter(None, parts)).decode("latin-1")
    if named := WORKER.match(target):
        target = target[named.end() :]
    headers = without(HOP_BY_HOP, texts(scope["headers"]))
    return Call(scope.get("method", "GET"), target, headers, body, prompt), named and named[1]


def _is_length(header: tuple[bytes, bytes]) -> bool:
    return header[0].lower() == b"content-length"


async def _until_left(receive: Receive, answer: Any) -> None:
    """Ends the call when the client leaves; the replica then closes its connection to the server."""
    while (await receive())["type"] != "http.disconnect":
        pass
    answer.cancel()


async def _pass(parts: Iterable[Head | bytes], send: Send) -> None:
    """Sends an answer that is made here, or its end."""
    for part in parts:
        await _send(part, send)
    await send({"type": "http.response.body", "body": b""})


async def _pass_on(answer: AsyncIterable[Head | bytes], send: Send) -> None:
    """Sends a replica's answer. When the replica is lost it ends with an error, or the connection breaks."""
    head: Head | None = None
    try:
        async for part in answer:
            head = part if isinstance(part, Head) else head
            await _send(part, send)
        await _pass((), send)
    except RequestCancelledError:
        return  # the client has left
    except FAULTS:
        if head is None:
            await _pass(refusal(503, LOST, LOST_CODE, [("Retry-After", "1")]), send)
        elif head.is_event_stream:
            await _pass([_last_event()], send)
        else:
            raise


async def _send(part: Head | bytes, send: Send) -> None:
    if isinstance(part, Head):
        headers = [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in part.headers]
        await send({"type": "http.response.start", "status": part.status, "headers": headers})
    else:
        await send({"type": "http.response.body", "body": part, "more_body": True})


def _last_event() -> bytes:
    """An event that is our error and OpenAI's. The empty line ends an event that came in part."""
    ours = {"event": "error", "code": LOST_CODE, "message": LOST}
    theirs = error_body(LOST, code=LOST_CODE, is_clients=False)
    return b"\n\ndata: " + orjson.dumps({**ours, **theirs}) + b"\n\n"


def _kind(message: str | bytes) -> str:
    return "text" if isinstance(message, str) else "bytes"


async def _lifespan(scope: Message, receive: Receive, send: Send) -> None:
    for step in ("startup", "shutdown"):
        await receive()
        await send({"type": f"lifespan.{step}.complete"})
