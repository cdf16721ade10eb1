"""HTTP: routes, status codes, server-sent events, the life of the whole server. Only here aiohttp is known.

What a body means and what an answer looks like is the dialects' business; this one only carries bytes.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextvars import ContextVar
from pathlib import Path
from typing import Any, Literal, Protocol, TypeAlias

import orjson
from aiohttp import web

from llama_srb import __version__, model_info
from llama_srb.config import Settings
from llama_srb.dialects import chat, embeddings, events, openai, scores
from llama_srb.model_info import ModelInfo
from llama_srb.pool import EngineSettings, EngineUnavailable, Generation, Pool
from llama_srb.protocol import Done, Error, Event
from llama_srb.ranking import ranking
from llama_srb.request import (
    CompletionRequest,
    Defaults,
    Extension,
    RequestError,
    extension_from,
    parse_body,
    plain_id,
    request_table,
    samplers_table,
    wrong,
)
from llama_srb.routes import ROUTES, document

log = logging.getLogger(__name__)

Handler: TypeAlias = Callable[[web.Request], Awaitable[web.StreamResponse]]
Render: TypeAlias = Callable[[list[Event]], bytes]
Rank: TypeAlias = Callable[[list[Event]], list[Event]]
Dialect: TypeAlias = Literal["openai", "events"]

WRITE_GRACE = 1.0  # seconds for readers to take the last frames of a server that stops

STATUS_OF_CODE: Mapping[str, int] = {
    "invalid_request": 400,
    "context_exceeded": 400,
    "engine_died": 500,
    "internal_error": 500,
    "unavailable": 503,
    "shutting_down": 503,
}

SSE_HEADERS = {
    "Content-Type": events.CONTENT_TYPE,
    "Cache-Control": "no-cache",
    "X-Accel-Buffering": "no",  # nginx would hold the stream back
}


_brought: ContextVar[str] = ContextVar("brought", default="")
"""What the request at hand has to tell in its log line; a handler runs in the context of its middlewares."""


class Folded(Protocol):
    """A generation's events as one body."""

    def take(self, events: list[Event], /) -> None:
        """Events, which follow those of the last call."""

    def json(self) -> bytes:
        """The body, once all events were taken."""


class StartError(Exception):
    """The server cannot start; the message is one line for the operator."""


def negotiate(body: Mapping[str, Any], accept: str) -> Dialect:
    """Which of the two dialects of /v1/completions a client speaks: what it says tells."""
    openai = body.get("stream") is not None or body.get("model") is not None or "application/json" in accept
    return "openai" if openai else "events"


# ----------------------------------------------------------------------------------------------------
# Errors as JSON
# ----------------------------------------------------------------------------------------------------


def error_response(
    status: int,
    message: str,
    *,
    param: str | None = None,
    code: str | None = None,
    headers: Mapping[str, str] | None = None,
) -> web.Response:
    """An error in the form that OpenAI's clients read."""
    kind = "invalid_request_error" if status < 500 else "server_error"
    return _json(openai.error_body(message, kind=kind, param=param, code=code), status, headers)


def _json(data: object, status: int = 200, headers: Mapping[str, str] | None = None) -> web.Response:
    body = orjson.dumps(data, option=orjson.OPT_APPEND_NEWLINE)
    return web.Response(body=body, status=status, headers=headers, content_type="application/json")


def _warnings(warnings: tuple[str, ...]) -> dict[str, Any]:
    return {"warnings": warnings} if warnings else {}


def _refused(error: Error) -> web.Response:
    status = STATUS_OF_CODE.get(error.code, 500)
    param = "prompt" if error.param == "tokens" else error.param  # the engine has two fields for our one
    return error_response(status, error.message, param=param, code=error.code)


def _http_error(error: web.HTTPException, http: web.Request) -> web.StreamResponse:
    """aiohttp's own refusals (404, 405, 413, …) with a body like all others."""
    if error.status < 400:
        return error
    if isinstance(error, web.HTTPMethodNotAllowed):
        allowed = ", ".join(sorted(error.allowed_methods))
        message = f"{http.path} takes {allowed}, not {http.method}"
        return error_response(405, message, headers={"Allow": allowed})
    if isinstance(error, web.HTTPNotFound):
        return error_response(404, f"there is no {http.path} here")
    if isinstance(error, web.HTTPRequestEntityTooLarge):
        return error_response(413, f"the body is larger than --max-body, {http.client_max_size} bytes")
    return error_response(error.status, error.reason)


# ----------------------------------------------------------------------------------------------------
# What surrounds every request
# ----------------------------------------------------------------------------------------------------


