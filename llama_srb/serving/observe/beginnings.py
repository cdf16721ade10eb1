"""When the requests of a reservation have begun: the engine has accepted all of them and sends tokens."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from llama_srb.engine.events import Accepted, Error, Event, Loading, Progress, Prompt, Queued, Start
from llama_srb.engine.exchange import Exchange
from llama_srb.request.fields import CompletionRequest

OnBegun: TypeAlias = Callable[[CompletionRequest], None]
BEFORE_TOKENS = (Accepted, Error, Loading, Progress, Prompt, Queued, Start)


class Beginnings:
    """Calls on_begun for each of `count` requests when all of them have their first token."""

    def __init__(self, count: int, on_begun: OnBegun) -> None:
        self._count, self._on_begun = count, on_begun
        self._expected: dict[Exchange, CompletionRequest] = {}
        self._begun: list[CompletionRequest] = []

    def expect(self, exchange: Exchange, request: CompletionRequest) -> None:
        self._expected[exchange] = request

    def take(self, exchange: Exchange, events: list[Event]) -> None:
        """The exchange has received events."""
        if exchange not in self._expected or all(isinstance(event, BEFORE_TOKENS) for event in events):
            return
        self._begun.append(self._expected.pop(exchange))
        if len(self._begun) == self._count:
            for request in self._begun:
                self._on_begun(request)

    def discard(self, exchange: Exchange) -> None:
        """The exchange is over."""
        self._expected.pop(exchange, None)
