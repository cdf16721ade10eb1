"""The requests of a pool, by id and in order of arrival, until each has ended; and what ends them in time."""

from __future__ import annotations

import asyncio

from llama_srb.engine.exchange import Exchange
from llama_srb.engine.pool.engines import Change
from llama_srb.engine.pool.multi import MultiGeneration
from llama_srb.engine.pool.terms import Terms, TimeLimit
from llama_srb.request.values import wrong


class Requests:
    """All that have entered and are not done."""

    def __init__(self, change: Change) -> None:
        self.groups: dict[str, MultiGeneration] = {}  # by the id of the first generation
        self._open: dict[str, Exchange] = {}  # in order of arrival
        self._prefixes: dict[str, Exchange] = {}  # by client, whose last one is the only one that is wanted
        self._timers: dict[str, list[asyncio.TimerHandle]] = {}
        self._change = change

    def __len__(self) -> int:
        """Running or waiting."""
        return len(self._open)

    @property
    def waiting(self) -> list[Exchange]:
        """Those that no engine has, the oldest first."""
        return [exchange for exchange in self._open.values() if exchange.state == "new"]

    def generation(self, id: str) -> Exchange | None:
        """The generation of this id, if an engine has it, it is one, and it is not being cancelled."""
        exchange = self._open.get(id)
        if exchange is None or exchange.state != "active" or not exchange.n or id in self.groups:
            return None
        return exchange

    def cancel(self, id: str, index: int | None = None) -> bool:
        """Ends a request, or only the sequence `index`; False when no request has this id.

        RequestError when it has no such sequence.
        """
        exchange = self.groups.get(id) or self._open.get(id)
        if exchange is None:
            return False
        if index is not None and index >= exchange.n:
            raise wrong("index", index, f"at most {exchange.n - 1}, the last of {exchange.n}")
        exchange.cancel(index)
        return True

    def fail_all(self, code: str, message: str) -> None:
        """Ends all with an error."""
        _fail(list(self._open.values()), code, message)

    def fail_waiting(self, message: str) -> None:
        """Ends those that no engine has."""
        _fail(self.waiting, "unavailable", message)

    def enter(self, terms: Terms, exchange: Exchange) -> bool:
        """False when it is done already: its key has ended."""
        terms.observer.entered(exchange)
        if exchange.state != "new":
            return False
        self._open[exchange.id] = exchange
        loop, limits = asyncio.get_running_loop(), terms.limits
        if exchange.timeout:
            limits += (TimeLimit(loop.time() + exchange.timeout, f"{exchange.timeout:g} s (timeout)"),)
        self._timers[exchange.id] = [loop.call_at(one.at, _end_late, exchange, one) for one in limits]
        return True

    def replace_prefix(self, exchange: Exchange) -> None:
        """A client's newest one; the one before ends, if it is not done."""
        if (before := self._prefixes.get(exchange.client)) is not None:
            before.cancel()
        self._prefixes[exchange.client] = exchange

    def leave(self, terms: Terms, exchange: Exchange) -> None:
        """It is done."""
        self._open.pop(exchange.id, None)
        for timer in self._timers.pop(exchange.id, ()):
            timer.cancel()
        if self._prefixes.get(exchange.client) is exchange:
            del self._prefixes[exchange.client]
        terms.observer.over(exchange)
        self._change.tell()


def _fail(exchanges: list[Exchange], code: str, message: str) -> None:
    for exchange in exchanges:
        exchange.fail(code, message)


def _end_late(exchange: Exchange, limit: TimeLimit) -> None:
    """What has been generated stays with the client; half of anything else is of no use."""
    if exchange.waits:
        exchange.fail("timed_out", f"nothing of it had begun after {limit.name}")
    elif exchange.n and not limit.only_waiting:
        exchange.expire()
    elif not limit.only_waiting:
        exchange.fail("timed_out", f"it was not done after {limit.name}")
