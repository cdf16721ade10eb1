"""WebSockets of a server in the test's process."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any

from aiohttp import ClientWebSocketResponse

from tests.support.served import Served

Told = list[dict[str, Any]]


@contextlib.asynccontextmanager
async def connected(served: Served, **headers: str) -> AsyncIterator[ClientWebSocketResponse]:
    async with served.http.ws_connect(served.url + "/v1/ws", headers=headers) as socket:
        yield socket


async def until(socket: ClientWebSocketResponse, last: Callable[[dict[str, Any]], bool]) -> Told:
    """Receives messages until `last` is true of one; returns them all."""
    told: Told = []
    while not told or not last(told[-1]):
        told.append(await socket.receive_json(timeout=10))
    return told


def event(name: str, **fields: Any) -> Callable[[dict[str, Any]], bool]:
    return lambda message: message["event"] == name and all(message.get(k) == v for k, v in fields.items())
