"""Handlers that load and unload models: our own paths and those of other servers; Ollama's keep_alive."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator

import orjson
from aiohttp import web

from llama_srb.dialects import llamacpp, ollama, textgen
from llama_srb.dialects.common.fields import text_of
from llama_srb.engine.exchange import EngineError
from llama_srb.http.handlers.info import Info
from llama_srb.http.middleware import json_response, send_pieces
from llama_srb.http.request_keys import BODY, CALLER, ROUTE
from llama_srb.http.streaming import EVENT_STREAM, PAUSE, STREAM_HEADERS
from llama_srb.models.residency import ModelBusy
from llama_srb.request.values import RequestError
from llama_srb.serving.context import RequestContext
from llama_srb.serving.model_loads import ModelLoads
from llama_srb.serving.model_registry import ModelRegistry

SUCCESS: llamacpp.Success = {"success": True}


class Loads:
    """Handlers of routes.py and foreign.py about loads."""

    def __init__(self, registry: ModelRegistry, info: Info) -> None:
        self._loads, self._bodies, self._info = ModelLoads(registry), registry.bodies, info
        self._allowed, self._pause = registry.allowed, registry.settings.keep_alive

    # Ours

    async def load_model(self, http: web.Request) -> web.Response:
        """Waits until a model is loaded; answers with its entry of /v1/models."""
        name, caller = http.match_info["name"], http[CALLER]
        await self._loads.load(self._loads.to_load(name, caller))
        facts = self._loads.to_load(name, caller)  # a reload may have replaced it
        return json_response(self._info.entry(facts))

    async def unload_model(self, http: web.Request) -> web.Response:
        """Waits until a model is unloaded; answers with its entry of /v1/models."""
        facts = self._loads.to_unload(http.match_info["name"], http[CALLER])
        await self._loads.unload(facts)
        return json_response(self._info.entry(facts))

    # llama-server's router

    async def router_load(self, http: web.Request) -> web.Response:
        """Begins to load a model, and answers at once."""
        body = await self._bodies.read(http[BODY])
        facts = self._loads.to_load(text_of(body, "model"), http[CALLER])
        if self._loads.is_loaded(facts):
            raise RequestError("model is already running", param="model")
        self._loads.begin_load(facts)
        return json_response(SUCCESS)

    async def router_unload(self, http: web.Request) -> web.Response:
        """Begins to unload a model, and answers at once."""
        body = await self._bodies.read(http[BODY])
        facts = self._loads.to_unload(text_of(body, "model"), http[CALLER])
        if not self._loads.is_loaded(facts):
            raise RequestError("model is not running", param="model")
        self._loads.begin_unload(facts)
        return json_response(SUCCESS)

    async def models_sse(self, http: web.Request) -> web.StreamResponse:
        """Events about loads and unloads, until the client leaves."""
        response = web.StreamResponse(headers={"Content-Type": EVENT_STREAM, **STREAM_HEADERS})
        with self._loads.watched(http[CALLER]) as events, contextlib.suppress(ConnectionError):
            frames = (PAUSE if one is None else _frame(one) async for one in events.until_end(self._pause))
            await send_pieces(http, response, frames)
        return response

    async def end_streams(self, app: web.Application) -> None:
        self._loads.end_watches()

    # TabbyAPI, text-generation-webui

    async def tabby_load(self, http: web.Request) -> web.StreamResponse:
        """Loads a model; the progress is a stream, whose last frame is the end."""
        body = await self._bodies.read(http[BODY])
        facts = self._loads.to_load(textgen.loaded_name(body), http[CALLER])
        response = web.StreamResponse(headers={"Content-Type": EVENT_STREAM, **STREAM_HEADERS})
        await response.prepare(http)
        with contextlib.suppress(ConnectionError):
            async with contextlib.aclosing(self._loads.progress_of(facts, self._pause)) as progress:
                try:
                    async for part in progress:
                        await response.write(PAUSE if part is None else _frame(textgen.load_step(part)))
                    await response.write(_frame(textgen.load_end(body)))
                except EngineError as error:
                    await response.write(_frame(textgen.load_failed(str(error))))
        return response

    async def webui_load(self, http: web.Request) -> web.Response:
        """Waits until a model is loaded."""
        body = await self._bodies.read(http[BODY])
        await self._loads.load(self._loads.to_load(textgen.loaded_name(body), http[CALLER]))
        return json_response("OK")

    async def unload_loaded(self, http: web.Request) -> web.Response:
        """Unloads a model; without a name all that are loaded and that the caller may use."""
        body = await self._bodies.read(http[BODY], may_be_empty=True)
        name, caller = textgen.loaded_name(body, ""), http[CALLER]
        found = [self._loads.to_unload(name, caller)] if name else self._allowed(caller)
        await self._loads.unload(*(facts for facts in found if self._loads.is_loaded(facts)))
        return json_response(None)


def _frame(data: object) -> bytes:
    return b"data: %b\n\n" % orjson.dumps(data)


# Ollama's keep_alive


def stay_of(
    http: web.Request, registry: ModelRegistry, context: RequestContext
) -> tuple[float | None, RequestContext]:
    """How long the model stays after this request, None for no change; and the request with its warning.

    Where no key is needed, only requests that generate nothing keep a model for ever or unload it: clients
    such as SillyTavern send keep_alive with each request. A server of one model keeps it, unless it has
    unload_after.
    """
    path, unload_after = http[ROUTE].path, context.facts.settings.unload_after
    if http[ROUTE].dialect != "ollama" or not (registry.are_several or unload_after is not None):
        return None, context
    grant = context.caller.grant
    is_admin = ollama.only_loads(path, context.body) if grant is None else grant.is_admin
    stay, warning = ollama.stay_of(ollama.stay_asked(context.body), unload_after, is_admin=is_admin)
    if warning is None:
        return stay, context
    body = {name: value for name, value in context.body.items() if name != "keep_alive"}
    return stay, dataclasses.replace(context.warned(warning), body=body)


def unloads(http: web.Request, context: RequestContext, stay: float | None) -> bool:
    """Whether the request only unloads its model."""
    return stay == 0 and ollama.only_loads(http[ROUTE].path, context.body)


async def unloaded(http: web.Request, registry: ModelRegistry, context: RequestContext) -> web.Response:
    """Unloads a model, as soon as it has no requests."""
    try:
        await registry.residency.unload(context.facts.served)
    except ModelBusy:
        registry.residency.keep(context.facts.served, 0.0)
    return json_response(ollama.unloaded(http[ROUTE].path, context.info))


@contextlib.contextmanager
def kept(registry: ModelRegistry, context: RequestContext, stay: float | None) -> Iterator[None]:
    """After the block the model stays so long."""
    try:
        yield
    finally:
        if stay is not None:
            registry.residency.keep(context.facts.served, stay)
