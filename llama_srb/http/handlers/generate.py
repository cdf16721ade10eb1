"""Handlers of our own and OpenAI's paths: completions, chats, prefixes, scores, vectors."""

from __future__ import annotations

from collections.abc import Awaitable, Mapping
from functools import partial
from typing import Any

from aiohttp import web

from llama_srb.dialects import embeddings, events, fim, openai, rerank, scores
from llama_srb.dialects.common.response_types import noted, warned
from llama_srb.dialects.common.texts import TextsBody
from llama_srb.dialects.negotiation import AnswerForm, negotiate
from llama_srb.dialects.openai import chat
from llama_srb.engine.events import Done, Error
from llama_srb.engine.pool.multi import MultiGeneration
from llama_srb.engine.ranking import joining
from llama_srb.http.context_of import context_of
from llama_srb.http.middleware import json_response, refused
from llama_srb.http.request_keys import BODY, DIALECT, FORM_RULE, ROUTE
from llama_srb.http.response_types import Computed
from llama_srb.http.streaming import Responder, begun_with
from llama_srb.request.fields import CompletionRequest, Limit
from llama_srb.request.values import RequestError
from llama_srb.serving.admission import Reservation
from llama_srb.serving.bodies import without_stalling
from llama_srb.serving.context import RequestContext
from llama_srb.serving.generation import generation_of, prepared, rank_of, without_messages
from llama_srb.serving.model_registry import ModelRegistry
from llama_srb.serving.observe.logs import log_summary
from llama_srb.serving.running import Work, summary_of, unranked
from llama_srb.serving.story_prompts import with_story