@web.middleware
async def _errors_as_json(request: web.Request, handler: Handler) -> web.StreamResponse:
    try:
        return await handler(request)
    except web.HTTPException as error:
        return _http_error(error, request)
    except RequestError as error:
        return error_response(error.status, error.message, param=error.param)
    except EngineUnavailable as error:
        return error_response(503, str(error), code="unavailable")
    except ConnectionError:
        raise  # nobody is there to answer to
    except Exception:
        log.exception("%s %s", request.method, request.path)
        return error_response(500, "internal error; the server's log has more", code="internal_error")


@web.middleware
async def _one_line_each(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Logs each request once it is over: what, status, what it brought, how long it took."""
    began, outcome = time.monotonic(), "client left"
    _brought.set("")
    try:
        response = await handler(request)
        outcome = str(response.status)
        return response
    finally:
        what = f"{request.method} {request.rel_url.raw_path[:200]}"  # raw: a line feed would forge a line
        log.info("%s %s%s %.3f s", what, outcome, _brought.get(), time.monotonic() - began)


def _headers(origins: tuple[str, ...]) -> Callable[[web.Request, web.StreamResponse], Awaitable[None]]:
    """Names this server and allows web pages of these origins; unless all, the answer depends on who asks."""

    async def add_headers(http: web.Request, response: web.StreamResponse) -> None:
        response.headers["Server"] = f"llama-srb/{__version__}"
        origin = http.headers.get("Origin")
        if "*" in origins:
            response.headers["Access-Control-Allow-Origin"] = "*"
        elif origin in origins:
            response.headers["Access-Control-Allow-Origin"] = str(origin)
            response.headers["Vary"] = "Origin"

    return add_headers


@web.middleware
async def _preflight(request: web.Request, handler: Handler) -> web.StreamResponse:
    """What a browser asks before it sends a page's request; _headers says whether the page may."""
    if request.method != "OPTIONS":
        return await handler(request)
    wanted = request.headers.get("Access-Control-Request-Headers", "*")
    headers = {
        "Access-Control-Allow-Methods": "GET, POST, DELETE, OPTIONS",
        "Access-Control-Allow-Headers": wanted,
        "Access-Control-Max-Age": "86400",
    }
    return web.Response(status=204, headers=headers)


# ----------------------------------------------------------------------------------------------------
# Routes
# ----------------------------------------------------------------------------------------------------


class Api:
    """The routes over one pool and one model."""

    def __init__(self, settings: Settings, pool: Pool, model: ModelInfo) -> None:
        self.settings = settings
        self.pool = pool
        self.model = model
        self.defaults = Defaults(n=settings.n, max_n=settings.max_n, strict=settings.strict)

    def app(self) -> web.Application:
        """The aiohttp application; without handler_cancellation, clients that leave would not be noticed."""
        app = web.Application(
            middlewares=[_one_line_each, _preflight, _errors_as_json], client_max_size=self.settings.max_body
        )
        for route in ROUTES:
            for method in route.methods:
                app.router.add_route(method, route.pattern, getattr(self, route.handler))
        app.on_response_prepare.append(_headers(self.settings.cors))
        return app

    async def completions(self, http: web.Request) -> web.StreamResponse:
        """Two dialects on one path, told apart by what the client says."""
        body = await self._body(http)
        if negotiate(body, http.headers.get("Accept", "")) == "events":
            return await self._events(http, body)
        return await self._openai(http, body)

    async def events(self, http: web.Request) -> web.StreamResponse:
        """The event stream, whatever the client accepts."""
        return await self._events(http, await self._body(http))

    async def _events(self, http: web.Request, body: Mapping[str, Any]) -> web.StreamResponse:
        request = self._require_what_continue_needs(events.parse(body, self.defaults))
        return await self._stream(http, request, lambda batch: events.render(batch, request.warnings))

    async def _openai(self, http: web.Request, body: Mapping[str, Any]) -> web.StreamResponse:
        request, form = openai.parse(body, self.defaults)
        self._require_what_continue_needs(request)
        model, created = self._known_model(form.model), int(time.time())
        if form.stream:
            return await self._stream(
                http, request, openai.Chunks(request, form, model=model, created=created).render
            )
        return await self._one(http, request, openai.Body(request, model=model, created=created))

    async def chat_completions(self, http: web.Request) -> web.StreamResponse:
        """n answers to a chat, in OpenAI's form."""
        request, form = chat.parse(await self._body(http), self.defaults)
        model, created = self._known_model(form.model), int(time.time())
        if form.stream:
            chunks = chat.Chunks(request, form, model=model, created=created)
            return await self._stream(http, request, chunks.render)
        return await self._one(http, request, chat.Body(request, model=model, created=created))

    async def prefix(self, http: web.Request) -> web.Response:
        """Computes a prompt for the request that will come; a client that leaves before cancels it."""
        request, form = openai.parse(await self._body(http), self.defaults)
        self._known_model(form.model)
        self._require_what_keeps_prefixes(request)
        async with self.pool.prefix(request) as generation:
            _brought.set(f" {generation.id}")
            async for batch in generation:
                last = batch[-1]
        _brought.set(_brought.get() + _summary(last))
        if isinstance(last, Error):
            return _refused(last)
        assert isinstance(last, Done)
        answer = {"id": last.id, "prompt_tokens": last.prompt_tokens, "cached_tokens": last.cached_tokens}
        superseded = {"superseded": True} if generation.cancelled else {}
        return _json(answer | superseded | _warnings(request.warnings))

    async def score(self, http: web.Request) -> web.Response:
        """How likely the model finds each of some texts after one prompt."""
        request = scores.parse(await self._body(http), strict=self.settings.strict)
        answer = scores.Body(request, model=self._known_model(request.model))
        generation = self.pool.run("score", **request.engine_fields())
        return await self._whole(http, generation, answer, f"texts={len(request.texts)}")

    async def embeddings(self, http: web.Request) -> web.Response:
        """Vectors of texts."""
        request = embeddings.parse(await self._body(http), strict=self.settings.strict)
        answer = embeddings.Body(request, model=self._known_model(request.model))
        generation = self.pool.run("embed", **request.engine_fields())
        return await self._whole(http, generation, answer, f"texts={len(request.input)}")

    def _require_what_keeps_prefixes(self, request: CompletionRequest) -> None:
        if request.continue_ is not None:
            message = "continue has no prefix to compute; send the text as the prompt"
            raise RequestError(message, param="continue")
        if self.settings.engine_mode == "per-request" and self.settings.prefix_cache is None:
            message = "nothing is kept between requests in the mode per-request without --prefix-cache"
            raise RequestError(message, status=409)

    def _require_what_continue_needs(self, request: CompletionRequest) -> CompletionRequest:
        if request.continue_ is not None and self.settings.engine_mode == "per-request":
            message = (
                "continue needs --engine-mode resident; in the mode per-request send the text as the prompt"
            )
            raise RequestError(message, param="continue")
        return request

    async def extend(self, http: web.Request) -> web.Response:
        """More sequences for a running request, in its stream."""
        id = plain_id("id", http.match_info["id"])
        extension = extension_from(await self._body(http), strict=self.settings.strict)
        generation = self.pool.running(id)
        if generation is not None:
            self._require_room(generation, extension)
            _brought.set(f" add={extension.add} {id}")
            if (made := await self.pool.extend(generation, extension)) is not None:
                answer = {"id": id, "first": made.first, "count": made.count}
                return _json(answer | _warnings(extension.warnings))
        message = f'no request {id} is running; a request with "continue" goes on from one that is over'
        return error_response(404, message, param="id")

    def _require_room(self, generation: Generation, extension: Extension) -> None:
        n, most, fork = generation.n, self.settings.max_n, extension.fork
        if n + extension.add > most:
            raise wrong("add", extension.add, f"at most {most - n}: there are {n}, and --max-n is {most}")
        if fork is not None and fork.index >= n:
            raise wrong("fork.index", fork.index, f"between 0 and {n - 1}")

    def _known_model(self, name: str | None) -> str:
        """The name that answers bear: the asked one, if it is one of our model's."""
        path = self.model.path
        if name is None or name in (path.stem, path.name, self.model.name):
            return name or path.stem
        raise RequestError(
            f"there is no model {name[:100]} here, only {path.stem}", param="model", status=404
        )

    async def cancel(self, http: web.Request) -> web.Response:
        """Ends a request, or one sequence of it."""
        id, index = plain_id("id", http.match_info["id"]), http.match_info.get("index")
        if not self.pool.cancel(id, None if index is None else int(index)):
            return error_response(404, f"no request {id} is running", param="id")
        return _json({"id": id, "cancelled": True})

    async def health(self, http: web.Request) -> web.Response:
        """200 when requests are served at once, 503 with the state otherwise."""
        state = self.pool.state
        if state == "ready":
            return _json({"status": "ok"})
        return _json({"status": state, "progress": round(self.pool.progress, 3)}, 503)

    async def models(self, http: web.Request) -> web.Response:
        """The model in OpenAI's list; meta is what the file says of itself, n_ctx what the engine gave it."""
        return _json({"object": "list", "data": [self._model()]})

    def _model(self) -> dict[str, Any]:
        model, ready = self.model, self.pool.ready
        meta: dict[str, Any] = {
            "name": model.name,
            "architecture": model.architecture,
            "parameters": model.parameters,
            "quantisation": model.quantisation,
            "context": model.context,
            "size_bytes": model.size_bytes,
            "n_ctx": ready.n_ctx if ready else None,
        }
        if ready and ready.embedding:
            meta["embedding"] = dict(ready.embedding)
        created = int(os.stat(model.path).st_mtime) if model.path.exists() else 0
        return {
            "id": model.path.stem,
            "object": "model",
            "created": created,
            "owned_by": "llama-srb",
            "meta": meta,
        }

    async def adapters(self, http: web.Request) -> web.Response:
        """The adapters that requests may name, in OpenAI's form of a list."""
        return _json({"object": "list", "data": self._adapters()})

    async def lora_adapters(self, http: web.Request) -> web.Response:
        """The same as llama-server lists them."""
        return _json(self._adapters())

    def _adapters(self) -> list[dict[str, Any]]:
        loaded = self.pool.ready.adapters if self.pool.ready else ()
        return [{"id": one["id"], "name": Path(one["path"]).stem, **one} for one in loaded]

    async def samplers(self, http: web.Request) -> web.Response:
        """Every sampling field: name, type, default, bounds, aliases, meaning."""
        return _json({"samplers": samplers_table(), "request": request_table()})

    async def openapi(self, http: web.Request) -> web.Response:
        """The whole API as an OpenAPI document."""
        return _json(document(self.defaults, __version__))

    async def _body(self, http: web.Request) -> dict[str, Any]:
        if (http.content_length or 0) > self.settings.max_body:
            raise web.HTTPRequestEntityTooLarge(self.settings.max_body, http.content_length or 0)
        return parse_body(await http.read())

    async def _stream(
        self, http: web.Request, request: CompletionRequest, render: Render
    ) -> web.StreamResponse:
        """Carries a generation to the client; leaving this function, in whatever way, cancels the rest."""
        rank = ranking(request)
        async with self.pool.generate(request) as generation:
            _brought.set(f" n={request.n} {generation.id}")
            first = await anext(generation)
            if isinstance(first[0], Error):
                return _refused(first[0])
            response = web.StreamResponse(headers=SSE_HEADERS)
            await response.prepare(http)
            try:
                async with _kept_alive(response, self.settings.keep_alive) as write:
                    await write(render(rank(first)))
                    last = await _carry(generation, write, lambda batch: render(rank(batch))) or first[-1]
                _brought.set(_brought.get() + _summary(last))
            except ConnectionError:  # left between two events, before we were cancelled
                _brought.set(_brought.get() + " client left")
            return response

    async def _one(self, http: web.Request, request: CompletionRequest, answer: Folded) -> web.Response:
        """A generation as one body."""
        generation = self.pool.generate(request)
        return await self._whole(http, generation, answer, f"n={request.n}", ranking(request))

    async def _whole(
        self, http: web.Request, generation: Generation, answer: Folded, size: str, rank: Rank = list
    ) -> web.Response:
        """One body at the end; a client that leaves before cancels it, too."""
        async with generation:
            _brought.set(f" {size} {generation.id}")
            async for batch in generation:
                answer.take(rank(batch))
                last = batch[-1]
        _brought.set(_brought.get() + _summary(last))
        if isinstance(last, Error):
            return _refused(last)
        return web.Response(body=answer.json(), content_type="application/json")


Write: TypeAlias = Callable[[bytes], Awaitable[None]]


async def _carry(generation: Generation, write: Write, render: Render) -> Event | None:
    """All events of one batch in one write, which waits for a slow reader; returns the last event."""
    last = None
    async for batch in generation:
        last = batch[-1]
        await write(render(batch))
    return last


@contextlib.asynccontextmanager
async def _kept_alive(response: web.StreamResponse, interval: float) -> AsyncIterator[Write]:
    """A write() for the block; in its pauses comment lines are written."""
    loop = asyncio.get_running_loop()
    written_at = loop.time()

    async def write(data: bytes) -> None:
        nonlocal written_at
        written_at = loop.time()
        if data:
            await response.write(data)

    async def fill_pauses() -> None:
        with contextlib.suppress(ConnectionError):  # the handler is about to learn it too
            while True:
                await asyncio.sleep(written_at + interval - loop.time())
                if loop.time() >= written_at + interval:
                    await write(b": keep-alive\n\n")

    filler = asyncio.create_task(fill_pauses(), name="keep-alive")
    try:
        yield write
    finally:
        filler.cancel()
        await asyncio.wait({filler})


def _summary(last: Event) -> str:
    match last:
        case Done():
            return f" prompt={last.prompt_tokens} cached={last.cached_tokens} tokens={last.completion_tokens}"
        case Error():
            return f" error={last.code}"
    return ""


# ----------------------------------------------------------------------------------------------------
# From start to stop
# ----------------------------------------------------------------------------------------------------


async def serve(
    settings: Settings, *, on_loading: Callable[[float], None], on_ready: Callable[[str], None]
) -> None:
    """Serves until SIGTERM or SIGINT. on_loading gets 0 to 1, on_ready the address.

    StartError, ModelFileError or EngineError when it cannot start; then nothing is left running.
    """
    model = model_info.read(settings.model)
    _check_engine(settings)
    pool = Pool(
        EngineSettings(settings.engine_command, model_name=model.name),
        mode=settings.engine_mode,
        max_engines=settings.max_engines,
    )
    runner = web.AppRunner(
        Api(settings, pool, model).app(),
        handler_cancellation=True,  # off by default; else a client that leaves is noticed when we write
        access_log=None,
        shutdown_timeout=WRITE_GRACE,
    )
    with _signals() as stopping:
        try:
            site = await _listen(runner, settings)
            await pool.start()
            if await _loads(pool, stopping[0], on_loading):
                on_ready(_address(site.name, runner))
                log.info("llama-srb %s serves %s", __version__, model.name)
                await stopping[0].wait()
            log.info("stopping")
            await site.stop()
            await _stop(pool, settings.stop_grace, stopping[1])
        finally:
            await pool.stop()
            await runner.cleanup()


def _check_engine(settings: Settings) -> None:
    if not settings.engine.is_file():
        raise StartError(f"{settings.engine}: there is no engine; ./build.sh makes it")
    if not os.access(settings.engine, os.X_OK):
        raise StartError(f"{settings.engine}: the engine is not executable; ./build.sh makes it anew")


@contextlib.contextmanager
def _signals() -> Any:
    """Two events: the first signal sets one (stop), the second the other (at once)."""
    loop, events = asyncio.get_running_loop(), (asyncio.Event(), asyncio.Event())

    def on_signal() -> None:
        events[events[0].is_set()].set()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, on_signal)
    try:
        yield events
    finally:
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)


