"""The context of an HTTP request: its body is read, then its model is chosen."""

from __future__ import annotations

from typing import Any

from aiohttp import web

from llama_srb.http.request_keys import BODY, CALLER, HELD, ROUTE
from llama_srb.serving.context import RequestContext
from llama_srb.serving.model_registry import ModelRegistry


async def context_of(
    http: web.Request, registry: ModelRegistry, *, may_be_empty: bool = False
) -> RequestContext:
    """The context by the model that body or query name, else the default; it is in use from now on.

    may_be_empty: the body, which then has no fields.
    """
    list_as = http[ROUTE].list_as
    body: dict[str, Any] = {}
    if http.method == "POST":
        body = await registry.bodies.read(http[BODY], may_be_empty=may_be_empty, list_as=list_as)
    query, agent = http.query.get("model"), http.headers.get("User-Agent", "")
    context = registry.choose(body, http[CALLER], http[ROUTE].dialect, query, agent)
    await context.use(http[HELD])
    return context
