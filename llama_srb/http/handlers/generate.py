"""Handlers of our own and OpenAI's paths: completions, chats, responses, prefixes, scores, vectors."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

from aiohttp import web

from llama_srb.dialects import chat, embeddings, events, fim, llamacpp, openai, responses, scores
from llama_srb.dialects.common.answers import warned
from llama_srb.dialects.negotiation import AnswerForm, Asked, negotiate
from llama_srb.engine.events import Done, Error
from llama_srb.engine.pool.multi import MultiGeneration
from llama_srb.engine.ranking import ranking
from llama_srb.http.answers import Computed
from llama_srb.http.auth.caller import CALLER, Caller
from llama_srb.http.handlers.bodies import Bodies, parsed
from llama_srb.http.handlers.facts import ServerFacts
from llama_srb.http.handlers.work import truncated, work_of
from llama_srb.http.middleware import DIALECT, FORM_RULE, json_response, log_summary, refused
from llama_srb.http.reservations import Admission, Reservation
from llama_srb.http.streaming import BodyBuilder, Responder, Work, summary_of, unranked
from llama_srb.request.fields import CHAT, CompletionRequest
from llama_srb.request.values import RequestError


class Generate:
    """Handlers of routes.py."""

    def __init__(
        self, facts: ServerFacts, admission: Admission, bodies: Bodies, responder: Responder
    ) -> None:
        self.facts, self.admission, self.bodies, self.responder = facts, admission, bodies, responder

    async def completions(self, http: web.Request) -> web.StreamResponse:
        """n continuations, in the form that the rules of dialects/negotiation choose."""
        body = await self.bodies.read(http)
        if self._form_of(http, body) == "events":
            return await self._events(http, body)
        return await self._openai(http, body)

    events = openai_completions = completions  # their paths are what the first rule reads

    def _form_of(self, http: web.Request, body: Mapping[str, Any]) -> AnswerForm:
        asked = Asked.of(
            http.path,
            body,
            accept=",".join(http.headers.getall("Accept", ())),
            agent=http.headers.get("User-Agent", ""),
            default=self.facts.settings.default_form,
        )
        form, rule = negotiate(asked)
        if rule.is_guess:
            http[FORM_RULE] = rule.name
        return form

    async def _events(self, http: web.Request, body: Mapping[str, Any]) -> web.StreamResponse:
        http[DIALECT] = "events"  # also on OpenAI's path
        request = self.facts.require_what_continue_needs(
            await parsed(http, events.parse, body, self.facts.defaults(http[CALLER]))
        )
        request = await self.facts.with_known_tools(request)
        with self.admission.reserve(http[CALLER]) as reservation:
            work = work_of(request, reservation, self.responder.max_held)
            return await self.responder.stream(
                http, work, lambda batch: events.render(batch, request.warnings)
            )

    async def _openai(self, http: web.Request, body: Mapping[str, Any]) -> web.StreamResponse:
        bodies = openai.prompts(body)
        if len(bodies) > 1:
            return await self._openai_many(http, bodies)
        request, form = await parsed(
            http, openai.parse, bodies[0], self.facts.defaults(http[CALLER]), self.facts.infill
        )
        origin = self.facts.origin(form.model)
        with self.admission.reserve(http[CALLER]) as reservation:
            request = await truncated(
                self.facts.require_what_continue_needs(request), form.limit, self.facts, reservation
            )
            work = work_of(request, reservation, self.responder.max_held, has_stop=True)
            if form.stream:
                render = openai.renderer(openai.Chunks(request, form, origin), request, form)
                return await self.responder.stream(http, work, render)
            answer = openai.builder(openai.Body(request, origin), request, form)
            return await self.responder.whole(http, work, answer)

    async def _openai_many(self, http: web.Request, bodies: list[Mapping[str, Any]]) -> web.StreamResponse:
        """Several prompts, each with n choices."""
        defaults, infill = self.facts.defaults(http[CALLER]), self.facts.infill
        read = [await parsed(http, openai.parse, body, defaults, infill) for body in bodies]
        form = read[0][1]
        if read[0][0].continue_ is not None:
            raise RequestError("continue names one sequence, so prompt must be one text", param="continue")
        origin = self.facts.origin(form.model)
        with self.admission.reserve(http[CALLER], len(read)) as reservation:
            told = [openai.unreported(request, form) for request, form in read]
            requests = [await truncated(request, form.limit, self.facts, reservation) for request in told]
            several = reservation.generate_all(requests)
            named = dict(zip((part.id for part in several.parts), requests, strict=True))
            work = self._work_of_many(several, named)
            if form.stream:
                return await self.responder.stream(
                    http, work, openai.ChunksOfMany(named, form, origin).frames
                )
            return await self.responder.whole(http, work, openai.BodyOfMany(named, origin))

    def _work_of_many(self, several: MultiGeneration, named: Mapping[str, CompletionRequest]) -> Work:
        """The work of several prompts. named: the requests by the ids of their generations."""
        max_held = self.responder.max_held // len(named)
        ranks = {id: ranking(request, max_held) for id, request in named.items()}
        n = next(iter(named.values())).n
        size = f"n={n} prompts={len(named)}"
        return Work(several, lambda batch: ranks[batch[0].id](batch), size, has_stop=True, echoes=n)  # type: ignore[union-attr]

    async def chat_completions(self, http: web.Request) -> web.StreamResponse:
        """n answers to a chat, in OpenAI's form."""
        request, form = await parsed(
            http, chat.parse, await self.bodies.read(http), self.facts.defaults(http[CALLER])
        )
        return await self._as_chat(http, await self.facts.with_known_tools(request), form)

    async def _as_chat(
        self, http: web.Request, request: CompletionRequest, form: openai.Form
    ) -> web.StreamResponse:
        """Answers with messages."""
        origin = self.facts.origin(form.model)
        with self.admission.reserve(http[CALLER]) as reservation:
            request = await truncated(request, form.limit, self.facts, reservation)
            form = form.verbose_by_default(self.facts.verbose)
            request = openai.asked(request, form)
            work = work_of(request, reservation, self.responder.max_held, has_stop=True)
            if form.stream:
                render = openai.renderer(chat.Chunks(request, form, origin), request, form)
                return await self.responder.stream(http, work, render)
            answer = openai.builder(chat.Body(request, origin), request, form)
            return await self.responder.whole(http, work, answer)

    async def responses(self, http: web.Request) -> web.StreamResponse:
        """One answer to a conversation, in the form of OpenAI's responses."""
        request, asked = await parsed(
            http, responses.parse, await self.bodies.read(http), self.facts.defaults(http[CALLER])
        )
        request = await self.facts.with_known_tools(request)
        origin = self.facts.origin(asked.form.model)
        with self.admission.reserve(http[CALLER]) as reservation:
            request = await truncated(request, asked.limit, self.facts, reservation)
            work = work_of(request, reservation, self.responder.max_held, has_stop=True)
            output = responses.Output(request, asked, origin)
            if asked.form.stream:
                return await self.responder.stream(http, work, responses.Frames(output).render)
            return await self.responder.whole(http, work, responses.Body(output))

    async def fim_completions(self, http: web.Request) -> web.StreamResponse:
        """n texts between a prompt and a suffix, in Mistral's form."""
        body, defaults = await self.bodies.read(http), self.facts.defaults(http[CALLER])
        request, form = await parsed(http, fim.parse, body, defaults, self.facts.infill)
        return await self._as_chat(http, request, form)

    async def prefix(self, http: web.Request) -> web.Response:
        """Prefills a prompt for a later request. If the client leaves before the end, this is cancelled."""
        body = await self.bodies.read(http)
        with self.admission.reserve(http[CALLER], yields=True) as reservation:
            return await self._prefix(http[CALLER], reservation, body)

    async def _prefix(self, caller: Caller, reservation: Reservation, body: dict[str, Any]) -> web.Response:
        if body.get("messages") is not None:
            arguments = await self.facts.known_tools(llamacpp.template_arguments(body))
            template = await reservation.command("template", **arguments)
            body = {**body, **dict.fromkeys(CHAT), "prompt": template["prompt"]}
        bodies = openai.prompts(body)
        if len(bodies) > 1:
            raise RequestError(f"prompt is a list of {len(bodies)} prompts; it must be one", param="prompt")
        request, form = openai.parse(bodies[0], self.facts.defaults(caller), self.facts.infill)
        self.facts.named_model(form.model)
        self.facts.require_what_keeps_prefixes(request)
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

    async def score(self, http: web.Request) -> web.Response:
        """Log-probabilities of several texts after one prompt."""
        read = functools.partial(scores.parse, strict=self.facts.settings.strict)
        request = await parsed(http, read, await self.bodies.read(http))
        answer = scores.Body(request, model=self.facts.named_model(request.model))
        return await self._run(http, "score", request.engine_fields(), len(request.texts), answer)

    async def embeddings(self, http: web.Request) -> web.Response:
        """Vectors of texts."""
        read = functools.partial(embeddings.parse, strict=self.facts.settings.strict)
        request = await parsed(http, read, await self.bodies.read(http))
        answer = embeddings.Body(request, self.facts.origin(request.model))
        return await self._run(http, "embed", request.engine_fields(), len(request.input), answer)

    async def _run(
        self, http: web.Request, op: str, fields: Mapping[str, Any], texts: int, answer: BodyBuilder
    ) -> web.Response:
        with self.admission.reserve(http[CALLER]) as reservation:
            work = Work(reservation.run(op, **fields), unranked, f"texts={texts}")
            return await self.responder.whole(http, work, answer)
