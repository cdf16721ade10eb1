"""The ingress: reads a request once, calls a replica by its handle, and passes the answer on as bytes."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import AsyncIterable, Awaitable, Callable, MutableMapping
from typing import Any

import orjson
from ray.exceptions import RayError
from ray.serve.exceptions import RayServeException, RequestCancelledError
from ray.serve.handle import DeploymentHandle

from llama_srb.background import begin
from llama_srb.dialects.openai import error_body
from llama_srb.http.ray.call import (
    HOP_BY_HOP,
    WORKER,
    Call,
    Head,
    Headers,
    id_of,
    parsed,
    prompt_of,
    refusal,
    without,
)

MAX_BODY = 64 << 20  # bytes; the most that --max-body may say
LOST = "the replica that had this request is gone; send it again"
SSE = "text/event-stream"
GOING_AWAY = 1001  # a WebSocket's code

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]


class Ingress:
    """What Ray Serve calls for each connection. servers: the handle of the replicas."""

    def __init__(self, servers: DeploymentHandle) -> None:
        self._servers = servers
        self._answer = servers.options(method_name="answer", stream=True)
        self._socket = servers.options(method_name="socket", stream=True)
        self._say = servers.options(method_name="say")

    def __serve_build_asgi_app__(self) -> Callable[[Message, Receive, Send], Awaitable[None]]:
        """Ray calls it. uvicorn takes a method for ASGI 2, so this is a function."""
        kinds = {"http": self._http, "websocket": self._websocket, "lifespan": _lifespan}

        async def asgi(scope: Message, receive: Receive, send: Send) -> None:
            await kinds[scope["type"]](scope, receive, send)

        return asgi

    # HTTP

    async def _http(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["path"] == "/w":
            names = await self._servers.broadcast("named").results_async(return_exceptions=True)
            listed = orjson.dumps({"workers": sorted(one for one in names if isinstance(one, str))})
            await _pass([Head(200, [("Content-Type", "application/json")]), listed], send)
            return
        body = await _body(receive)
        if body is None:
            await _pass(refusal(413, f"the body is larger than {MAX_BODY} bytes", "too_large"), send)
            return
        fields = parsed(body) if scope["method"] == "POST" else {}
        call, named = _call(scope, body, prompt_of(fields))
        replica = named or await self._owner(id_of(call.target, fields))
        args, more = ((call,), {}) if call.prompt else ((), {"call": call})  # what has no prompt, any may answer
        answer = self._answer.remote(*args, **more, replica=replica)
        leaving = begin(_until_left(receive, answer), "a client that leaves")
        try:
            await _pass_on(answer, send)
        except RequestCancelledError:
            pass  # the client has left
        finally:
            leaving.cancel()
            answer.cancel()

    async def _owner(self, id: str | None) -> str | None:
        """The replica that has made the request with this id."""
        if id is None:
            return None
        found = await self._servers.broadcast("has", id=id).results_async(return_exceptions=True)
        return next((one for one in found if isinstance(one, str)), None)

    # WebSockets

    async def _websocket(self, scope: Message, receive: Receive, send: Send) -> None:
        await receive()  # websocket.connect
        call, named = _call(scope, b"", "")
        id = secrets.token_hex(16)
        messages = self._socket.remote(call=call, id=id, replica=named)
        reader: asyncio.Task[None] | None = None
        try:
            async for message in messages:
                if reader is None:  # the first message is the replica's name
                    await send({"type": "websocket.accept"})
                    reader = begin(self._read(receive, id, message, messages), "a client's messages")
                else:
                    await send({"type": "websocket.send", _kind(message): message})
            await send({"type": "websocket.close", "code": GOING_AWAY, "reason": "the server has closed it"})
        except RequestCancelledError:
            pass  # the client has left
        except (RayError, RayServeException):
            await send({"type": "websocket.close", "code": GOING_AWAY, "reason": LOST})
        finally:
            if reader is not None:
                reader.cancel()
            messages.cancel()

    async def _read(self, receive: Receive, id: str, replica: str, messages: Any) -> None:
        """Passes a client's messages to its replica, until it leaves."""
        while (message := await receive())["type"] != "websocket.disconnect":
            data = message.get("text")
            with contextlib.suppress(RayError, RayServeException):  # then `messages` ends with the same error
                await self._say.remote(id=id, message=message["bytes"] if data is None else data, replica=replica)
        messages.cancel()


def _call(scope: Message, body: bytes, prompt: str) -> tuple[Call, str | None]:
    """The call, and the replica that its path names."""
    path = scope.get("raw_path") or scope["path"].encode()
    target = b"?".join(filter(None, (path.partition(b"?")[0], scope["query_string"]))).decode("latin-1")
    headers = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in scope["headers"]]
    if scope["type"] == "websocket":
        headers = [one for one in headers if not one[0].startswith("sec-websocket")]
    named = WORKER.match(target)
    target = target[named.end() :] if named else target
    headers = without(HOP_BY_HOP, headers)
    return Call(scope.get("method", "GET"), target, headers, body, prompt), named and named[1]


async def _body(receive: Receive) -> bytes | None:
    """The whole body; None if it is too large."""
    parts, size, is_more = [], 0, True
    while is_more:
        message = await receive()
        parts.append(message.get("body", b""))
        size += len(parts[-1])
        if size > MAX_BODY:
            return None
        is_more = message.get("more_body", False)
    return b"".join(parts)


async def _until_left(receive: Receive, answer: Any) -> None:
    """Ends the call when the client leaves; the replica then closes its connection to the server."""
    while (await receive())["type"] != "http.disconnect":
        pass
    answer.cancel()


async def _pass(parts: list[Head | bytes], send: Send) -> None:
    """Sends an answer that is made here."""
    for part in parts:
        await _send(part, send)
    await send({"type": "http.response.body", "body": b""})


async def _send(part: Head | bytes, send: Send) -> None:
    if isinstance(part, Head):
        headers = [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in part.headers]
        await send({"type": "http.response.start", "status": part.status, "headers": headers})
    else:
        await send({"type": "http.response.body", "body": part, "more_body": True})


async def _pass_on(answer: AsyncIterable[Head | bytes], send: Send) -> None:
    """Sends a replica's answer. When the replica is lost, the answer ends with an error, or is cut visibly."""
    head: Head | None = None
    try:
        async for part in answer:
            head = part if isinstance(part, Head) else head
            await _send(part, send)
        await send({"type": "http.response.body", "body": b""})
    except RequestCancelledError:
        raise
    except (RayError, RayServeException):
        if head is None:
            await _pass(refusal(503, LOST, "replica_lost", [("Retry-After", "1")]), send)
        elif dict((name.lower(), value) for name, value in head.headers)["content-type"].startswith(SSE):
            await _pass([_last_event()], send)
        else:
            raise  # the connection closes before the answer is complete


def _last_event() -> bytes:
    """An event that is our error and OpenAI's. The empty line ends an event that came in part."""
    error = {"event": "error", "code": "replica_lost", "message": LOST}
    return b"\n\ndata: " + orjson.dumps(error | error_body(LOST, code="replica_lost", is_clients=False)) + b"\n\n"


def _kind(message: str | bytes) -> str:
    return "text" if isinstance(message, str) else "bytes"


async def _lifespan(scope: Message, receive: Receive, send: Send) -> None:
    for step in ("startup", "shutdown"):
        await receive()
        await send({"type": f"lifespan.{step}.complete"})
