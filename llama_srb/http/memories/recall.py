"""What a task recalls for a request: chunks that are near to the client's text."""

from __future__ import annotations

from dataclasses import replace

from llama_srb.http.handlers.chosen import Chosen
from llama_srb.http.middleware import recalled_chunks
from llama_srb.memory.filters import parse_filter
from llama_srb.request.fields import CompletionRequest, Recalled
from llama_srb.tasks import harmless, last_turn, query_of


async def with_recalled(request: CompletionRequest, chosen: Chosen) -> CompletionRequest:
    """The request with the chunks that its task recalls for the user's last turn, and what its memory gets.

    The memory gets it when the request's first token comes, so nothing of a request that is refused.
    """
    memories = chosen.memories
    if chosen.task is None or (recall := chosen.task.recall) is None or memories is None:
        return request
    text, caller = query_of(request), chosen.caller.accepted  # the request has its slot
    private = tuple(dict.fromkeys((*chosen.task.private_tokens, *request.private_tokens)))
    filter = parse_filter(recall.pre_filter or None, recall.post_filter or None)
    filter = replace(filter, lacking=private)
    found = await memories.recall(recall.memory, text, recall.retrieve, caller, filter, recall.prompts)
    named = [Recalled(recall.memory, one.id, one.document, round(one.score, 4), one.text) for one in found]
    chunks = harmless(named, private, text)
    recalled_chunks.set((*recalled_chunks.get(), *chunks))
    recalled = {**request.recalled, last_turn(request): chunks}
    to_store = (recall.memory, text) if recall.store_prompts and text.strip() else None
    return request.model_copy(update={"recalled": recalled, "to_store": to_store})
