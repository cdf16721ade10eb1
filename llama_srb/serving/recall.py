"""What a task recalls for a request: chunks that are near to the client's text."""

from __future__ import annotations

import logging
from contextvars import ContextVar
from dataclasses import replace

from llama_srb.memory.filters import parse_filter
from llama_srb.request.fields import CompletionRequest, Recalled
from llama_srb.serving.context import RequestContext
from llama_srb.tasks import harmless, last_turn, query_of

log = logging.getLogger(__name__)

recalled_chunks: ContextVar[tuple[Recalled, ...]] = ContextVar("recalled_chunks", default=())
"""The chunks that a task has recalled for the request."""


async def with_recalled(request: CompletionRequest, context: RequestContext) -> CompletionRequest:
    """The request with the chunks that its task recalls for the user's last turn, and what its memory gets.

    The memory gets it when the request's first token comes, so nothing of a request that is refused.
    """
    memories = context.memories
    if context.task is None or (recall := context.task.recall) is None or memories is None:
        return request
    text, caller = query_of(request), context.caller.accepted  # the request has its slot
    private = tuple(dict.fromkeys((*context.task.private_tokens, *request.private_tokens)))
    filter = parse_filter(recall.pre_filter or None, recall.post_filter or None)
    bounds: list[str] = []
    filter = replace(
        filter,
        lacking=private,
        on_bound=bounds.append,
        per_document=recall.per_document,
        diversity=recall.diversity,
    )
    found = await memories.recall(
        recall.memory, text, recall.retrieve, caller, filter, recall.prompts, recall.search, recall.around
    )
    named = [
        Recalled(
            recall.memory,
            one.id,
            one.document,
            None if one.score is None else round(one.score, 4),
            one.text_with_headings if recall.headings else one.text,
            {name: round(score, 4) for name, score in one.scores.known().items()},
        )
        for one in found
    ]
    chunks = harmless(named, private, text)
    recalled_chunks.set((*recalled_chunks.get(), *chunks))
    recalled = {**request.recalled, last_turn(request): chunks}
    warnings = request.warnings
    if bounds:  # the filter is the operator's, and the memory too: the client can do nothing about it
        log.warning(
            "task %s: memory %s: only the chunks that came first: %s",
            context.task.name,
            recall.memory,
            bounds[0],
        )
        warnings = (*warnings, f"memory {recall.memory} was not searched to its end")
    to_store = (recall.memory, text) if recall.store_prompts and text.strip() else None
    return request.model_copy(update={"recalled": recalled, "to_store": to_store, "warnings": warnings})
