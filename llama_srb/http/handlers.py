"""The handlers of routes.py's rows: from a request's body to its answer, whole or streamed.

What a body means and what an answer looks like is the dialects' business; this one only carries bytes.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import functools
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, ParamSpec, Protocol, TypeAlias, TypeVar

from aiohttp import WSCloseCode, web

from llama_srb import __version__, studio
from llama_srb.background import begin
from llama_srb.config import Settings
from llama_srb.dialects import chat, embeddings, events, koboldai, llamacpp, ollama, openai, scores, textgen
from llama_srb.dialects.common.reply import InfoEndpoint, Reply, ServerInfo
from llama_srb.dialects.vectors import VECTORS
from llama_srb.engine.events import Done, Error, Event, Prompt, bulk
from llama_srb.engine.exchange import EngineError, Exchange
from llama_srb.engine.multi import Several
from llama_srb.engine.ranking import ranking
from llama_srb.engine.terms import OWN
from llama_srb.http.admission import Admission, Reservation
from llama_srb.http.auth.access import Access
from llama_srb.http.auth.api_keys import caller
from llama_srb.http.connections import BODY, LARGE, Connections
from llama_srb.http.limits import current_client
from llama_srb.http.middleware import (
    DIALECT,
    error_response,
    headers_for,
    json_response,
    log_summary,
    middlewares,
    refused,
)
from llama_srb.http.observe.metrics import CONTENT_TYPE, memory_of
from llama_srb.http.openapi import document
from llama_srb.http.routes import ROUTES
from llama_srb.http.watchlist import Watchlist
from llama_srb.http.websocket import Connection
from llama_srb.models.gguf_header import ModelInfo
from llama_srb.request.aliases import CONVERTED
from llama_srb.request.fields import CHAT, CompletionRequest, Extension, Limit, request_table, samplers_table
from llama_srb.request.parse import Defaults, extension_from, parse_body
from llama_srb.request.presets import Preset
from llama_srb.request.truncate import fitted, shortened
from llama_srb.request.values import INT32_MAX, RequestError, plain_id, wrong

P = ParamSpec("P")
T = TypeVar("T")
Render: TypeAlias = Callable[[list[Event]], bytes | Iterator[bytes]]
Rank: TypeAlias = Callable[[list[Event]], Awaitable[list[Event]]]
Dialect: TypeAlias = Literal["openai", "events"]

STATUS_PATIENCE = 1.0  # seconds; a scrape must not wait for a long prompt
WHOLE = 4  # times --max-unread
LONG = 512  # events, tokens and alternatives: more are rendered and written piece by piece
THREAD = 20_000  # of them that cannot be cut: writing them takes 20 ms and longer, so a thread does it
MANY = 64 << 10  # bytes of a body: it may have thousands of values
SLICE = 0.005  # seconds of writing after which the event loop has a turn: a fast reader never makes it wait

STREAM_HEADERS = {
    "Cache-Control": "no-cache",
    "X-Accel-Buffering": "no",  # nginx would hold the stream back
}

EVENT_STREAM = events.CONTENT_TYPE
PAUSE = b": keep-alive\n\n"

OTHERS = (llamacpp, koboldai, ollama, textgen)  # dialects/: the APIs of other servers, by path
REPLIES: Mapping[str, Callable[[Mapping[str, Any], ServerInfo], Reply]] = {
    path: make for dialect in OTHERS for path, make in getattr(dialect, "REPLIES", {}).items()
}
QUESTIONS: Mapping[str, InfoEndpoint] = {
    path: question for dialect in OTHERS for path, question in dialect.QUESTIONS.items()
}


class BodyBuilder(Protocol):
    """A generation's events as one body."""

    def take(self, events: list[Event], /) -> None:
        """Events, which follow those of the last call."""

    def json(self) -> bytes:
        """The body, once all events were taken."""


