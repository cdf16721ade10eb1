"""The open requests of a pool, by id and in order of arrival, with their time limits.

A request waits until an engine has it. While the pool is held no engine gets one.
"""

from __future__ import annotations

import asyncio

from llama_srb.engine.exchange import Exchange
from llama_srb.engine.pool.engines import Change
from llama_srb.engine.pool.multi import MultiGeneration
from llama_srb.engine.pool.terms import OWN, Terms, TimeLimit
from llama_srb.request.values import wrong


class Requests:
    """The requests that have entered the pool and are not done."""

    def __init__(self, change: Change) -> None:
        self.groups: dict[str, MultiGeneration] = {}  # by the id of the first generation
        self.held = False  # no engine gets a request that waits
        self.last_used = 0.0  # when a client's request came or ended last, by the event loop's clock
        self._open: dict[str, Exchange] = {}  # in order of arrival
        self._prefixes: dict[str, Exchange] = {}  # each client's latest prefix command
        self._timers: dict[str, list[asyncio.TimerHandle]] = {}
        self._arrivals: dict[str, float] = {}  # by the event loop's clock
        self._own: set[str] = set()  # those of the server itself
        self._admitted: set[str] = set()  # requests for which an engine of their own loads
        self._change = change

    def __len__(self) -> int:
        """The number of running and waiting requests."""
        return len(self._open)

    @property
    def of_clients(self) -> int:
        """The number without the server's own commands."""
        return len(self._open) - len(self._own)

    def sequences(self, *, waiting: bool) -> int:
        """The sequences of the generations that wait and do not yield, or of those that have begun."""
        found = [one for one in self._open.values() if one.waits == waiting]
        return sum(one.n for one in found if not (waiting and one.yields))

    @property
    def waiting(self) -> list[Exchange]:
        """The requests without an engine, the oldest first."""
        return [one for one in self._open.values() if one.state == "new" and one.id not in self._admitted]

    @property
    def running(self) -> list[Exchange]:
        """The requests that an engine has, or for which one loads."""
        waiting = {exchange.id for exchange in self.waiting}
        return [exchange for exchange in self._open.values() if exchange.id not in waiting]

    @property
    def admissible(self) -> list[Exchange]:
        """The waiting requests that an engine may get now."""
        return [] if self.held else self.waiting

    @property
    def waiting_since(self) -> float | None:
        """When the oldest waiting request came, by the event loop's clock; None if none waits."""
        return next((self._arrivals[exchange.id] for exchange in self.waiting), None)

    def admit(self, exchange: Exchange) -> None:
        """An engine of its own loads for this request, which waits no more."""
        self._admitted.add(exchange.id)

    def generation(self, id: str) -> Exchange | None:
        """The running generation of this id; None if it waits, is being cancelled, or is another command."""
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

    def abort(self, client: str) -> int:
        """Ends a client's requests; those that yield, as a batch's do, go on. Returns how many there were.

        A generation keeps its texts so far; other commands have none, and get the error `cancelled`.
        """
        own = [
            one
            for one in self._open.values()
            if one.client == client and not one.yields and not one.cancelled
        ]
        for exchange in own:
            if exchange.n:
                exchange.cancel()
            else:
                exchange.fail("cancelled", "POST /v1/abort of the same client has ended it")
        return len(own)

    def fail_all(self, code: str, message: str) -> None:
        """Ends all requests with an error."""
        _fail(list(self._open.values()), code, message)

    def fail_waiting(self, message: str, code: str = "unavailable") -> None:
        """Ends the requests without an engine with an error."""
        _fail(self.waiting, code, message)

    def enter(self, terms: Terms, exchange: Exchange) -> bool:
        """Adds a request and starts its timers; False if the observer has ended it (its key was revoked)."""
        terms.observer.entered(exchange)
        if exchange.state != "new":
            return False
        self._open[exchange.id] = exchange
        loop, limits = asyncio.get_running_loop(), terms.limits
        self._arrivals[exchange.id] = loop.time()
        self._use(terms, exchange)
        if terms is OWN:
            self._own.add(exchange.id)
        if exchange.timeout:
            limits += (TimeLimit(loop.time() + exchange.timeout, f"{exchange.timeout:g} s (timeout)"),)
        self._timers[exchange.id] = [loop.call_at(one.at, _end_late, exchange, one) for one in limits]
        return True

    def replace_prefix(self, exchange: Exchange) -> None:
        """Keeps a client's latest prefix command, and cancels the one before if it is not done."""
        if (before := self._prefixes.get(exchange.client)) is not None:
            before.cancel()
        self._prefixes[exchange.client] = exchange

    def leave(self, terms: Terms, exchange: Exchange) -> None:
        """Removes a request that is done."""
        self._open.pop(exchange.id, None)
        self._own.discard(exchange.id)
        self._arrivals.pop(exchange.id, None)
        self._admitted.discard(exchange.id)
        self._use(terms, exchange)
        for timer in self._timers.pop(exchange.id, ()):
            timer.cancel()
        if self._prefixes.get(exchange.client) is exchange:
            del self._prefixes[exchange.client]
        terms.observer.over(exchange)
        self._change.notify()

    def _use(self, terms: Terms, exchange: Exchange) -> None:
        """Remembers the time, unless the request is the server's own: its questions keep no model loaded."""
        if terms is not OWN:
            self.last_used = exchange.ending.get_loop().time()


def _fail(exchanges: list[Exchange], code: str, message: str) -> None:
    for exchange in exchanges:
        exchange.fail(code, message)


def _end_late(exchange: Exchange, limit: TimeLimit) -> None:
    """Ends a request at a time limit: a generation keeps its text so far, other commands get an error."""
    if exchange.waits:
        exchange.fail("timed_out", f"it had not begun after {limit.name}")
    elif exchange.n and not limit.only_waiting:
        exchange.expire()
    elif not limit.only_waiting:
        exchange.fail("timed_out", f"it was not done after {limit.name}")
