"""The paths of other servers' APIs, as foreign.py lists them."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from aiohttp import web

from llama_srb.dialects import anthropic, koboldai, llamacpp, ollama, openllm, responses, sglang, textgen
from llama_srb.dialects.common.reply import InfoEndpoint, Reply, ServerInfo
from llama_srb.dialects.openai import chat
from llama_srb.dialects.vectors import VECTORS
from llama_srb.engine.events import Event
from llama_srb.engine.exchange import Exchange
from llama_srb.http.context_of import context_of
from llama_srb.http.handlers.loads import kept, stay_of, unloaded, unloads
from llama_srb.http.middleware import json_response
from llama_srb.http.request_keys import BODY, CALLER, ROUTE
from llama_srb.http.route import NDJSON
from llama_srb.http.streaming import Responder
from llama_srb.request.fields import CompletionRequest
from llama_srb.request.parse import refuse_locked
from llama_srb.request.truncate import chat_length, truncate_text
from llama_srb.serving.bodies import without_stalling
from llama_srb.serving.context import RequestContext
from llama_srb.serving.generation import generation_of, prepared
from llama_srb.serving.model_registry import ModelRegistry
from llama_srb.serving.running import Work, unranked
from llama_srb.serving.watchlist import Watchlist

OTHERS = (llamacpp, koboldai, ollama, textgen, anthropic, openllm, sglang)  # the dialects of other servers
REPLIES: Mapping[str, Callable[[Mapping[str, Any], ServerInfo], Reply]] = {
    path: make for dialect in OTHERS for path, make in getattr(dialect, "REPLIES", {}).items()
}
INFO_ENDPOINTS: Mapping[str, InfoEndpoint] = {
    path: endpoint for dialect in OTHERS for path, endpoint in getattr(dialect, "INFO_ENDPOINTS", {}).items()
}

CHATS = ("/v1/chat/completions/input_tokens", "/chat/completions/input_tokens")
COUNTS: Mapping[str, tuple[Callable[..., CompletionRequest], Callable[[int], Any]]] = {
    "/v1/messages/count_tokens": (anthropic.prompt_of, anthropic.counted),
    **dict.fromkeys(CHATS, (chat.prompt_of, responses.counted)),
}


class Compatibility:
    """Handlers of foreign.py's rows."""

    def __init__(self, registry: ModelRegistry, responder: Responder) -> None:
        self.registry, self.responder = registry, responder
        self._watchlist = Watchlist()

    async def reply(self, http: web.Request) -> web.StreamResponse:
        """n continuations in another server's form."""
        stay, context = stay_of(http, self.registry, await context_of(http, self.registry))
        if unloads(http, context, stay):
            return await unloaded(http, self.registry, context)
        with kept(self.registry, context, stay):
            return await self._reply(http, context)

    async def _reply(self, http: web.Request, context: RequestContext) -> web.StreamResponse:
        reply = await without_stalling(len(http[BODY]), REPLIES[http[ROUTE].path], context.body, context.info)
        with context.reserve() as reservation:
            most, limit = self.responder.max_held, reply.limit
            work, reply.request = await generation_of(reply.request, context, reservation, most, limit)
            with self._watching(reply, work) as work:
                if reply.stream:
                    return await self.responder.stream(
                        http, work, reply.render, reply.content_type, reply.pause
                    )
                return await self.responder.whole(http, work, reply)

    @contextlib.contextmanager
    def _watching(self, reply: Reply, work: Work) -> Iterator[Work]:
        """Adds a KoboldAI generation to the watchlist; drops its request when the block is left."""
        if not isinstance(reply, koboldai.Results):
            yield work
            return
        assert isinstance(work.generation, Exchange)
        watched = self._watchlist.add(reply.genkey, work.generation, koboldai.GenerationRecord(reply.request))

        async def rank(events: list[Event]) -> list[Event]:
            ranked = await work.rank(events)
            self._watchlist.take(watched, ranked)
            return ranked

        try:
            yield dataclasses.replace(work, rank=rank)
        finally:
            watched.generation = None

    async def ask(self, http: web.Request) -> web.Response:
        """A path that generates nothing: it answers from the server's facts, or with one engine command."""
        endpoint, context = INFO_ENDPOINTS[http[ROUTE].path], await context_of(http, self.registry)
        body = {**context.body}
        result: Mapping[str, Any] = {}
        if endpoint.op:
            arguments = await without_stalling(len(http[BODY]), endpoint.arguments, body)
            refuse_locked(arguments, context.defaults.locked)
            with context.reserve() as reservation:
                arguments = await context.facts.tools.for_arguments(arguments, reservation.command)
                result = await reservation.command(endpoint.op_for(body), **arguments)
        about = self.registry.with_all(context) if endpoint.lists else context.info
        if self.registry.are_several and "model" not in http.query:
            most = self.registry.settings.models_max or 0
            about = dataclasses.replace(about, max_instances=most)
        return await without_stalling(
            len(http[BODY]), lambda: json_response(endpoint.answer(body, result, about))
        )

    async def count_tokens(self, http: web.Request) -> web.Response:
        """The tokens of a chat's prompt; nothing is generated."""
        context = await context_of(http, self.registry)
        prompt_of, counted = COUNTS[http[ROUTE].path]
        request = await without_stalling(len(http[BODY]), prompt_of, context.body, context.info)
        with context.reserve() as reservation:
            request = await prepared(request, context, reservation)
            tokens = await chat_length(request, reservation.command)
        return json_response(counted(tokens))

    async def pull(self, http: web.Request) -> web.Response:
        """Ollama's clients pull a model before they use it; here it is in use already, or unknown."""
        answer, stream = ollama.pulled((await context_of(http, self.registry)).body)
        response = json_response(answer)
        if stream:
            response.content_type = NDJSON
        return response

    async def vectors(self, http: web.Request) -> web.Response:
        """Vectors of texts in another server's form."""
        stay, context = stay_of(
            http, self.registry, (await context_of(http, self.registry)).refusing_adapter()
        )
        with kept(self.registry, context, stay):
            return await self._vectors(http, context)

    async def _vectors(self, http: web.Request, context: RequestContext) -> web.Response:
        answer = await without_stalling(
            len(http[BODY]), VECTORS[http[ROUTE].path], context.body, context.info
        )
        with context.reserve() as reservation:
            if answer.truncate:
                limit = await context.facts.longest_embedded(reservation.command)
                answer.shorten(
                    [await truncate_text(text, limit, reservation.command) for text in answer.request.input]
                )
            answer.warnings = (*context.warnings, *answer.warnings)
            generation = reservation.run("embed", **answer.request.engine_fields())
            work = Work(generation, unranked, f"texts={len(answer.request.input)}{reservation.about}")
            return await self.responder.whole(http, work, answer)

    async def _genkey(self, http: web.Request) -> str:
        return koboldai.genkey_of(await self.registry.bodies.read(http[BODY], may_be_empty=True))

    async def _watched_by(self, http: web.Request) -> koboldai.GenerationRecord | None:
        """The progress of the caller's generation with this genkey."""
        found = self._watchlist.find(http[CALLER].client, await self._genkey(http))
        return found.record if found else None

    async def kobold_check(self, http: web.Request) -> web.Response:
        """The texts of a generation so far."""
        record = await self._watched_by(http)
        async with self.registry.bodies.turn(record.size if record else 0):
            return json_response(koboldai.so_far(record))

    async def kobold_logprobs(self, http: web.Request) -> web.Response:
        """The tokens of a generation so far."""
        record = await self._watched_by(http)
        tokens = record.tokens() if record else []  # a copy: the generation goes on while a thread renders it
        body = await asyncio.to_thread(koboldai.last_logprobs, record, tokens)
        return web.Response(body=body, content_type="application/json")

    async def kobold_abort(self, http: web.Request) -> web.Response:
        """Ends the caller's generation with this genkey; if there is none, an admin ends other clients'."""
        genkey, grant = await self._genkey(http), http[CALLER].grant
        own = self._watchlist.find(http[CALLER].client, genkey)
        found = [own] if own is not None and own.is_running else []
        if not found and genkey and grant is not None and grant.is_admin:
            found = self._watchlist.named(genkey)
        ended = [self.registry.cancel(watched.id) for watched in found]
        return json_response(koboldai.aborted(any(ended)))

    async def kobold_perf(self, http: web.Request) -> web.Response:
        """How long the caller's last generation took."""
        own = self._watchlist.of(http[CALLER].client)
        last, running = own[-1].record if own else None, sum(watched.is_running for watched in own)
        about = (await context_of(http, self.registry)).info
        return json_response(koboldai.performance(last, running, about))