@dataclass(frozen=True, slots=True)
class Work:
    """A generation with what its events go through, and its size for the log."""

    generation: Exchange | Several
    rank: Rank
    size: str
    has_stop: bool = False  # its client may end it without its id, by stop-generation
    echoes: int = 1  # how often an answer in one piece repeats the prompt, where it is to be echoed


def negotiate(body: Mapping[str, Any], accept: str) -> Dialect:
    """Which of the two dialects of /v1/completions a client speaks: what it says tells."""
    openai = body.get("stream") is not None or body.get("model") is not None or "application/json" in accept
    return "openai" if openai else "events"


def _warnings(warnings: tuple[str, ...]) -> dict[str, Any]:
    return {"warnings": warnings} if warnings else {}


class Api:
    """The routes over one pool and one model."""

    def __init__(
        self,
        settings: Settings,
        admission: Admission,
        model: ModelInfo,
        access: Access,
        presets: Mapping[str, Preset] = {},
    ) -> None:
        self.settings = settings
        self.access = access
        self.connections = Connections(settings)
        self.admission = admission
        self.pool, self.counts = admission.pool, admission.metrics
        self.model = model
        self.take_presets(presets)
        self.began = time.monotonic()
        self._with_stop: dict[str, Exchange | Several] = {}  # of what runs, by its id
        self._watchlist = Watchlist()
        self._sockets: set[web.WebSocketResponse] = set()
        self._in_turn = asyncio.Lock()  # one piece of long work, then whoever else is ready, then the next
        self._asked: asyncio.Task[Mapping[str, Any]] | None = None  # for the engine's status
        self.pages = studio.files()

    def take_presets(self, presets: Mapping[str, Preset]) -> None:
        """From now on requests may name these."""
        settings, fields = self.settings, {name: preset.fields for name, preset in presets.items()}
        self.named = presets
        self._defaults = Defaults(n=settings.n, max_n=settings.max_n, strict=settings.strict, presets=fields)

    @property
    def defaults(self) -> Defaults:
        """Of the request at hand: the server's n gives way to a key that may ask for fewer."""
        grant, usual = caller.get(), self._defaults
        if grant is None or grant.max_n is None:
            return usual
        return dataclasses.replace(usual, n=min(usual.n, grant.max_n))

    def app(self) -> web.Application:
        """The aiohttp application; without handler_cancellation, clients that leave would not be noticed."""
        app = web.Application(
            middlewares=[
                *middlewares(self.counts),
                self.access.middleware(),
                self.connections.middleware(),
            ],
            client_max_size=self.settings.max_body,
        )
        for route in ROUTES:
            for method in route.methods:
                app.router.add_route(method, route.pattern, getattr(self, route.handler))
        app.on_response_prepare.append(headers_for(self.access))
        app.on_shutdown.append(self._close_sockets)
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
        http[DIALECT] = "events"  # whatever the path
        request = self._require_what_continue_needs(await _read(http, events.parse, body, self.defaults))
        with self.admission.reserve() as places:
            work = self._work(places, request)
            return await self._stream(http, work, lambda batch: events.render(batch, request.warnings))

    async def _openai(self, http: web.Request, body: Mapping[str, Any]) -> web.StreamResponse:
        bodies = openai.prompts(body)
        if len(bodies) > 1:
            return await self._openai_many(http, bodies)
        request, form = await _read(http, openai.parse, bodies[0], self.defaults, self._infill)
        about = self._of_answer(form.model)
        with self.admission.reserve() as places:
            request = await self._fitted(places, self._require_what_continue_needs(request), form.limit)
            work = self._work(places, request, has_stop=True)
            if form.stream:
                return await self._stream(http, work, openai.Chunks(request, form, **about).frames)
            return await self._whole(http, work, openai.Body(request, **about))

    async def _openai_many(self, http: web.Request, bodies: list[Mapping[str, Any]]) -> web.StreamResponse:
        """Several prompts, each with n choices."""
        parsed = [await _read(http, openai.parse, body, self.defaults, self._infill) for body in bodies]
        form = parsed[0][1]
        if parsed[0][0].continue_ is not None:
            raise RequestError(
                "continue goes on from one sequence; prompt must be one, too", param="continue"
            )
        about = self._of_answer(form.model)
        with self.admission.reserve(len(parsed)) as places:
            requests = [await self._fitted(places, request, form.limit) for request, _ in parsed]
            several = places.generate_all(requests)
            named = dict(zip((part.id for part in several.parts), requests, strict=True))
            work = self._work_of_many(several, named)
            if form.stream:
                return await self._stream(http, work, openai.ChunksOfMany(named, form, **about).frames)
            return await self._whole(http, work, openai.BodyOfMany(named, **about))

    def _work_of_many(self, several: Several, named: Mapping[str, CompletionRequest]) -> Work:
        """named: the requests by the ids of their generations."""
        most_held = self._most_held // len(named)
        ranks = {id: ranking(request, most_held) for id, request in named.items()}
        n = next(iter(named.values())).n
        size = f"n={n} prompts={len(named)}"
        return Work(several, lambda batch: ranks[batch[0].id](batch), size, has_stop=True, echoes=n)  # type: ignore[union-attr]

    async def _fitted(
        self, places: Reservation, request: CompletionRequest, limit: Limit | None
    ) -> CompletionRequest:
        """A prompt that is too long is cut only where the client expects that."""
        if limit is None or not self._context:
            return request
        return await fitted(request, limit, self._context, places.command)

    def _of_answer(self, model: str | None) -> dict[str, Any]:
        """What OpenAI's answers tell of themselves."""
        return {"model": self._named_model(model), "created": int(time.time())}

    def _work(self, places: Reservation, request: CompletionRequest, *, has_stop: bool = False) -> Work:
        rank = ranking(request, self._most_held)
        return Work(places.generate(request), rank, f"n={request.n}", has_stop, echoes=request.n)

    @property
    def _most_held(self) -> int:
        """Tokens and alternatives to them that an answer may hold in memory."""
        return WHOLE * self.settings.max_unread

    @property
    def _infill(self) -> Mapping[str, str]:
        """The model's tokens for what stands between two texts, as far as they are known."""
        return self.pool.ready.model.get("infill", {}) if self.pool.ready else {}

    async def chat_completions(self, http: web.Request) -> web.StreamResponse:
        """n answers to a chat, in OpenAI's form."""
        request, form = await _read(http, chat.parse, await self._body(http), self.defaults)
        about = self._of_answer(form.model)
        with self.admission.reserve() as places:
            request = await self._fitted(places, request, form.limit)
            work = self._work(places, request, has_stop=True)
            if form.stream:
                return await self._stream(http, work, chat.Chunks(request, form, **about).render)
            return await self._whole(http, work, chat.Body(request, **about))

    async def prefix(self, http: web.Request) -> web.Response:
        """Computes a prompt for the request that will come; a client that leaves before cancels it."""
        body = await self._body(http)
        with self.admission.reserve(yields=True) as places:
            return await self._prefix(places, body)

    async def _prefix(self, places: Reservation, body: dict[str, Any]) -> web.Response:
        if body.get("messages") is not None:
            template = await places.command("template", **llamacpp.template_arguments(body))
            body = {**body, **dict.fromkeys(CHAT), "prompt": template["prompt"]}
        bodies = openai.prompts(body)
        if len(bodies) > 1:
            raise RequestError(f"prompt is a list of {len(bodies)} prompts; it must be one", param="prompt")
        request, form = openai.parse(bodies[0], self.defaults, self._infill)
        self._named_model(form.model)
        self._require_what_keeps_prefixes(request)
        async with places.prefix(request) as generation:
            log_summary.set(f" {generation.id}")
            async for batch in generation:
                last = batch[-1]
        log_summary.set(log_summary.get() + _summary(last))
        if isinstance(last, Error):
            return refused(last)
        assert isinstance(last, Done)
        answer = {"id": last.id, "prompt_tokens": last.prompt_tokens, "cached_tokens": last.cached_tokens}
        superseded = {"superseded": True} if generation.cancelled else {}
        return json_response(answer | superseded | _warnings(request.warnings))

    async def score(self, http: web.Request) -> web.Response:
        """How likely the model finds each of some texts after one prompt."""
        read = functools.partial(scores.parse, strict=self.settings.strict)
        request = await _read(http, read, await self._body(http))
        answer = scores.Body(request, model=self._named_model(request.model))
        return await self._run(http, "score", request.engine_fields(), len(request.texts), answer)

    async def embeddings(self, http: web.Request) -> web.Response:
        """Vectors of texts."""
        read = functools.partial(embeddings.parse, strict=self.settings.strict)
        request = await _read(http, read, await self._body(http))
        answer = embeddings.Body(request, model=self._named_model(request.model))
        return await self._run(http, "embed", request.engine_fields(), len(request.input), answer)

    async def _run(
        self, http: web.Request, op: str, fields: Mapping[str, Any], texts: int, answer: BodyBuilder
    ) -> web.Response:
        with self.admission.reserve() as places:
            work = Work(places.run(op, **fields), _unranked, f"texts={texts}")
            return await self._whole(http, work, answer)

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
            log_summary.set(f" add={extension.add} {id}")
            if (made := await self.admission.extend(generation, extension)) is not None:
                answer = {"id": id, "first": made.first, "count": made.count}
                return json_response(answer | _warnings(extension.warnings))
        message = f'no request {id} is running; a request with "continue" goes on from one that is over'
        return error_response(404, message, param="id")

    def _require_room(self, generation: Exchange, extension: Extension) -> None:
        n, most, fork = generation.n, self.settings.max_n, extension.fork
        if n + extension.add > most:
            raise wrong("add", extension.add, f"at most {most - n}: there are {n}, and --max-n is {most}")
        if fork is not None and fork.index >= n:
            raise wrong("fork.index", fork.index, f"between 0 and {n - 1}")

    def _named_model(self, name: str | None) -> str:
        """The name that answers bear. Tools send others by habit, which only --strict minds."""
        if name is not None and self.settings.strict:
            self._require_model(name)
        return name if name is not None and self._is_model(name) else self.model.path.stem

    def _is_model(self, name: str) -> bool:
        return name in (self.model.path.stem, self.model.path.name, self.model.name)

    def _require_model(self, name: str) -> None:
        if not self._is_model(name):
            message = f"there is no model {name[:100]} here, only {self.model.path.stem}"
            raise RequestError(message, param="model", status=404)

    async def cancel(self, http: web.Request) -> web.Response:
        """Ends a request, or one sequence of it."""
        id, index = plain_id("id", http.match_info["id"]), http.match_info.get("index")
        if not self.pool.cancel(id, None if index is None else int(index)):
            return error_response(404, f"no request {id} is running", param="id")
        return json_response({"id": id, "cancelled": True})

    async def health(self, http: web.Request) -> web.Response:
        """200 when requests are served at once, 503 with the state otherwise; of failed also the reason."""
        state = self.pool.state
        if state == "ready":
            return json_response({"status": "ok"})
        why = {"error": self.pool.failure} if state == "failed" else {}
        return json_response({"status": state, "progress": round(self.pool.progress, 3), **why}, 503)

    async def live(self, http: web.Request) -> web.Response:
        """It answers, so it is."""
        return json_response({"status": "ok"})

    async def ready(self, http: web.Request) -> web.Response:
        """As health(), under the name that orchestrators like."""
        return await self.health(http)

    async def metrics(self, http: web.Request) -> web.Response:
        """Everything that is counted, for Prometheus."""
        await self._look()
        return web.Response(body=self.counts.text(), headers={"Content-Type": CONTENT_TYPE})

    async def stats(self, http: web.Request) -> web.Response:
        """The same for people and scripts, without the histograms."""
        engine, memory = await self._look()
        now = {"requests_open": self.pool.open, "engine_memory_bytes": memory, "engine": engine}
        now["tasks"] = len(asyncio.all_tasks())  # of the server: it must not grow
        return json_response({"status": self.pool.state, **self.counts.totals(), **now})

    async def _look(self) -> tuple[Mapping[str, Any], int]:
        """The engine's status and the memory of all."""
        pool, open, asks = self.pool, self.pool.open, self.pool.mode == "resident"
        engine = await self._status() if pool.state == "ready" and asks else {}
        memory = sum(map(memory_of, pool.pids))
        self.counts.set_state(ready=pool.state == "ready", open=open, memory=memory, engine=engine)
        return engine, memory

    async def _status(self) -> Mapping[str, Any]:
        """Asked once for all who wait for it; a busy engine answers between two steps, or too late."""
        if self._asked is None or self._asked.done():
            self._asked = begin(self._ask_status(), "status")
        done, _ = await asyncio.wait({self._asked}, timeout=STATUS_PATIENCE)
        return done.pop().result() if done else {}

    async def _ask_status(self) -> Mapping[str, Any]:
        with contextlib.suppress(EngineError):
            return await self.pool.command("status", OWN)
        return {}

    async def models(self, http: web.Request) -> web.Response:
        """The model in OpenAI's list; meta is what the file says of itself, n_ctx what the engine gave it."""
        return json_response({"object": "list", "data": [self._model()]})

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
        return json_response({"object": "list", "data": self._adapters()})

    async def lora_adapters(self, http: web.Request) -> web.Response:
        """The same as llama-server lists them."""
        return json_response(self._adapters())

    def _adapters(self) -> list[dict[str, Any]]:
        loaded = self.pool.ready.adapters if self.pool.ready else ()
        return [{"id": one["id"], "name": Path(one["path"]).stem, **one} for one in loaded]

    async def model_named(self, http: web.Request) -> web.Response:
        """One model of that list."""
        self._require_model(http.match_info["name"])
        return json_response(self._model())

    async def presets(self, http: web.Request) -> web.Response:
        """What a request may name as its preset."""
        data = [{"name": p.name, "about": p.about, "fields": p.fields} for p in self.named.values()]
        return json_response({"object": "list", "data": data})

    async def samplers(self, http: web.Request) -> web.Response:
        """Every request field, and what those of other servers become."""
        tables = {"samplers": samplers_table(), "request": request_table(), "converted": CONVERTED}
        return json_response(tables)

    async def openapi(self, http: web.Request) -> web.Response:
        """The whole API as an OpenAPI document."""
        return json_response(document(self.defaults, __version__))

    async def studio(self, http: web.Request) -> web.Response:
        """A file of the studio; / is its page."""
        page = self.pages.get(http.match_info.get("file", "index.html"))
        if page is None:
            raise web.HTTPNotFound
        headers = {**studio.HEADERS, "ETag": f'"{page.etag}"'}
        if any(tag.value in (page.etag, "*") for tag in http.if_none_match or ()):
            return web.Response(status=304, headers=headers)
        return web.Response(body=page.data, content_type=page.content_type, charset="utf-8", headers=headers)

    # WebSockets

    async def websocket(self, http: web.Request) -> web.StreamResponse:
        """Many requests on one connection, until it is closed."""
        settings = self.settings
        socket = web.WebSocketResponse(
            heartbeat=settings.keep_alive,
            max_msg_size=settings.max_body,
            compress=False,  # as of bodies: a few bytes would be a large message
        )
        await socket.prepare(http)
        self._sockets.add(socket)
        try:
            with self.connections.arrivals(http, socket) as arrivals:
                connection = Connection(
                    socket,
                    self.admission,
                    self._read_request,
                    self._read_extension,
                    arrivals.delivered,
                    self._most_held,
                )
                await connection.serve()
        finally:
            self._sockets.discard(socket)
        return socket

    def _read_request(self, body: Mapping[str, Any]) -> CompletionRequest:
        return self._require_what_continue_needs(events.parse(body, self.defaults))

    def _read_extension(self, generation: Exchange, body: Mapping[str, Any]) -> Extension:
        extension = extension_from(body, strict=self.settings.strict)
        self._require_room(generation, extension)
        return extension

    async def _close_sockets(self, app: web.Application) -> None:
        for socket in list(self._sockets):
            await socket.close(code=WSCloseCode.GOING_AWAY, message=b"the server stops")

    # Other servers' APIs

    async def reply(self, http: web.Request) -> web.StreamResponse:
        """n continuations, as another server would give them."""
        reply = await _read(http, REPLIES[_path(http)], await self._body(http), self._about())
        request = self._require_what_continue_needs(reply.request)
        with self.admission.reserve() as places:
            reply.request = await self._fitted(places, request, reply.limit)
            with self._watching(reply, self._work(places, reply.request)) as work:
                if reply.stream:
                    return await self._stream(http, work, reply.render, reply.content_type, reply.pause)
                return await self._whole(http, work, reply)

    @contextlib.contextmanager
    def _watching(self, reply: Reply, work: Work) -> Iterator[Work]:
        """What has a genkey can be looked on at; of the request nothing is kept when the block is left."""
        if not isinstance(reply, koboldai.Results):
            yield work
            return
        assert isinstance(work.generation, Exchange)
        watched = self._watchlist.add(reply.genkey, work.generation, koboldai.Seen(reply.request))

        async def rank(events: list[Event]) -> list[Event]:
            ranked = await work.rank(events)
            self._watchlist.take(watched, ranked)
            return ranked

        try:
            yield dataclasses.replace(work, rank=rank)
        finally:
            watched.generation = None

    async def ask(self, http: web.Request) -> web.Response:
        """What generates nothing."""
        question, about = QUESTIONS[_path(http)], self._about()
        body = await self._body(http) if http.method == "POST" else {}
        result: Mapping[str, Any] = {}
        if question.op:
            arguments = await _read(http, question.arguments, body)
            with self.admission.reserve() as places:
                result = await places.command(question.op, **arguments)
        return json_response(question.answer(body, result, about))

    async def vectors(self, http: web.Request) -> web.Response:
        """Vectors of texts, as another server would give them."""
        answer = await _read(http, VECTORS[_path(http)], await self._body(http), self._about())
        with self.admission.reserve() as places:
            if answer.truncate and self.pool.ready:
                most = self.pool.ready.embedding.get("max_tokens", INT32_MAX)
                answer.shorten([await shortened(text, most, places.command) for text in answer.request.input])
            generation = places.run("embed", **answer.request.engine_fields())
            work = Work(generation, _unranked, f"texts={len(answer.request.input)}")
            return await self._whole(http, work, answer)

    @property
    def _context(self) -> int:
        """Tokens of one sequence."""
        ready = self.pool.ready
        return (ready.n_ctx_sequence if ready else 0) or self.model.context or 0

    def _about(self) -> ServerInfo:
        model, path = self.model, self.model.path
        return ServerInfo(
            model=path.stem,
            path=str(path),
            names=frozenset((path.stem, path.name, model.name)),
            architecture=model.architecture,
            parameters=model.parameters,
            quantisation=model.quantisation,
            size_bytes=model.size_bytes,
            modified=path.stat().st_mtime if path.exists() else 0.0,
            context=self._context,
            parallel=self.settings.parallel,
            chat_template=str(model.metadata.get("tokenizer.chat_template", "")),
            cpu=self.pool.ready.cpu if self.pool.ready else "",
            infill=self._infill,
            version=__version__,
            now=time.time(),
            uptime=time.monotonic() - self.began,
            defaults=self.defaults,
        )

    def _genkey(self, http: web.Request) -> str:
        return koboldai.genkey_of(parse_body(data) if (data := http[BODY]).strip() else {})

    def _watched_by(self, http: web.Request) -> koboldai.Seen | None:
        """The caller's generation of the genkey."""
        found = self._watchlist.find(current_client(), self._genkey(http))
        return found.seen if found else None

    async def kobold_check(self, http: web.Request) -> web.Response:
        """The texts of a generation until now."""
        async with self._in_turn:
            return json_response(koboldai.so_far(self._watched_by(http)))

    async def kobold_logprobs(self, http: web.Request) -> web.Response:
        """The tokens of a generation until now."""
        seen = self._watched_by(http)
        tokens = seen.tokens() if seen else []  # now: it may go on while a thread writes them
        body = await asyncio.to_thread(koboldai.last_logprobs, seen, tokens)
        return web.Response(body=body, content_type="application/json")

    async def kobold_abort(self, http: web.Request) -> web.Response:
        """Ends the caller's generation; where that has none of the genkey, an admin ends those of others."""
        genkey, grant = self._genkey(http), caller.get()
        own = self._watchlist.find(current_client(), genkey)
        found = [own] if own is not None and own.is_running else []
        if not found and genkey and grant is not None and grant.is_admin:
            found = self._watchlist.named(genkey)
        ended = [self.pool.cancel(watched.id) for watched in found]
        return json_response(koboldai.aborted(any(ended)))

    async def stop_generation(self, http: web.Request) -> web.Response:
        """Ends what the caller generates by OpenAI's paths, and nobody else's."""
        client = current_client()
        for generation in list(self._with_stop.values()):
            if generation.client == client:
                generation.cancel()
        return json_response("OK")

    async def kobold_perf(self, http: web.Request) -> web.Response:
        """How long the caller's last generation took."""
        own = self._watchlist.of(current_client())
        last, running = own[-1].seen if own else None, sum(watched.is_running for watched in own)
        return json_response(koboldai.performance(last, running, self._about()))

    async def _body(self, http: web.Request) -> dict[str, Any]:
        data = http[BODY]
        if len(data) <= LARGE:
            return parse_body(data)
        async with self._in_turn:
            return parse_body(data)

    @contextlib.asynccontextmanager
    async def _opened(self, work: Work) -> AsyncIterator[Exchange | Several]:
        """The generation; stop-generation finds it until the block is left."""
        async with work.generation as generation:
            log_summary.set(f" {work.size} {generation.id}")
            if work.has_stop:
                self._with_stop[generation.id] = generation
            try:
                yield generation
            finally:
                self._with_stop.pop(generation.id, None)

    async def _stream(
        self,
        http: web.Request,
        work: Work,
        render: Render,
        content_type: str = EVENT_STREAM,
        pause: bytes = PAUSE,
    ) -> web.StreamResponse:
        """Carries a generation to the client; leaving this function, in whatever way, cancels the rest."""
        rank, response = work.rank, _Stream(headers={"Content-Type": content_type, **STREAM_HEADERS})
        async with self._opened(work) as generation:
            first = await anext(generation)
            if isinstance(first[0], Error):
                return refused(first[0])
            rest = _rendered(await rank(first), render)
            begun = await anext(rest, b"")
            await response.prepare(http)
            try:
                await response.write(begun)
                async with _kept_alive(response, self.settings.keep_alive, pause) as write:
                    async for data in rest:
                        await write(data)
                    last = await _carry(generation, write, rank, render) or first[-1]
                log_summary.set(log_summary.get() + _summary(last))
            except ConnectionError:  # left between two events, before we were cancelled
                log_summary.set(log_summary.get() + " client left")
            return response

    async def _whole(self, http: web.Request, work: Work, answer: BodyBuilder) -> web.Response:
        """One body at the end; a client that leaves before cancels it, too."""
        held = 0
        async with self._opened(work) as generation:
            async for batch in generation:
                held += bulk(batch) + sum((work.echoes - 1) * bulk([e]) for e in batch if type(e) is Prompt)
                if held > self._most_held:
                    raise _too_large(self._most_held)
                answer.take(await work.rank(batch))
                last = batch[-1]
        log_summary.set(log_summary.get() + _summary(last))
        if isinstance(last, Error):
            return refused(last)
        body = answer.json() if held < THREAD else await asyncio.to_thread(answer.json)
        return web.Response(body=body, content_type="application/json")


