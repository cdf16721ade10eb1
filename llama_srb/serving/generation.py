"""The way of a request to its generation, whatever its protocol.

choose the model   model_registry.choose(): the context, with the task and the defaults
parse              a dialect's parse(), with the context's body and defaults
admit              `with context.reserve() as reservation:`
prompt             prepared(): recalled chunks, the story, the task's texts, tools, truncated
command            reservation.generate(): the pool encodes it
exchange           running.opened(): the block sends it, and has its events
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import orjson

from llama_srb.engine.exchange import Exchange
from llama_srb.engine.ranking import Rank, joining, ranking
from llama_srb.engine.ranking.judging import JUDGED_AT_ONCE, likelihoods, margins
from llama_srb.engine.ranking.orders import Helpers
from llama_srb.models.served import ServedModel
from llama_srb.request import shapes
from llama_srb.request.fields import CHAT, CompletionRequest, Limit
from llama_srb.request.shapes import cells_fields
from llama_srb.request.truncate import Command, truncate_prompt
from llama_srb.request.values import RequestError
from llama_srb.serving.admission import Reservation
from llama_srb.serving.bodies import without_stalling
from llama_srb.serving.context import RequestContext
from llama_srb.serving.recall import with_recalled
from llama_srb.serving.running import Work
from llama_srb.serving.story_prompts import compute_ahead, with_story
from llama_srb.serving.vectors import relevance_by, vectors_by

MOST_ANSWERED = 2000  # characters of a prompt: encoders take 512 tokens of both texts, as a rule


async def generation_of(
    request: CompletionRequest,
    context: RequestContext,
    reservation: Reservation,
    max_held: int,
    limit: Limit | None = None,
    *,
    has_stop: bool = False,
    as_events: bool = False,
) -> tuple[Work, CompletionRequest]:
    """The generation of a request that was parsed and admitted, and the request as the engine gets it.

    max_held: tokens and alternatives that candidates may hold in memory. limit: a longer prompt is truncated,
    as the client's API does; None: it is not. as_events: the answer is the event stream, which has events
    about a load that the request waits for, and between two answers of a sequence.
    """
    request = await prepared(request, context, reservation, limit)
    generation = reservation.generate(request, shows_loading=as_events)
    rank = rank_of(request, context, max_held, generation)
    rank = rank if as_events else joining(request, rank)
    echoes = 1 if request.messages is not None else request.n  # a chat has the prompt once
    return Work(generation, rank, f"n={request.n}{reservation.about}", has_stop, echoes), request


def is_ready(request: CompletionRequest, context: RequestContext) -> bool:
    """Whether prepared() leaves a request as it is, so that its command may be encoded at once."""
    is_whole = request.story is None and not _lacks_query(request)
    return context.task is None and is_whole and not context.facts.tools.may_change(request)


async def prepared(
    request: CompletionRequest,
    context: RequestContext,
    reservation: Reservation,
    limit: Limit | None = None,
) -> CompletionRequest:
    """The request as the engine gets it: with what was recalled, its story, its task's texts, in its room.

    RequestError if it continues another model's sequence, or no model can rank it. limit: of generation_of().
    """
    facts = context.facts
    if request.continue_ is not None or request.rank_by is not None:
        context.check(request)
    if context.memories is not None:
        request = await with_recalled(request, context)
    if request.story is not None:
        request = await with_story(request, context, reservation.command, limit)
        compute_ahead(request, context)
    if context.task is not None:
        request = await context.with_task(request)
    if request.messages is not None:
        request = await facts.tools.for_request(request, reservation.command)
    if _lacks_query(request):
        request = await without_stalling(request.prompt_length, _with_query, request)
    if limit is None:
        return request
    await facts.known(reservation.command)
    room = shared = facts.room()
    if context.task is not None:
        limit = replace(limit, head=context.task.prelude)
        shared = facts.room(context.task) if request.messages is None and request.shares_cells else room
    return await truncate_prompt(request, limit, room, reservation.command, shared - room)


async def without_messages(
    request: CompletionRequest, context: RequestContext, command: Command
) -> CompletionRequest:
    """The request with a prompt in place of messages; it has parts if their contents are plain."""
    if request.messages is None:
        return request
    arguments = {name: value for name, value in request.engine_fields().items() if name in CHAT}
    made = await command("template", **await context.facts.tools.for_arguments(arguments, command))
    prompt = shapes.prompt(made.get("parts", made["prompt"]))
    return request.model_copy(update={**dict.fromkeys(CHAT), "prompt": prompt})


def rank_of(
    request: CompletionRequest, context: RequestContext, max_held: int | None, generation: Exchange
) -> Rank:
    """The ranking of a generation's events; reservations of its caller run the models that it needs."""
    by = request.rank_by
    is_read = isinstance(request.prompt, str) and request.truncate_prompt_tokens is None
    if by is not None and by.name == "following" and not is_read:
        message = "rank_by is following, which needs a prompt that the model reads as it was sent:"
        raise RequestError(f"{message} not that of a task, and none that was cut to fit", param="rank_by")

    async def embed(texts: Sequence[str]) -> list[Sequence[float]]:
        assert by is not None
        return await vectors_by(context.embedder(by), context, texts)

    def scoring(model: ServedModel, n_texts: int) -> Reservation:
        caller, count = context.caller.accepted, min(n_texts, JUDGED_AT_ONCE)
        return context.admission.reserve(caller, model, count, again=True, owed=True)

    async def judge(texts: Sequence[str]) -> list[float]:
        assert by is not None
        if not texts:
            return []
        with scoring(context.judge(by), len(texts)) as reservation:
            salt = cells_fields(None, request.cache_salt)
            return await margins(reservation, texts, by.question, by.answers, JUDGED_AT_ONCE, salt)

    async def follow(texts: Sequence[str]) -> list[float]:
        assert by is not None
        assert by.text is not None
        if not texts:
            return []
        with scoring(context.facts.served, len(texts)) as reservation:
            prompt, cells = str(request.prompt), cells_fields(request.lora, request.cache_salt)
            return await likelihoods(reservation, texts, prompt, by.text, JUDGED_AT_ONCE, cells)

    async def reward(texts: Sequence[str]) -> list[float]:
        assert by is not None
        assert by.query is not None
        return await relevance_by(context.ranker(by), context, by.query, texts)

    return ranking(request, max_held, Helpers(embed, judge, follow, reward), generation.end_surplus)


def _lacks_query(request: CompletionRequest) -> bool:
    by = request.rank_by
    return by is not None and by.name == "reward" and by.query is None


def _with_query(request: CompletionRequest) -> CompletionRequest:
    """The request, whose texts are ranked as answers to what its prompt ends with; RequestError."""
    assert request.rank_by is not None
    if not (query := _answered_by(request)):
        message = "rank_by.reward.query is missing, and the prompt is no text that is answered"
        raise RequestError(message, param="rank_by.reward.query")
    return request.model_copy(update={"rank_by": replace(request.rank_by, query=query)})


def _answered_by(request: CompletionRequest) -> str:
    """What the texts answer: the end of the prompt, or of a chat the user's last message; or nothing."""
    if request.messages is None:
        return request.prompt[-MOST_ANSWERED:] if isinstance(request.prompt, str) else ""
    said = [one.get("content") for one in orjson.loads(request.messages) if one.get("role") == "user"]
    return said[-1][-MOST_ANSWERED:] if said and isinstance(said[-1], str) else ""
