"""From a request to a generation with its ranking."""

from __future__ import annotations

from llama_srb.engine.ranking import ranking
from llama_srb.http.handlers.facts import ServerFacts
from llama_srb.http.reservations import Reservation
from llama_srb.http.streaming import Work
from llama_srb.request.fields import CompletionRequest, Limit
from llama_srb.request.truncate import truncate_prompt


async def truncated(
    request: CompletionRequest, limit: Limit | None, facts: ServerFacts, reservation: Reservation
) -> CompletionRequest:
    """Truncates a prompt that is too long, if the client's API does so (`limit`)."""
    if limit is None or not facts.context:
        return request
    return await truncate_prompt(request, limit, facts.context, reservation.command)


def work_of(
    request: CompletionRequest,
    reservation: Reservation,
    max_held: int,
    *,
    has_stop: bool = False,
    shows_loading: bool = False,
) -> Work:
    """Makes the work of a request. max_held: tokens and alternatives that candidates may hold in memory.

    shows_loading: the answer has events about a load that the request waits for.
    """
    rank, generation = ranking(request, max_held), reservation.generate(request)
    generation.shows_loading = shows_loading
    return Work(generation, rank, f"n={request.n}", has_stop, echoes=request.n)
