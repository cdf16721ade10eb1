"""What holds for a request while an engine has it: a value that whoever lets it in gives to the pool.

Knows neither keys nor HTTP. A pool ends what takes too long, and tells an observer what becomes of a request.
"""

from __future__ import annotations

from dataclasses import dataclass

from llama_srb.engine.events import Event
from llama_srb.engine.exchange import Exchange


class Observer:
    """Sees what becomes of an exchange, before its reader does; this one looks away."""

    def entered(self, exchange: Exchange) -> None:
        """The pool has it, and no engine yet. It may be ended now."""

    def told(self, exchange: Exchange, events: list[Event]) -> None:
        """Events that have come for it."""

    def over(self, exchange: Exchange) -> None:
        """It is done; exchange.last says how. Also of what never entered."""


NOBODY = Observer()


@dataclass(frozen=True, slots=True)
class TimeLimit:
    """When something ends, as the loop counts seconds; the name says how long that was, and whose wish."""

    at: float
    name: str
    only_waiting: bool = False  # what has begun by then goes on


@dataclass(frozen=True, slots=True)
class Terms:
    """Whose a request is, until when it may take, and who watches it."""

    client: str = ""  # clients take turns
    limits: tuple[TimeLimit, ...] = ()
    observer: Observer = NOBODY


OWN = Terms()
"""Of a question of the server itself: nobody's, without bounds, and uncounted."""
