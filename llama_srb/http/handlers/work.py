"""From a request to a generation with its ranking."""

from __future__ import annotations

from llama_srb.engine.ranking import ranking
from llama_srb.http.handlers.chosen import Chosen
from llama_srb.http.reservations import Reservation
from llama_srb.http.streaming import Work
from llama_srb.request.fields import CompletionRequest, Limit
from llama_srb.request.truncate import truncate_prompt


async def prepared(
    request: CompletionRequest, chosen: Chosen, reservation: Reservation, limit: Limit | None = None
) -> CompletionRequest:
    """The request as the engine gets it: without tools that the model's template does not know.

    limit: a longer prompt is truncated, as the client's API does; None: it is not.
    """
    facts, request = chosen.facts, chosen.checked(request)
    request = await facts.tools.for_request(request, reservation.command)
    if limit is None:
        return request
    await facts.known(reservation.command)
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
    return Work(generation, rank, f"n={request.n}{reservation.about}", has_stop, echoes=request.n)
