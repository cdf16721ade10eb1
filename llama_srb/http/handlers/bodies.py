"""Parses bodies without blocking other requests while a long one is parsed."""

from __future__ import annotations

import asyncio
import contextlib
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
    """Parses bodies as JSON. Large ones are parsed one at a time."""

    def __init__(self) -> None:
        self.one_at_a_time = asyncio.Lock()

    async def read(self, http: web.Request, *, may_be_empty: bool = False) -> dict[str, Any]:
        """The body as a JSON object; RequestError if it is none. may_be_empty: then it has no fields."""
        data = http[BODY]
        if may_be_empty and not data.strip():
            return {}
        async with self.one_at_a_time if len(data) > LARGE else contextlib.nullcontext():
            return await without_stalling(len(data), parse_body, data)


async def without_stalling(size: int, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Calls work(), whose cost grows with `size`, in bytes: from some size on in a thread.

    It may hold the interpreter for 50 ms at a time at most, so that the event loop runs meanwhile.
    """
    if size < MANY_VALUES:
        return work(*args, **kwargs)
    return await asyncio.to_thread(work, *args, **kwargs)


async def parsed(http: web.Request, parse: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Calls parse() on the body of a request, while the event loop runs."""
    return await without_stalling(len(http[BODY]), parse, *args, **kwargs)


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
