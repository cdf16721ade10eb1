"""From a request to a generation with what its events go through."""

from __future__ import annotations

from llama_srb.engine.ranking import ranking
from llama_srb.http.admission import Reservation
from llama_srb.http.handlers.facts import ServerFacts
from llama_srb.http.streaming import Work
from llama_srb.request.fields import CompletionRequest, Limit
from llama_srb.request.truncate import fitted


async def truncated(
    request: CompletionRequest, limit: Limit | None, facts: ServerFacts, places: Reservation
) -> CompletionRequest:
    """A prompt that is too long is cut only where the client expects that."""
    if limit is None or not facts.context:
        return request
    return await fitted(request, limit, facts.context, places.command)


def work_of(
    request: CompletionRequest, places: Reservation, most_held: int, *, has_stop: bool = False
) -> Work:
    """most_held: tokens and alternatives to them that candidates may hold in memory."""
    rank = ranking(request, most_held)
    return Work(places.generate(request), rank, f"n={request.n}", has_stop, echoes=request.n)
