"""Handlers of our own and OpenAI's paths: completions, chats, responses, prefixes, scores, vectors."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from aiohttp import web

from llama_srb.dialects import chat, embeddings, events, fim, llamacpp, openai, responses, scores
from llama_srb.dialects.common.answers import noted, warned
from llama_srb.dialects.common.texts import TextsBody
from llama_srb.dialects.negotiation import AnswerForm, Asked, negotiate
from llama_srb.engine.events import Done, Error
from llama_srb.engine.pool.multi import MultiGeneration
from llama_srb.engine.ranking import joining
from llama_srb.http.answers import Computed
from llama_srb.http.handlers.bodies import parsed, path_of
from llama_srb.http.handlers.chosen import Chosen, Registry
from llama_srb.http.handlers.work import prepared, rank_of, templated, without_messages, work_of
from llama_srb.http.middleware import DIALECT, FORM_RULE, json_response, log_summary, refused
from llama_srb.http.reservations import Reservation
from llama_srb.http.streaming import Responder, Work, begun_with, summary_of, unranked
from llama_srb.http.tasks.stories import with_story
from llama_srb.request.fields import CHAT, CompletionRequest
from llama_srb.request.values import RequestError


class Generate:
    """Handlers of routes.py."""

    def __init__(self, registry: Registry, responder: Responder) -> None:
        self.registry, self.responder = registry, responder

    async def completions(self, http: web.Request) -> web.StreamResponse:
        """n continuations, in the form that the rules of dialects/negotiation choose."""
        return await self.complete(http, await self.registry.of(http))

    events = openai_completions = completions  # their paths are what the first rule reads

    async def complete(self, http: web.Request, chosen: Chosen) -> web.StreamResponse:
        """n continuations by this model."""
        if self.form_of(http, chosen.body) == "events":
            return await self.stream(http, chosen)
        return await self._openai(http, chosen)

    def form_of(self, http: web.Request, body: Mapping[str, Any]) -> AnswerForm:
        asked = Asked.of(
            path_of(http),
            body,
            accept=",".join(http.headers.getall("Accept", ())),
            agent=http.headers.get("User-Agent", ""),
            default=self.registry.settings.default_form,
        )
        form, rule = negotiate(asked)
        if rule.is_guess:
            http[FORM_RULE] = rule.name
        return form

    async def stream(self, http: web.Request, chosen: Chosen, first: bytes = b"") -> web.StreamResponse:
        """n continuations by this model, as the event stream. first: its first bytes."""
        http[DIALECT], chosen = "events", chosen.answered_as("events")  # also on OpenAI's path
        request = await parsed(http, events.parse, chosen.body, chosen.defaults)
        with chosen.reserve() as reservation:
            request = await prepared(request, chosen, reservation)
            work = work_of(request, chosen, reservation, self.responder.max_held, as_events=True)
            render = partial(events.render, notes=noted(request))
            return await self.responder.stream(http, work, begun_with(first, render))

    async def _openai(self, http: web.Request, chosen: Chosen) -> web.StreamResponse:
        bodies = openai.prompts(chosen.body)
        if len(bodies) > 1:
            return await self._openai_many(http, chosen, bodies)
        request, form = await parsed(http, openai.parse, bodies[0], chosen.defaults, chosen.facts.infill)
        origin = chosen.origin
        with chosen.reserve() as reservation:
            request = await prepared(request, chosen, reservation, form.limit)
            work = work_of(request, chosen, reservation, self.responder.max_held, has_stop=True)
            if form.stream:
                render = openai.renderer(openai.Chunks(request, form, origin), request, form)
                return await self.responder.stream(http, work, render)
            answer = openai.builder(openai.Body(request, origin), request, form)
            return await self.responder.whole(http, work, answer)

    async def _openai_many(
        self, http: web.Request, chosen: Chosen, bodies: list[Mapping[str, Any]]
    ) -> web.StreamResponse:
        """Several prompts, each with n choices."""
        defaults, infill = chosen.defaults, chosen.facts.infill
        read = [await parsed(http, openai.parse, body, defaults, infill) for body in bodies]
        form = read[0][1]
        if read[0][0].continue_ is not None:
            raise RequestError("continue names one sequence, so prompt must be one text", param="continue")
        origin = chosen.origin
        with chosen.reserve(len(read)) as reservation:
            told = [openai.unreported(request, form) for request, form in read]
            requests = [await prepared(request, chosen, reservation, form.limit) for request in told]
            several = reservation.generate_all(requests)
            named = dict(zip((part.id for part in several.parts), requests, strict=True))
            work = self._work_of_many(several, named, chosen, reservation.about)
            if form.stream:
                return await self.responder.stream(
                    http, work, openai.ChunksOfMany(named, form, origin).frames
                )
            return await self.responder.whole(http, work, openai.BodyOfMany(named, origin))

    def _work_of_many(
        self,
        several: MultiGeneration,
        named: Mapping[str, CompletionRequest],
        chosen: Chosen,
        about: str,
    ) -> Work:
        """The work of several prompts. named: the requests by their generations' ids. about: for the log."""
        max_held = self.responder.max_held // len(named)
        ranks = {
            part.id: joining(named[part.id], rank_of(named[part.id], chosen, max_held, part))
            for part in several.parts
        }
        n = next(iter(named.values())).n
        size = f"n={n} prompts={len(named)}{about}"
        return Work(several, lambda batch: ranks[batch[0].id](batch), size, has_stop=True, echoes=n)  # type: ignore[union-attr]

    async def chat_completions(self, http: web.Request) -> web.StreamResponse:
        """n answers to a chat, in OpenAI's form."""
        return await self.chat(http, await self.registry.of(http))

    async def chat(self, http: web.Request, chosen: Chosen) -> web.StreamResponse:
        """n answers to a chat by this model, in OpenAI's form."""
        request, form = await parsed(http, chat.parse, chosen.body, chosen.defaults)
        return await self._as_chat(http, chosen, request, form)

    async def _as_chat(
        self, http: web.Request, chosen: Chosen, request: CompletionRequest, form: openai.Form
    ) -> web.StreamResponse:
        """Answers with messages."""
        origin = chosen.origin
        with chosen.reserve() as reservation:
            request = await prepared(request, chosen, reservation, form.limit)
            form = form.verbose_by_default(chosen.facts.verbose)
            request = openai.asked(request, form)
            work = work_of(request, chosen, reservation, self.responder.max_held, has_stop=True)
            if form.stream:
                render = openai.renderer(chat.Chunks(request, form, origin), request, form)
                return await self.responder.stream(http, work, render)
            answer = openai.builder(chat.Body(request, origin), request, form)
            return await self.responder.whole(http, work, answer)

    async def responses(self, http: web.Request) -> web.StreamResponse:
        """One answer to a conversation, in the form of OpenAI's responses."""
        chosen = await self.registry.of(http)
        request, asked = await parsed(http, responses.parse, chosen.body, chosen.defaults)
        origin = chosen.origin
        with chosen.reserve() as reservation:
            request = await prepared(request, chosen, reservation, asked.limit)
            work = work_of(request, chosen, reservation, self.responder.max_held, has_stop=True)
            output = responses.Output(request, asked, origin)
            if asked.form.stream:
                return await self.responder.stream(http, work, responses.Frames(output).render)
            return await self.responder.whole(http, work, responses.Body(output))

    async def fim_completions(self, http: web.Request) -> web.StreamResponse:
        """n texts between a prompt and a suffix, in Mistral's form."""
        chosen = await self.registry.of(http)
        request, form = await parsed(http, fim.parse, chosen.body, chosen.defaults, chosen.facts.infill)
        return await self._as_chat(http, chosen, request, form)

    async def prefix(self, http: web.Request) -> web.Response:
        """Prefills a prompt for a later request. If the client leaves before the end, this is cancelled."""
        chosen = await self.registry.of(http)
        with chosen.reserve(yields=True) as reservation:
            return await self._prefix(http, chosen, reservation)

    async def _prefix(self, http: web.Request, chosen: Chosen, reservation: Reservation) -> web.Response:
        request = await self._beginning(http, chosen, reservation)
        chosen.facts.require_what_keeps_prefixes(request)
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
        self, http: web.Request, chosen: Chosen, reservation: Reservation
    ) -> CompletionRequest:
        """The request whose prompt is prefilled; that of a chat is made by the model's template."""
        body = chosen.body
        if body.get("messages") is not None and chosen.task is not None:
            request, _ = await parsed(http, chat.parse, body, chosen.defaults)
            request = await chosen.with_task(request, is_beginning=True)
            return await without_messages(request, chosen, reservation.command)
        if body.get("messages") is not None:
            arguments = await parsed(http, llamacpp.template_arguments, body)
            body = {
                **body,
                **dict.fromkeys(CHAT),
                "prompt": await templated(arguments, chosen, reservation.command),
            }
        bodies = openai.prompts(body)
        if len(bodies) > 1:
            raise RequestError(f"prompt is a list of {len(bodies)} prompts; it must be one", param="prompt")
        request, _ = await parsed(http, openai.parse, bodies[0], chosen.defaults, chosen.facts.infill)
        request = await with_story(request, chosen, reservation.command)
        return await chosen.with_task(request, is_beginning=True)

    async def score(self, http: web.Request) -> web.Response:
        """Log-probabilities of several texts after one prompt."""
        chosen = (await self.registry.of(http)).without_task()
        request = await parsed(http, scores.parse, chosen.body, strict=self.registry.settings.strict)
        answer = scores.Body(request, model=chosen.name)
        return await self._run(http, chosen, "score", request.engine_fields(), len(request.texts), answer)

    async def embeddings(self, http: web.Request) -> web.Response:
        """Vectors of texts."""
        chosen = (await self.registry.of(http)).without_adapter()
        request = await parsed(http, embeddings.parse, chosen.body, strict=self.registry.settings.strict)
        answer = embeddings.Body(request, chosen.origin)
        return await self._run(http, chosen, "embed", request.engine_fields(), len(request.input), answer)

    async def _run(
        self,
        http: web.Request,
        chosen: Chosen,
        op: str,
        fields: Mapping[str, Any],
        texts: int,
        answer: TextsBody,
    ) -> web.Response:
        answer.warnings = (*chosen.warnings, *answer.warnings)
        with chosen.reserve() as reservation:
            work = Work(reservation.run(op, **fields), unranked, f"texts={texts}{reservation.about}")
            return await self.responder.whole(http, work, answer)