async def _listen(runner: web.AppRunner, settings: Settings) -> web.TCPSite:
    await runner.setup()
    site = web.TCPSite(runner, settings.host, settings.port)
    try:
        await site.start()
    except OSError as error:
        reason = os.strerror(error.errno).lower() if error.errno and error.errno > 0 else str(error)
        raise StartError(
            f"cannot listen on {settings.host} port {settings.port}: {reason}; try --port"
        ) from None
    return site


def _address(name: str, runner: web.AppRunner) -> str:
    """The URL to call, with the port that was really taken; every interface is reached as localhost."""
    host, port = runner.addresses[0][:2]
    host = {"0.0.0.0": "localhost", "::": "localhost"}.get(host, host)
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"


async def _loads(pool: Pool, stopping: asyncio.Event, on_loading: Callable[[float], None]) -> bool:
    """Waits until the pool is ready; False when told to stop before that. EngineError if it cannot load."""
    load = asyncio.create_task(_load(pool, on_loading), name="loading")
    stop = asyncio.create_task(stopping.wait(), name="stop signal")
    try:
        await asyncio.wait({load, stop}, return_when=asyncio.FIRST_COMPLETED)
        if load.done():
            load.result()
        return load.done()
    finally:
        load.cancel()
        stop.cancel()
        await asyncio.wait({load, stop})


async def _load(pool: Pool, on_loading: Callable[[float], None]) -> None:
    """In the mode per-request a first engine comes and goes: an unusable one is known at the start."""
    while pool.state == "loading":
        on_loading(pool.progress)
        await pool.changed()
    await pool.wait_ready()
    if pool.mode == "per-request":
        await pool.command("status")
    on_loading(1.0)


async def _stop(pool: Pool, grace: float, at_once: asyncio.Event) -> None:
    """Lets requests finish for a while, unless a second signal says that there is no time for that."""
    stop = asyncio.create_task(pool.stop(grace), name="pool stop")
    hurry = asyncio.create_task(at_once.wait(), name="second signal")
    try:
        await asyncio.wait({stop, hurry}, return_when=asyncio.FIRST_COMPLETED)
        if not stop.done():
            stop.cancel()
        await asyncio.wait({stop})
    finally:
        hurry.cancel()