async def _read(http: web.Request, parse: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """What a body asks for; the body of MANY fields takes tenths of a second, so a thread reads it."""
    if len(http[BODY]) < MANY:
        return parse(*args, **kwargs)
    return await asyncio.to_thread(parse, *args, **kwargs)


async def _unranked(events: list[Event]) -> list[Event]:
    return events


def _too_large(most: int) -> RequestError:
    message = f"the answer has more than {most} tokens and alternatives to them (4 times --max-unread)"
    return RequestError(
        f"{message}; ask for a stream, or for less", param="logprobs", code="answer_too_large"
    )


def _path(http: web.Request) -> str:
    """The path of the route at hand."""
    resource = http.match_info.route.resource
    assert resource is not None
    return resource.canonical


class _Stream(web.StreamResponse):
    _send_headers_immediately = False  # they go with the first events, which wakes a reader once


Write: TypeAlias = Callable[[bytes], Awaitable[None]]


async def _carry(generation: Exchange | Several, write: Write, rank: Rank, render: Render) -> Event | None:
    """All events of one batch in one write, which waits for a slow reader; returns the last event."""
    last = None
    async for batch in generation:
        last, ranked = batch[-1], await rank(batch)
        async for data in _rendered(ranked, render):
            await write(data)
        if ranked and isinstance(ranked[-1], Error):
            return ranked[-1]
    return last


async def _rendered(events: list[Event], render: Render) -> AsyncIterator[bytes]:
    """A few events as they are; more of them in pieces, between which the event loop has turns."""
    loop = asyncio.get_running_loop()
    since = loop.time()
    for piece in _pieces(events):
        data = render(piece) if bulk(piece) < THREAD else await asyncio.to_thread(render, piece)
        for part in (data,) if isinstance(data, bytes) else data:
            yield part
            if loop.time() - since > SLICE:
                await asyncio.sleep(0)
                since = loop.time()


def _pieces(events: list[Event]) -> Iterator[list[Event]]:
    """The events so many at a time: those of a slow reader, and whole candidates, are long work."""
    if len(events) + bulk(events) <= LONG:
        yield events
        return
    piece, size = list[Event](), 0
    for event in events:
        own = 1 + bulk([event])
        if piece and size + own > LONG:
            yield piece
            piece, size = [], 0
        piece.append(event)
        size += own
    yield piece


@contextlib.asynccontextmanager
async def _kept_alive(response: web.StreamResponse, interval: float, pause: bytes) -> AsyncIterator[Write]:
    """A write() for the block; in its pauses comment lines are written, where there is such a thing."""
    loop = asyncio.get_running_loop()
    written_at = loop.time()

    async def write(data: bytes) -> None:
        nonlocal written_at
        if data:  # what is held back keeps nothing open
            written_at = loop.time()
            await response.write(data)

    async def fill_pauses() -> None:
        with contextlib.suppress(ConnectionError):  # the handler is about to learn it too
            while True:
                await asyncio.sleep(written_at + interval - loop.time())
                if loop.time() >= written_at + interval:
                    await write(pause)

    filler = begin(fill_pauses(), "keep-alive")
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
