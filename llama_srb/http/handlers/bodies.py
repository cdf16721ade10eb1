"""What a request's body says, read so that nobody else waits for a long one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

from aiohttp import web

from llama_srb.http.connections import BODY, LARGE
from llama_srb.request.parse import parse_body

P = ParamSpec("P")
T = TypeVar("T")

MANY = 64 << 10  # bytes of a body: it may have thousands of values


class Bodies:
    """Large ones are read one after the other; between two of them whoever else is ready has a turn."""

    def __init__(self) -> None:
        self.in_turn = asyncio.Lock()

    async def read(self, http: web.Request) -> dict[str, Any]:
        """RequestError when it is no JSON object."""
        data = http[BODY]
        if len(data) <= LARGE:
            return parse_body(data)
        async with self.in_turn:
            return parse_body(data)


async def parsed(http: web.Request, parse: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """What a body asks for; the body of MANY fields takes tenths of a second, so a thread reads it."""
    if len(http[BODY]) < MANY:
        return parse(*args, **kwargs)
    return await asyncio.to_thread(parse, *args, **kwargs)


def path_of(http: web.Request) -> str:
    """The path of the route at hand."""
    resource = http.match_info.route.resource
    assert resource is not None
    return resource.canonical
