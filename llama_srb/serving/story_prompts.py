"""A request with a story gets the prompt that is made of it, or its room if it continues a sequence.

Before a cut moves, the prompt behind the next cut is computed in a pause, at the lowest priority.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Sequence
from functools import partial

from llama_srb.background import begin
from llama_srb.engine.exchange import EngineError, EngineUnavailable
from llama_srb.request.fields import CompletionRequest, ContinueFits, Limit
from llama_srb.request.story.assembly import assembled, refuse_too_much, separate
from llama_srb.request.story.lore import Near
from llama_srb.request.story.meaning import with_near
from llama_srb.request.story.parts import Call
from llama_srb.request.story.shape import Story
from llama_srb.request.truncate import Command, PromptBudget
from llama_srb.request.values import RequestError
from llama_srb.serving.context import RequestContext
from llama_srb.serving.keys.caller import BATCH
from llama_srb.serving.model_facts import lore_embedder_of
from llama_srb.serving.vectors import vectors_by
from llama_srb.tasks import pieces_of

log = logging.getLogger(__name__)

NO_LIMIT = Limit("")
MAX_AHEAD = 64  # clients whose next prompts are computed, or were
PARTS = 4  # of the cells: a prompt that takes more than one of so many would evict the one that is in use


async def with_story(
    request: CompletionRequest, context: RequestContext, command: Command, limit: Limit | None = None
) -> CompletionRequest:
    """The request with its story's prompt; a request without a story stays as it is. RequestError.

    limit: of prompt and answer together, by the client's API.
    """
    story = request.story
    if story is None:
        return request
    await context.facts.known(command)
    room = await _room(request, context, command, limit or NO_LIMIT)
    if request.continue_ is not None:
        head = separate(story.memory, story.separator)
        refuse_too_much((await context.facts.counts.of([head], command))[0], room)
        fits = ContinueFits(room, head)
        return request.model_copy(update={"continue_fits": fits})
    assert isinstance(request.prompt, str)
    near = _near(story, context)
    made = await assembled(story, request.prompt, room, context.facts.counts, command, near)
    return request.model_copy(update={"prompt": made.prompt, "assembled": made})


def _near(story: Story, context: RequestContext) -> Near | None:
    """What finds entries by meaning, if some ask for it; RequestError if no loaded model can."""
    if all(entry.meaning is None for entry in story.lore):
        return None
    model = lore_embedder_of(context.models())

    async def near(calls: Sequence[Call], text: str) -> list[Call]:
        embed = partial(vectors_by, model.served, context)
        return await with_near(calls, story, text, model.longest, model.vectors, embed)

    return near


async def _room(request: CompletionRequest, context: RequestContext, command: Command, limit: Limit) -> int:
    """Tokens that the prompt may have beside the answer and the texts of the task."""
    facts, task = context.facts, context.task
    shared = facts.room(task if request.shares_cells else None)
    kept = PromptBudget.of(limit, shared, request).kept
    if task is None:
        return kept
    around = "".join(one.text for one in pieces_of(task, request.model_copy(update={"prompt": ""})))
    return max(1, kept - (await facts.counts.of([around], command))[0])


def compute_ahead(request: CompletionRequest, context: RequestContext) -> None:
    """Begins to compute the prompt behind the next cut of the request's story, if that is near."""
    made, ready = request.assembled, context.facts.pool.ready
    is_kept = context.facts.settings.engine_mode == "resident" and request.cache
    if made is None or not made.ahead or ready is None or not is_kept or ready.n_ctx < PARTS * made.room:
        return
    ahead, client, key = context.facts.ahead, context.caller.client, hash(made.ahead)
    last = ahead.get(client)  # a client gets one at a time, and each once: it pays for them
    if last is not None and (last[0] == key or not last[1].done()):
        return
    for done in [one for one, (_, task) in ahead.items() if task.done()][: len(ahead) - MAX_AHEAD + 1]:
        del ahead[done]
    if len(ahead) >= MAX_AHEAD:
        return
    caller = dataclasses.replace(context.caller.detached, priority=BATCH)
    request = request.model_copy(update={"prompt": made.ahead, "assembled": None, "echo": False})
    work = _compute(request, dataclasses.replace(context, caller=caller))
    ahead[client] = key, begin(work, "the prompt behind the next cut")


async def _compute(request: CompletionRequest, context: RequestContext) -> None:
    """Nobody waits for an error, and the next request would only take longer."""
    try:
        with context.reserve(yields=True) as reservation:
            prompt = await context.with_task(request, is_beginning=True)
            async with reservation.prefix(prompt) as generation:
                async for _ in generation:
                    pass
    except (RequestError, EngineError, EngineUnavailable) as error:
        log.debug("the prompt behind the next cut was not computed: %s", error)
