"""Parses bodies without blocking other requests while a long one is parsed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, ParamSpec, TypeVar

from aiohttp import web

from llama_srb.http.connections import BODY, LARGE
from llama_srb.http.route import pattern_of
from llama_srb.request.parse import parse_body
from llama_srb.request.values import wrong

P = ParamSpec("P")
T = TypeVar("T")

MANY_VALUES = 64 << 10  # bytes of a body that may have thousands of values


class Bodies:
    """Parses bodies as JSON. Large ones are parsed one at a time, and the event loop runs between two."""

    def __init__(self) -> None:
        self.one_at_a_time = asyncio.Lock()

    async def read(self, http: web.Request) -> dict[str, Any]:
        """The body as a JSON object; RequestError if it is none."""
        data = http[BODY]
        if len(data) <= LARGE:
            return parse_body(data)
        async with self.one_at_a_time:
            return parse_body(data)


async def parsed(http: web.Request, parse: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Calls parse(); in a thread if the body may have thousands of values, which take tenths of a second."""
    if len(http[BODY]) < MANY_VALUES:
        return parse(*args, **kwargs)
    return await asyncio.to_thread(parse, *args, **kwargs)


def path_of(http: web.Request) -> str:
    """The path of the request's route."""
    pattern = pattern_of(http)
    assert pattern is not None
    return pattern


def name_in(body: Mapping[str, Any], fields: tuple[str, ...]) -> str | None:
    for field in fields:
        if (name := body.get(field)) is None:
            continue
        if not isinstance(name, str):
            raise wrong(field, name, "a text")
        return name
    return None


def with_adapter(body: Mapping[str, Any], adapter: int | None) -> Mapping[str, Any]:
    """The body with this adapter at scale 1, beside those that it names itself."""
    if adapter is None:
        return body
    others = body.get("lora") or []
    if not isinstance(others, list):
        return body  # its reader refuses it
    if any(isinstance(one, dict) and one.get("id") == adapter for one in others):
        return body
    return {**body, "lora": [{"id": adapter, "scale": 1.0}, *others]}
