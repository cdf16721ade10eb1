"""WebSockets of a server in the test's process."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any

from aiohttp import ClientWebSocketResponse

from tests.support.served import Served
from tests.support.waiting import PATIENCE

Messages = list[dict[str, Any]]


@contextlib.asynccontextmanager
async def connected(
    served: Served, path: str = "/v1/ws", **headers: str
) -> AsyncIterator[ClientWebSocketResponse]:
    async with served.http.ws_connect(served.url + path, headers=headers) as socket:
        yield socket


async def until(socket: ClientWebSocketResponse, last: Callable[[dict[str, Any]], bool]) -> Messages:
    """Receives messages until `last` is true of one; returns them all."""
    messages: Messages = []
    while not messages or not last(messages[-1]):
        messages.append(await socket.receive_json(timeout=PATIENCE))
    return messages


def event(name: str, **fields: Any) -> Callable[[dict[str, Any]], bool]:
    return lambda message: message["event"] == name and all(message.get(k) == v for k, v in fields.items())
