"""When a key or a JWT ends, its streams, bodies and WebSockets end with it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import time
from collections.abc import AsyncIterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import aiohttp
import jwt
import pytest
from aiohttp import ClientWebSocketResponse, WSMsgType

from llama_srb.http.websockets import client_socket
from llama_srb.serving.keys import api_keys
from llama_srb.serving.keys.jwt import LEEWAY
from tests.support.served import SECRET, Served, Serving, bearer, key_file
from tests.support.sockets import connected, event, until
from tests.support.waiting import PATIENCE

SLOW = ("--endless", "--token-delay", "0.01")
GENERATE = {"op": "generate", "id": "a", "prompt": "x", "n": 2, "max_tokens": -1}
POLICY_VIOLATION = 1008
SOON = 2.0  # seconds until a key expires; longer than a request takes to begin


async def reread(caplog: pytest.LogCaptureFixture) -> None:
    """Makes the server read its keys again."""
    caplog.set_level("INFO")
    caplog.clear()
    os.kill(os.getpid(), signal.SIGHUP)
    async with asyncio.timeout(PATIENCE):
        while "SIGHUP: " not in caplog.text:  # noqa: ASYNC110 (nothing else tells)
            await asyncio.sleep(0.005)


async def rest(socket: ClientWebSocketResponse) -> tuple[list[dict[str, Any]], int | None]:
    """The messages until the server closes the socket, and the close code."""
    told = []
    while (message := await socket.receive(timeout=PATIENCE)).type == WSMsgType.TEXT:
        told.append(json.loads(message.data))
    assert message.type == WSMsgType.CLOSE
    return told, message.data


async def require_ended(
    socket: ClientWebSocketResponse, code: str = "invalid_api_key", why: str = ""
) -> None:
    """Its request ends with an error, then the server reports the reason, then it closes the socket."""
    told, close_code = await rest(socket)
    errors = [message for message in told if message["event"] == "error"]
    assert [(error["id"], error["code"]) for error in errors] == [("a", code), ("", code)]
    assert told[-1] is errors[-1]
    assert why in errors[-1]["message"]
    assert close_code == POLICY_VIOLATION


async def test_a_websocket_ends_with_its_revoked_key_and_those_of_others_go_on(
    serving: Serving, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = key_file(tmp_path / "keys", {"name": "old"}, {"name": "other"})
    served = await serving(*SLOW, api_key_file=str(file))
    async with connected(served, **bearer("old")) as old, connected(served, **bearer("other")) as other:
        for socket in (old, other):
            await socket.send_json(GENERATE)
            await until(socket, event("stream"))
        key_file(file, {"name": "other"})
        await reread(caplog)
        await require_ended(old, why="there is no such key")
        await until(other, event("stream"))
    await served.note("cancel")


async def test_an_idle_websocket_ends_too(
    serving: Serving, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = key_file(tmp_path / "keys", {"name": "old"})
    served = await serving(api_key_file=str(file))
    async with connected(served, **bearer("old")) as socket:
        api_keys.write(file, ())
        await reread(caplog)
        told, code = await rest(socket)
    assert ([message["code"] for message in told], code) == (["invalid_api_key"], POLICY_VIOLATION)


async def test_a_key_of_the_same_name_is_another_key(
    serving: Serving, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = key_file(tmp_path / "keys", {"name": "ann"})
    served = await serving(*SLOW, api_key_file=str(file))
    async with connected(served, **bearer("ann")) as socket:
        await socket.send_json(GENERATE)
        await until(socket, event("stream"))
        api_keys.write(file, [api_keys.Key(name="ann", hash=api_keys.hashed("another"))])
        await reread(caplog)
        await require_ended(socket)


async def test_a_websocket_ends_with_its_keys_scope(
    serving: Serving, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = key_file(tmp_path / "keys", {"name": "ann"})
    served = await serving(*SLOW, api_key_file=str(file))
    async with connected(served, **bearer("ann")) as socket:
        await socket.send_json(GENERATE)
        await until(socket, event("stream"))
        key_file(file, {"name": "ann", "scopes": ["chat"]})
        await reread(caplog)
        await require_ended(socket, "scope_missing", "complete")


async def test_new_limits_of_a_key_hold_for_its_open_websockets(
    serving: Serving, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = key_file(tmp_path / "keys", {"name": "ann"})
    served = await serving(*SLOW, api_key_file=str(file))
    async with connected(served, **bearer("ann")) as socket:
        await socket.send_json(GENERATE)
        await until(socket, event("stream"))
        key_file(file, {"name": "ann", "max_n": 1})
        await reread(caplog)
        await socket.send_json(GENERATE | {"id": "b"})
        error = (await until(socket, event("error")))[-1]
        assert (error["id"], error["param"]) == ("b", "n")
        await until(socket, event("stream", id="a"))


async def test_keys_that_cannot_be_read_end_nothing(
    serving: Serving, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = key_file(tmp_path / "keys", {"name": "ann"})
    served = await serving(*SLOW, api_key_file=str(file))
    async with connected(served, **bearer("ann")) as socket:
        file.write_text("{")
        await reread(caplog)
        await socket.send_json(GENERATE)
        await until(socket, event("stream"))


async def expiring_key(
    serving: Serving, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> tuple[Served, str]:
    file = key_file(tmp_path / "keys", {"name": "late"})
    served = await serving(*SLOW, api_key_file=str(file))
    key_file(file, {"name": "late", "expires": datetime.now(UTC) + timedelta(seconds=SOON)})
    await reread(caplog)
    return served, "late"


async def expiring_token(
    serving: Serving, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> tuple[Served, str]:
    """A JWT expires at a whole second, and LEEWAY later."""
    served = await serving(*SLOW, jwt_secret=SECRET)
    claims = {"sub": "ann", "exp": int(time.time() + SOON - LEEWAY) + 1, "scope": "complete"}
    return served, jwt.encode(claims, SECRET, "HS256")


@pytest.mark.parametrize("make", [expiring_key, expiring_token])
async def test_a_websocket_ends_when_its_key_or_token_expires(
    serving: Serving, tmp_path: Path, caplog: pytest.LogCaptureFixture, make: Any
) -> None:
    served, key = await make(serving, tmp_path, caplog)
    async with connected(served, **bearer(key)) as socket:
        await socket.send_json(GENERATE)
        await until(socket, event("stream"))
        await require_ended(socket, why="expired")


async def test_a_jwt_ends_with_the_key_that_signed_it(
    serving: Serving, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def signers(secret: str) -> None:
        key = jwt.utils.base64url_encode(secret.encode()).decode()
        row = {"kty": "oct", "alg": "HS256", "k": key}
        (tmp_path / "jwks").write_text(json.dumps({"keys": [row]}))

    signers(SECRET)
    served = await serving(*SLOW, jwt_keys=str(tmp_path / "jwks"))
    claims = {"sub": "ann", "exp": time.time() + 600, "scope": "complete"}
    async with connected(served, **bearer(jwt.encode(claims, SECRET, "HS256"))) as socket:
        await socket.send_json(GENERATE)
        await until(socket, event("stream"))
        signers(SECRET[::-1])
        await reread(caplog)
        await require_ended(socket)


# Over HTTP

ENDLESS = {"prompt": "x", "max_tokens": -1}
STREAMS: Mapping[str, dict[str, Any]] = {
    "/v1/events": {},
    "/v1/completions": {"stream": True},
    "/v1/chat/completions": {"stream": True, "prompt": None, "messages": [{"role": "user", "content": "x"}]},
    "/v1/responses": {"stream": True, "prompt": None, "input": "x"},
    "/completion": {"stream": True},
    "/api/extra/generate/stream": {"max_length": 10**6},
    "/api/generate": {"model": "storyteller"},
}


@contextlib.asynccontextmanager
async def posted(
    served: Served, key: str, path: str, body: Mapping[str, Any]
) -> AsyncIterator[aiohttp.ClientResponse]:
    url = served.url + path
    async with served.http.post(url, json={**ENDLESS, **body}, headers=bearer(key)) as response:
        yield response


@pytest.mark.parametrize("path", STREAMS)
async def test_a_stream_of_a_revoked_key_ends_with_an_error(
    serving: Serving, tmp_path: Path, caplog: pytest.LogCaptureFixture, path: str
) -> None:
    file = key_file(tmp_path / "keys", {"name": "ann"})
    served = await serving(*SLOW, api_key_file=str(file))
    async with posted(served, "ann", path, STREAMS[path]) as response:
        await response.content.readany()
        api_keys.write(file, ())
        await reread(caplog)
        async with asyncio.timeout(PATIENCE):
            end = (await response.read()).decode()[-400:]
    assert "there is no such key" in end
    assert "error" in end.split("\n\n")[-2 if path != "/api/generate" else 0]
    await served.note("cancel")


@pytest.mark.parametrize("prompt", ["x", ["x", "y"]])
async def test_an_unfinished_body_becomes_a_401(
    serving: Serving, tmp_path: Path, caplog: pytest.LogCaptureFixture, prompt: Any
) -> None:
    file = key_file(tmp_path / "keys", {"name": "ann"})
    served = await serving(*SLOW, api_key_file=str(file))
    body = {**ENDLESS, "stream": False, "prompt": prompt}
    asked = asyncio.create_task(served.post(body, **bearer("ann")))
    await served.note("generate")
    api_keys.write(file, ())
    await reread(caplog)
    status, data = await asked
    assert (status, json.loads(data)["error"]["code"]) == (401, "invalid_api_key")


async def test_a_websocket_whose_client_reads_nothing_ends_too(
    serving: Serving, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_socket, "CLOSE_GRACE", 0.2)
    file = key_file(tmp_path / "keys", {"name": "ann"})
    served = await serving(*SLOW, api_key_file=str(file))
    async with connected(served, **bearer("ann")) as socket:
        socket._response.connection.protocol.pause_reading()  # type: ignore[union-attr]  # noqa: SLF001 (aiohttp has no other way)
        for id in "ab":  # more bytes than the sockets' buffers hold
            await socket.send_json(GENERATE | {"id": id, "prompt": "x" * 8_000_000, "echo": True})
        await served.note("generate", 2)
        await asyncio.sleep(0.5)  # until the engine's echo is being sent
        api_keys.write(file, ())
        await reread(caplog)
        await served.note("cancel")
        async with asyncio.timeout(PATIENCE):
            while "GET /v1/ws" not in caplog.text:  # noqa: ASYNC110 (the line is written once it is over)
                await asyncio.sleep(0.01)
    assert "client has not read its last events" in caplog.text