class Generate:
    """Handlers of routes.py."""

    def __init__(self, registry: ModelRegistry, responder: Responder) -> None:
        self.registry, self.responder, self._max_held = registry, responder, responder.max_held

    async def completions(self, http: web.Request) -> web.StreamResponse:
        """n continuations, in the form that the rules of dialects/negotiation choose."""
        return await self.complete(http, await context_of(http, self.registry))

    async def complete(self, http: web.Request, context: RequestContext) -> web.StreamResponse:
        """n continuations by this model."""
        if self.form_of(http, context.body) == "events":
            return await self.stream(http, context)
        return await self._openai(http, context)

    def _work(
        self, request: CompletionRequest, context: RequestContext, reservation: Reservation,
        limit: Limit | None = None, *, has_stop: bool = False, as_events: bool = False,
    ) -> Awaitable[tuple[Work, CompletionRequest]]:  # fmt: skip
        """As generation_of()."""
        return generation_of(
            request, context, reservation, self._max_held, limit, has_stop=has_stop, as_events=as_events
        )

    def form_of(self, http: web.Request, body: Mapping[str, Any]) -> AnswerForm:
        form, rule = negotiate(
            http[ROUTE].path,
            body,
            accept=",".join(http.headers.getall("Accept", ())),
            agent=http.headers.get("User-Agent", ""),
            default=self.registry.settings.default_form,
        )
        if rule.is_guess:
            http[FORM_RULE] = rule.name
        return form

    async def stream(
        self, http: web.Request, context: RequestContext, first: bytes = b""
    ) -> web.StreamResponse:
        """n continuations by this model, as the event stream. first: its first bytes."""
        http[DIALECT] = "events"  # also on OpenAI's path
        request = await without_stalling(len(http[BODY]), events.parse, context.body, context.defaults)
        with context.reserve(dialect="events") as reservation:
            work, request = await self._work(request, context, reservation, as_events=True)
            render = partial(events.render, notes=noted(request))
            return await self.responder.stream(http, work, begun_with(first, render))

    async def _openai(self, http: web.Request, context: RequestContext) -> web.StreamResponse:
        bodies = openai.prompts(context.body)
        if len(bodies) > 1:
            return await self._openai_many(http, context, bodies)
        request, form = await without_stalling(
            len(http[BODY]), openai.parse, bodies[0], context.defaults, context.facts.infill
        )
        origin = context.origin
        with context.reserve() as reservation:
            work, request = await self._work(request, context, reservation, form.limit, has_stop=True)
            if form.stream:
                render = openai.renderer(openai.Chunks(request, form, origin), request, form)
                return await self.responder.stream(http, work, render)
            answer = openai.builder(openai.Body(request, origin), request, form)
            return await self.responder.whole(http, work, answer)

    async def _openai_many(
        self, http: web.Request, context: RequestContext, bodies: list[Mapping[str, Any]]
    ) -> web.StreamResponse:
        """Several prompts, each with n choices."""
        defaults, infill = context.defaults, context.facts.infill
        read = [
            await without_stalling(len(http[BODY]), openai.parse, body, defaults, infill) for body in bodies
        ]
        form = read[0][1]
        if read[0][0].continue_ is not None:
            raise RequestError("continue names one sequence, so prompt must be one text", param="continue")
        origin = context.origin
        with context.reserve(len(read)) as reservation:
            told = [openai.unreported(request, form) for request, form in read]
            requests = [await prepared(request, context, reservation, form.limit) for request in told]
            several = reservation.generate_all(requests)
            named = dict(zip((part.id for part in several.parts), requests, strict=True))
            work = self._work_of_many(several, named, context, reservation.about)
            if form.stream:
                return await self.responder.stream(
                    http, work, openai.ChunksOfMany(named, form, origin).frames
                )
            return await self.responder.whole(http, work, openai.BodyOfMany(named, origin))

    def _work_of_many(
        self,
        several: MultiGeneration,
        named: Mapping[str, CompletionRequest],
        context: RequestContext,
        about: str,
    ) -> Work:
        """The work of several prompts. named: the requests by their generations' ids. about: for the log."""
        max_held = self._max_held // len(named)
        ranks = {
            part.id: joining(named[part.id], rank_of(named[part.id], context, max_held, part))
            for part in several.parts
        }
        n = next(iter(named.values())).n
        size = f"n={n} prompts={len(named)}{about}"
        return Work(several, lambda batch: ranks[batch[0].id](batch), size, has_stop=True, echoes=n)  # type: ignore[union-attr]

    async def chat_completions(self, http: web.Request) -> web.StreamResponse:
        """n answers to a chat, in OpenAI's form."""
        return await self.chat(http, await context_of(http, self.registry))

    async def chat(self, http: web.Request, context: RequestContext) -> web.StreamResponse:
        """n answers to a chat by this model, in OpenAI's form."""
        request, form = await without_stalling(len(http[BODY]), chat.parse, context.body, context.defaults)
        return await self._as_chat(http, context, request, form)

    async def _as_chat(
        self, http: web.Request, context: RequestContext, request: CompletionRequest, form: openai.Form
    ) -> web.StreamResponse:
        """Answers with messages."""
        origin = context.origin
        with context.reserve() as reservation:
            form = form.verbose_by_default(context.facts.verbose)
            request = openai.asked(request, form)
            work, request = await self._work(request, context, reservation, form.limit, has_stop=True)
            if form.stream:
                render = openai.renderer(chat.Chunks(request, form, origin), request, form)
                return await self.responder.stream(http, work, render)
            answer = openai.builder(chat.Body(request, origin), request, form)
            return await self.responder.whole(http, work, answer)

    async def fim_completions(self, http: web.Request) -> web.StreamResponse:
        """n texts between a prompt and a suffix, in Mistral's form."""
        context = await context_of(http, self.registry)
        request, form = await without_stalling(
            len(http[BODY]), fim.parse, context.body, context.defaults, context.facts.infill
        )
        return await self._as_chat(http, context, request, form)

    async def prefix(self, http: web.Request) -> web.Response:
        """Prefills a prompt for a later request. If the client leaves before the end, this is cancelled."""
        context = await context_of(http, self.registry)
        with context.reserve(yields=True) as reservation:
            return await self._prefix(http, context, reservation)

    async def _prefix(
        self, http: web.Request, context: RequestContext, reservation: Reservation
    ) -> web.Response:
        request = await self._beginning(http, context, reservation)
        context.facts.require_what_keeps_prefixes(request)
        async with reservation.prefix(request) as generation:
            log_summary.set(f" {generation.id}")
            async for batch in generation:
                last = batch[-1]
        log_summary.set(log_summary.get() + summary_of(last))
        if isinstance(last, Error):
            return refused(last)
        assert isinstance(last, Done)
        answer: Computed = {
            "id": last.id,
            "prompt_tokens": last.prompt_tokens,
            "cached_tokens": last.cached_tokens,
        }
        if generation.cancelled:
            answer["superseded"] = True
        return json_response({**answer, **warned(request.warnings)})

    async def _beginning(
        self, http: web.Request, context: RequestContext, reservation: Reservation
    ) -> CompletionRequest:
        """The request whose prompt is prefilled; that of a chat is made by the model's template."""
        request = await self.one_prompt(http, context)
        request = await with_story(request, context, reservation.command)
        request = await context.with_task(request, is_beginning=True)
        return await without_messages(request, context, reservation.command)

    async def one_prompt(self, http: web.Request, context: RequestContext) -> CompletionRequest:
        """The request of a body with one prompt or one chat; RequestError if it has several."""
        size, bodies = len(http[BODY]), openai.prompts(context.body)
        if len(bodies) > 1:
            raise RequestError(f"prompt is a list of {len(bodies)} prompts; it must be one", param="prompt")
        if context.body.get("messages") is not None:
            return (await without_stalling(size, chat.parse, bodies[0], context.defaults))[0]
        request, _ = await without_stalling(
            size, openai.parse, bodies[0], context.defaults, context.facts.infill
        )
        return request

    async def score(self, http: web.Request) -> web.Response:
        """Log-probabilities of several texts after one prompt."""
        context = (await context_of(http, self.registry)).refusing_task()
        request = await without_stalling(
            len(http[BODY]), scores.parse, context.body, strict=self.registry.settings.strict
        )
        answer = scores.Body(request, model=context.name)
        return await self._run(http, context, "score", request.engine_fields(), len(request.texts), answer)

    async def embeddings(self, http: web.Request) -> web.Response:
        """Vectors of texts."""
        context = (await context_of(http, self.registry)).refusing_adapter()
        request = await without_stalling(
            len(http[BODY]), embeddings.parse, context.body, strict=self.registry.settings.strict
        )
        answer = embeddings.Body(request, context.origin)
        return await self._run(http, context, "embed", request.engine_fields(), len(request.input), answer)

    async def rerank(self, http: web.Request) -> web.Response:
        """Documents by how well they answer a query."""
        context = (await context_of(http, self.registry)).refusing_adapter()
        request = await without_stalling(
            len(http[BODY]),
            rerank.parse,
            context.body,
            http[ROUTE].path,
            strict=self.registry.settings.strict,
        )
        is_probability = context.info.architecture in rerank.PROBABILITIES
        answer = rerank.Body(request, context.origin, is_probability=is_probability)
        return await self._run(
            http, context, "rerank", request.engine_fields(), len(request.documents), answer
        )

    async def _run(
        self,
        http: web.Request,
        context: RequestContext,
        op: str,
        fields: Mapping[str, Any],
        texts: int,
        answer: TextsBody,
    ) -> web.Response:
        answer.warnings = (*context.warnings, *answer.warnings)
        with context.reserve() as reservation:
            work = Work(reservation.run(op, **fields), unranked, f"texts={texts}{reservation.about}")
            return await self.responder.whole(http, work, answer)
