"""The terms of a request: its client, its time limits and its observer, as a value that admission makes.

Knows neither keys nor HTTP. The pool enforces the time limits and calls the observer.
"""

from __future__ import annotations

from dataclasses import dataclass

from llama_srb.engine.events import Event
from llama_srb.engine.exchange import Exchange


class Observer:
    """Is called for an exchange's events, before its reader gets them. This base class does nothing."""

    def entered(self, exchange: Exchange) -> None:
        """The pool has the exchange, but no engine has it yet. The observer may end it here."""

    def received(self, exchange: Exchange, events: list[Event]) -> None:
        """The exchange has received events."""

    def over(self, exchange: Exchange) -> None:
        """The exchange is done; exchange.last says how. Also called if it never entered the pool."""


NOBODY = Observer()


@dataclass(frozen=True, slots=True)
class TimeLimit:
    """When a request is ended. The name has the seconds and the setting, for the message."""

    at: float  # in seconds of the event loop's clock
    name: str
    only_waiting: bool = False  # it ends the request only if that has not begun


@dataclass(frozen=True, slots=True)
class Terms:
    """A request's client, time limits, observer and priority."""

    client: str = ""  # requests are scheduled fairly between clients
    limits: tuple[TimeLimit, ...] = ()
    observer: Observer = NOBODY
    priority: int = 0  # requests of a higher number wait for all others


OWN = Terms()
"""The terms of the server's own commands: no client, no limits, no counts."""
