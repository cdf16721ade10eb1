"""Handlers that load and unload models: our own paths and those of other servers; Ollama's keep_alive."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Iterator

import orjson
from aiohttp import web

from llama_srb.background import begin
from llama_srb.dialects import llamacpp, ollama, textgen
from llama_srb.dialects.common.fields import text_of
from llama_srb.engine.exchange import EngineError, EngineUnavailable
from llama_srb.http.handlers.info import Info
from llama_srb.http.middleware import json_response, send_pieces
from llama_srb.http.request_keys import BODY, CALLER, ROUTE
from llama_srb.http.streaming import EVENT_STREAM, PAUSE, STREAM_HEADERS
from llama_srb.models.residency import ModelBusy, ModelRemoved
from llama_srb.request.values import RequestError
from llama_srb.serving.context import RequestContext
from llama_srb.serving.keys.caller import Caller
from llama_srb.serving.model_facts import ModelFacts
from llama_srb.serving.model_registry import ModelRegistry

MAX_EVENTS = 1000  # that wait for a slow reader, who then gets no more
SUCCESS: llamacpp.Success = {"success": True}


class Loads:
    """Handlers of routes.py and foreign.py about loads."""

    def __init__(self, registry: ModelRegistry, info: Info) -> None:
        self.registry, self.residency, self._info = registry, registry.residency, info
        self._keep_alive = registry.settings.keep_alive
        self._streams: set[_ModelEvents] = set()

    # Ours

    async def load_model(self, http: web.Request) -> web.Response:
        """Waits until a model is loaded; answers with its entry of /v1/models."""
        name, caller = http.match_info["name"], http[CALLER]
        await self._load(self._to_load(name, caller))
        return json_response(self._info.entry(self._to_load(name, caller)))  # a reload may have replaced it

    async def unload_model(self, http: web.Request) -> web.Response:
        """Waits until a model is unloaded; answers with its entry of /v1/models."""
        facts = self._to_unload(http.match_info["name"], http[CALLER])
        await self.residency.unload(facts.served)
        return json_response(self._info.entry(facts))

    # llama-server's router

    async def router_load(self, http: web.Request) -> web.Response:
        """Begins to load a model, and answers at once."""
        body = await self.registry.bodies.read(http[BODY])
        facts = self._to_load(text_of(body, "model"), http[CALLER])
        if self._is_loaded(facts):
            raise RequestError("model is already running", param="model")
        begin(_outcome(self._until_loaded(facts)), f"load of {facts.name}")
        return json_response(SUCCESS)

    async def router_unload(self, http: web.Request) -> web.Response:
        """Begins to unload a model, and answers at once."""
        body = await self.registry.bodies.read(http[BODY])
        facts = self._to_unload(text_of(body, "model"), http[CALLER])
        if not self._is_loaded(facts):
            raise RequestError("model is not running", param="model")
        self.residency.require_idle(facts.served)
        begin(_outcome(self.residency.unload(facts.served)), f"unload of {facts.name}")
        return json_response(SUCCESS)

    async def models_sse(self, http: web.Request) -> web.StreamResponse:
        """Events about loads and unloads, until the client leaves."""
        events = _ModelEvents(self.registry, http[CALLER])
        response = web.StreamResponse(headers={"Content-Type": EVENT_STREAM, **STREAM_HEADERS})
        with self._listening(events, http[CALLER]), contextlib.suppress(ConnectionError):
            await send_pieces(http, response, events.until_end(self._keep_alive))
        return response

    @contextlib.contextmanager
    def _listening(self, events: _ModelEvents, caller: Caller) -> Iterator[None]:
        """The stream ends with its key, and with the server."""
        self._streams.add(events)
        self.residency.listeners.append(events.notice)
        if caller.session is not None:
            caller.session.add(events, lambda refusal: events.end())
        try:
            yield
        finally:
            self._streams.discard(events)
            self.residency.listeners.remove(events.notice)
            if caller.session is not None:
                caller.session.discard(events)

    async def end_streams(self, app: web.Application) -> None:
        for events in list(self._streams):
            events.end()

    # TabbyAPI, text-generation-webui

    async def tabby_load(self, http: web.Request) -> web.StreamResponse:
        """Loads a model; the progress is a stream, whose last frame is the end."""
        body = await self.registry.bodies.read(http[BODY])
        facts = self._to_load(textgen.loaded_name(body), http[CALLER])
        response = web.StreamResponse(headers={"Content-Type": EVENT_STREAM, **STREAM_HEADERS})
        await response.prepare(http)
        with contextlib.suppress(ConnectionError):
            async with contextlib.aclosing(self._progress_of(facts)) as progress:
                try:
                    async for part in progress:
                        await response.write(PAUSE if part is None else _frame(textgen.load_step(part)))
                    await response.write(_frame(textgen.load_end(body)))
                except EngineError as error:
                    await response.write(_frame(textgen.load_failed(str(error))))
        return response

    async def _progress_of(self, facts: ModelFacts) -> AsyncGenerator[float | None]:
        """Loads a model; yields the progress when it has changed, None after a while without a change.

        EngineError if it cannot be loaded.
        """
        load, told = begin(_outcome(self._until_loaded(facts)), f"load of {facts.name}"), 0.0
        try:
            while not load.done():
                change = begin(facts.pool.change.wait(), "change")
                done, _ = await asyncio.wait(
                    {load, change}, timeout=self._keep_alive, return_when=asyncio.FIRST_COMPLETED
                )
                change.cancel()
                if not done:
                    yield None
                elif (progress := _rounded(facts.pool.progress)) != told:
                    yield progress
                    told = progress
            if (error := load.result()) is not None:
                raise EngineUnavailable(error)
        finally:
            load.cancel()
            await asyncio.wait({load})

    async def webui_load(self, http: web.Request) -> web.Response:
        """Waits until a model is loaded."""
        body = await self.registry.bodies.read(http[BODY])
        await self._load(self._to_load(textgen.loaded_name(body), http[CALLER]))
        return json_response("OK")

    async def unload_loaded(self, http: web.Request) -> web.Response:
        """Unloads a model; without a name all that are loaded and that the caller may use."""
        body = await self.registry.bodies.read(http[BODY], may_be_empty=True)
        name, caller = textgen.loaded_name(body, ""), http[CALLER]
        found = [self._to_unload(name, caller)] if name else self.registry.allowed(caller)
        loaded = [facts for facts in found if self._is_loaded(facts)]
        for facts in loaded:
            self.residency.require_idle(facts.served)
        for facts in loaded:
            await self.residency.unload(facts.served)
        return json_response(None)

    # All of them

    def _to_load(self, name: str, caller: Caller) -> ModelFacts:
        """The model of this name; RequestError if there is none. An adapter is loaded with its model."""
        return self.registry.named(name, caller).facts

    def _to_unload(self, name: str, caller: Caller) -> ModelFacts:
        """The model of this name; RequestError if there is none, or if it is an adapter or a task."""
        context = self.registry.named(name, caller)
        if context.adapter is not None or context.task is not None:
            what = "an adapter" if context.task is None else "a task"
            message = f"{name} is {what} of {context.facts.name}, and leaves with it: name the model"
            raise RequestError(message, param="model")
        return context.facts

    def _is_loaded(self, facts: ModelFacts) -> bool:
        return self.registry.state_of(facts) in ("loaded", "loading")

    async def _load(self, facts: ModelFacts) -> None:
        if (error := await _outcome(self._until_loaded(facts))) is not None:
            raise EngineUnavailable(error)

    async def _until_loaded(self, facts: ModelFacts) -> None:
        """Waits until a model is loaded; if a reload replaces it, until the one with its name is."""
        try:
            await self.residency.load(facts.served)
        except ModelRemoved:
            found = self.registry.names.find(facts.name)
            if found is None or found.model is facts:
                raise
            await self._until_loaded(found.model)


async def _outcome(work: Awaitable[None]) -> str | None:
    """The reason if a load or an unload has failed."""
    try:
        await work
    except (EngineError, ModelBusy) as error:
        return str(error)
    return None


def _rounded(progress: float) -> float:
    return round(progress, 2)


def _frame(data: object) -> bytes:
    return b"data: %b\n\n" % orjson.dumps(data)


class _ModelEvents:
    """The events of one reader, about the models that it may use."""

    def __init__(self, registry: ModelRegistry, caller: Caller) -> None:
        self._registry, self._caller = registry, caller
        self._seen = self._look()
        self._events: asyncio.Queue[bytes | None] = asyncio.Queue()

    def notice(self) -> None:
        """Adds the events since the last call. A reader that is too slow gets no more."""
        before, self._seen = self._seen, self._look()
        for event in llamacpp.changes(before, self._seen):
            self._events.put_nowait(_frame(event))
        if self._events.qsize() > MAX_EVENTS:
            self.end()

    def end(self) -> None:
        """Ends the stream after the events so far."""
        self._events.put_nowait(None)

    async def until_end(self, pause: float) -> AsyncIterator[bytes]:
        """The frames; after `pause` seconds without one a comment."""
        while True:
            try:
                async with asyncio.timeout(pause):
                    frame = await self._events.get()
            except TimeoutError:
                frame = PAUSE
            if frame is None:
                return
            yield frame

    def _look(self) -> dict[str, llamacpp.Seen]:
        return {facts.name: self._seen_of(facts) for facts in self._registry.allowed(self._caller.now)}

    def _seen_of(self, facts: ModelFacts) -> llamacpp.Seen:
        state = self._registry.state_of(facts)
        progress = _rounded(facts.pool.progress) if state == "loading" else 0.0
        return llamacpp.Seen(state, progress, facts.failure if state == "failed" else "")


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
