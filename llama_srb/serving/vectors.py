"""The vectors that a request needs, by another model than its own, with a reservation of its caller."""

from __future__ import annotations

from collections.abc import Sequence

from llama_srb.memory.embedding import relevance, vectors
from llama_srb.models.served import ServedModel
from llama_srb.request.values import MAX_EMBEDDED
from llama_srb.serving.context import RequestContext


async def vectors_by(
    model: ServedModel, context: RequestContext, texts: Sequence[str]
) -> list[Sequence[float]]:
    """A vector for each text; the request has its slot already."""
    found: list[Sequence[float]] = []
    caller = context.caller.accepted
    with context.admission.reserve(caller, model, yields=True, again=True, owed=True) as reservation:
        for part in range(0, len(texts), MAX_EMBEDDED):
            found += await vectors(reservation, texts[part : part + MAX_EMBEDDED])
    return found


async def relevance_by(
    model: ServedModel, context: RequestContext, query: str, texts: Sequence[str]
) -> list[float]:
    """How well each text answers; the request has its slot already."""
    found: list[float] = []
    caller = context.caller.accepted
    with context.admission.reserve(caller, model, yields=True, again=True, owed=True) as reservation:
        for part in range(0, len(texts), MAX_EMBEDDED):
            found += await relevance(reservation, query, texts[part : part + MAX_EMBEDDED])
    return found
