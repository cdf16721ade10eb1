"""The paths of other servers' APIs: llama-server, KoboldCpp, Ollama, text-generation-webui."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from aiohttp import web

from llama_srb.dialects import (
    anthropic,
    chat,
    koboldai,
    llamacpp,
    ollama,
    openllm,
    responses,
    sglang,
    textgen,
)
from llama_srb.dialects.common.reply import InfoEndpoint, Reply, ServerInfo
from llama_srb.dialects.vectors import VECTORS
from llama_srb.engine.events import Event
from llama_srb.engine.exchange import Exchange
from llama_srb.http.auth.caller import CALLER
from llama_srb.http.foreign import NDJSON
from llama_srb.http.handlers.bodies import parsed, path_of
from llama_srb.http.handlers.chosen import Chosen, Registry
from llama_srb.http.handlers.loads import kept, stay_of, unloaded, unloads
from llama_srb.http.handlers.work import prepared, work_of
from llama_srb.http.middleware import json_response
from llama_srb.http.streaming import Responder, Work, unranked
from llama_srb.http.watchlist import Watchlist
from llama_srb.request.fields import CompletionRequest
from llama_srb.request.parse import refuse_locked
from llama_srb.request.truncate import chat_length, truncate_text

OTHERS = (llamacpp, koboldai, ollama, textgen, anthropic, openllm, sglang)  # the dialects of other servers
REPLIES: Mapping[str, Callable[[Mapping[str, Any], ServerInfo], Reply]] = {
    path: make for dialect in OTHERS for path, make in getattr(dialect, "REPLIES", {}).items()
}
INFO_ENDPOINTS: Mapping[str, InfoEndpoint] = {
    path: endpoint for dialect in OTHERS for path, endpoint in getattr(dialect, "INFO_ENDPOINTS", {}).items()
}

CHATS = ("/v1/chat/completions/input_tokens", "/chat/completions/input_tokens")
RESPONSES = ("/v1/responses/input_tokens", "/responses/input_tokens", "/openai/v1/responses/input_tokens")
COUNTS: Mapping[str, tuple[Callable[..., CompletionRequest], Callable[[int], Any]]] = {
    "/v1/messages/count_tokens": (anthropic.prompt_of, anthropic.counted),
    **dict.fromkeys(CHATS, (chat.prompt_of, responses.counted)),
    **dict.fromkeys(RESPONSES, (responses.prompt_of, responses.counted)),
}


class Compatibility:
    """Handlers of foreign.py's rows."""

    def __init__(self, registry: Registry, responder: Responder) -> None:
        self.registry, self.responder = registry, responder
        self._watchlist = Watchlist()

    async def reply(self, http: web.Request) -> web.StreamResponse:
        """n continuations in another server's form."""
        stay, chosen = stay_of(http, self.registry, await self.registry.of(http))
        if unloads(http, chosen, stay):
            return await unloaded(http, self.registry, chosen)
        with kept(self.registry, chosen, stay):
            return await self._reply(http, chosen)

    async def _reply(self, http: web.Request, chosen: Chosen) -> web.StreamResponse:
        reply = await parsed(http, REPLIES[path_of(http)], chosen.body, chosen.info)
        with chosen.reserve() as reservation:
            reply.request = await prepared(reply.request, chosen, reservation, reply.limit)
            with self._watching(
                reply, work_of(reply.request, chosen, reservation, self.responder.max_held)
            ) as work:
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
        endpoint, chosen = INFO_ENDPOINTS[path_of(http)], await self.registry.of(http)
        body = {**chosen.body}
        result: Mapping[str, Any] = {}
        if endpoint.op:
            arguments = await parsed(http, endpoint.arguments, body)
            refuse_locked(arguments, chosen.defaults.locked)
            with chosen.reserve() as reservation:
                arguments = await chosen.facts.tools.for_arguments(arguments, reservation.command)
                result = await reservation.command(endpoint.op, **arguments)
        about = self.registry.with_all(chosen) if endpoint.lists else chosen.info
        if self.registry.are_several and "model" not in http.query:
            most = self.registry.settings.models_max or 0
            about = dataclasses.replace(about, max_instances=most)
        return await parsed(http, lambda: json_response(endpoint.answer(body, result, about)))

    async def count_tokens(self, http: web.Request) -> web.Response:
        """The tokens of a chat's prompt; nothing is generated."""
        chosen = await self.registry.of(http)
        prompt_of, counted = COUNTS[path_of(http)]
        request = await parsed(http, prompt_of, chosen.body, chosen.info)
        with chosen.reserve() as reservation:
            request = await prepared(request, chosen, reservation)
            tokens = await chat_length(request, reservation.command)
        return json_response(counted(tokens))

    async def pull(self, http: web.Request) -> web.Response:
        """Ollama's clients pull a model before they use it; here it is in use already, or unknown."""
        answer, stream = ollama.pulled((await self.registry.of(http)).body)
        response = json_response(answer)
        if stream:
            response.content_type = NDJSON
        return response

    async def vectors(self, http: web.Request) -> web.Response:
        """Vectors of texts in another server's form."""
        stay, chosen = stay_of(http, self.registry, (await self.registry.of(http)).without_adapter())
        with kept(self.registry, chosen, stay):
            return await self._vectors(http, chosen)

    async def _vectors(self, http: web.Request, chosen: Chosen) -> web.Response:
        answer = await parsed(http, VECTORS[path_of(http)], chosen.body, chosen.info)
        with chosen.reserve() as reservation:
            if answer.truncate:
                limit = await chosen.facts.longest_embedded(reservation.command)
                answer.shorten(
                    [await truncate_text(text, limit, reservation.command) for text in answer.request.input]
                )
            answer.warnings = (*chosen.warnings, *answer.warnings)
            generation = reservation.run("embed", **answer.request.engine_fields())
            work = Work(generation, unranked, f"texts={len(answer.request.input)}{reservation.about}")
            return await self.responder.whole(http, work, answer)

    async def _genkey(self, http: web.Request) -> str:
        return koboldai.genkey_of(await self.registry.bodies.read(http, may_be_empty=True))

    async def _watched_by(self, http: web.Request) -> koboldai.GenerationRecord | None:
        """The progress of the caller's generation with this genkey."""
        found = self._watchlist.find(http[CALLER].client, await self._genkey(http))
        return found.record if found else None

    async def kobold_check(self, http: web.Request) -> web.Response:
        """The texts of a generation so far."""
        record = await self._watched_by(http)
        async with self.registry.bodies.one_at_a_time:
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
        about = (await self.registry.of(http)).info
        return json_response(koboldai.performance(last, running, about))
