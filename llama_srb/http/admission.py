"""Who may ask the engine for something now: whatever reaches it for a client takes its places here first.

`with admission.reserve(caller) as places:` and then places.generate(request), …, is the only way to the pool;
only the server's own questions (terms.OWN) need no place. Nobody waits for one: there is one, or an error.
"""

from __future__ import annotations

import logging
from asyncio import get_running_loop
from collections.abc import Iterator, Mapping
from types import TracebackType
from typing import Any, Self

from llama_srb.engine.commands import encode_extend
from llama_srb.engine.events import Done, Embedding, Event, Extend, Result, Score, Start
from llama_srb.engine.exchange import Exchange
from llama_srb.engine.pool import Pool
from llama_srb.engine.pool.multi import MultiGeneration
from llama_srb.engine.pool.terms import Observer, Terms, TimeLimit
from llama_srb.http.auth.api_keys import Grant
from llama_srb.http.auth.caller import Caller
from llama_srb.http.limits import Budgets, Load
from llama_srb.http.observe.metrics import Clock, Metrics
from llama_srb.request.fields import CompletionRequest, Extension
from llama_srb.request.values import RequestError, wrong

log = logging.getLogger(__name__)

SHARE = 256  # requests of one connection among which the bound of unread events may be divided
QUEUE_RETRY = 5  # seconds after which a full queue is worth another try
TURN_RETRY = 1  # seconds after which one of a client's requests may be over


class Admission:
    """Counts what is here, by client and in all; beyond a bound it raises RequestError, 400, 429 or 503."""

    def __init__(self, pool: Pool, load: Load) -> None:
        self.pool = pool
        self.load = load
        self.metrics = Metrics()
        pool.engines.on_start = self.metrics.engine_started
        self.budgets = Budgets()
        self._open: set[Reservation] = set()

    def reserve(self, caller: Caller, count: int = 1, *, yields: bool = False) -> Reservation:
        """So many places for a caller, taken on entering the block; all or none.

        yields: it gives way to real requests, and is not counted among those that run at once.
        """
        return Reservation(self, caller, count, yields)

    async def extend(self, generation: Exchange, extension: Extension, caller: Caller) -> Extend | None:
        """More sequences for a generation, which has its place; None when it has just ended."""
        if (grant := caller.grant) is not None:
            _require_n("add", extension.add, generation.n, grant)
            self._require_tokens(grant)
        return await generation.extend(encode_extend(generation.id, extension), extension.add)

    # For reservations

    def take(self, places: Reservation) -> None:
        self._require_queue(places.count)
        if (grant := places.grant) is not None:
            if not places.yields:
                self._require_turn(grant, places.count)
            self._require_tokens(grant)
        self._open.add(places)

    def give_back(self, places: Reservation) -> None:
        self._open.discard(places)

    def behind(self, places: Reservation) -> int:
        """Events that wait for the reader of a connection, in all of its requests."""
        return sum(mine.unread for mine in self._open if mine.leave == places.leave)

    def _require_queue(self, count: int) -> None:
        waiting, most = sum(places.waiting for places in self._open), self.load.max_queue
        if waiting + count > most:
            said = f"{waiting} requests are waiting, which is the most (--max-queue)"
            if count > 1:
                said = (
                    f"{waiting} requests are waiting, and these are {count}; at most {most} may (--max-queue)"
                )
            again = QUEUE_RETRY if count <= max(1, most) else None
            raise RequestError(said, status=503, code="queue_full", retry_after=again)

    def _require_turn(self, grant: Grant, count: int) -> None:
        most, client = grant.concurrent, grant.client
        if most is None:
            return
        if sum(places.held for places in self._open if places.client == client) + count > most:
            these = "" if count == 1 else f"; these are {count}"
            message = f"{grant.name} may run {most} requests at once{these}"
            raise _too_much(message, TURN_RETRY if count <= most else None)

    def _require_tokens(self, grant: Grant) -> None:
        if grant.tokens_per_minute is None:
            return
        if wait := self.budgets.wait(grant.client, grant.tokens_per_minute):
            message = f"{grant.name} has spent its {grant.tokens_per_minute} tokens a minute"
            raise _too_much(f"{message}; it may go on in {wait} s", wait)


class Reservation(Observer):
    """Places of one client's request: what it asks the engine for is counted, timed, watched and paid here.

    A place is for one generation, prefix, score or embedding, and free when that is over, or with the end of
    the block if it was not used. A command that is answered at once borrows one. What the engine still works
    on after the block has its place until the engine says that it is over.
    """

    def __init__(self, admission: Admission, caller: Caller, count: int, yields: bool) -> None:
        self.grant, self.client = caller.grant, caller.client
        self.leave = caller.hang_up
        self.count, self.yields = count, yields
        self._admission = admission
        self._session = caller.session
        self._inside = False  # of its block
        self._unused = 0
        self._running: dict[Exchange, Clock] = {}
        self._terms = Terms()
        self._computed = 0  # tokens of what is no generation and has no done yet
        self._errands = 0  # tokens of commands, which are paid where they are all that was asked

    def __enter__(self) -> Self:
        self._admission.take(self)
        self._inside, self._unused = True, self.count
        self._terms = Terms(self.client, tuple(self._limits()), self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._inside, self._unused = False, 0
        self._end_if_over()

    def _limits(self) -> Iterator[TimeLimit]:
        load, now = self._admission.load, get_running_loop().time()
        for seconds, name, only_waiting in (
            (load.queue_timeout, "--queue-timeout", True),
            (load.request_timeout, "--request-timeout", False),
        ):
            if seconds is not None:
                yield TimeLimit(now + seconds, f"{seconds:g} s ({name})", only_waiting)

    def _end_if_over(self) -> None:
        if not self._inside and not self._running:
            self._admission.give_back(self)
            self._pay(self._errands)
            self._errands = 0

    # What it holds

    @property
    def held(self) -> int:
        """Of the requests that its client may run at once."""
        return 0 if self.yields else self._unused + len(self._running)

    @property
    def waiting(self) -> int:
        """Requests of which nothing has begun."""
        return self._unused + sum(exchange.waits for exchange in self._running)

    @property
    def unread(self) -> int:
        return sum(exchange.unread for exchange in self._running)

    # What it is for

    def generate(self, request: CompletionRequest) -> Exchange:
        """As the pool's; RequestError when the caller may not ask for so many continuations."""
        self._require_n(request)
        return self._admission.pool.generate(request, self._terms)

    def generate_all(self, requests: list[CompletionRequest]) -> MultiGeneration:
        for request in requests:
            self._require_n(request)
        return self._admission.pool.generate_all(requests, self._terms)

    def prefix(self, request: CompletionRequest) -> Exchange:
        return self._admission.pool.prefix(request, self._terms)

    def run(self, op: str, **arguments: Any) -> Exchange:
        return self._admission.pool.run(op, self._terms, **arguments)

    async def command(self, op: str, **arguments: Any) -> Mapping[str, Any]:
        self._errands += len(arguments.get("tokens", ()))
        return await self._admission.pool.command(op, self._terms, **arguments)

    def _require_n(self, request: CompletionRequest) -> None:
        if self.grant is not None:
            _require_n("n", request.candidates, 0, self.grant)

    # What becomes of it

    def entered(self, exchange: Exchange) -> None:
        if not self._unused:
            raise RuntimeError(f"more is asked for than the {self.count} that was reserved")
        self._unused -= 1
        self._running[exchange] = self._admission.metrics.clock()
        if self._session is not None:
            self._session.add(exchange, lambda refusal: exchange.fail(refusal.code or "", refusal.message))

    def told(self, exchange: Exchange, events: list[Event]) -> None:
        if (clock := self._running.get(exchange)) is None:
            return
        if exchange.n:
            clock.take(events)
        else:
            self._computed += sum(map(_computed, events))
        if exchange.unread > self._admission.load.max_unread // SHARE and not exchange.cancelled:
            self._require_reader(exchange)

    def _require_reader(self, exchange: Exchange) -> None:
        """A connection may have many requests; what counts is all that it is behind."""
        behind = self._admission.behind(self)
        if behind > self._admission.load.max_unread:
            log.warning("request %s: its reader is %d events behind", exchange.id, behind)
            exchange.cancel()
            self.leave()

    def over(self, exchange: Exchange) -> None:
        if self._running.pop(exchange, None) is None:
            return
        if self._session is not None:
            self._session.discard(exchange)
        if isinstance(exchange.last, Result):
            self._unused += self._inside  # a command's answer: what the place is for is still to come
            self._errands += _tokens_in(exchange.last)
        else:
            self._pay(_cost(exchange.last) or self._computed)
            self._errands = self._computed = 0
        self._end_if_over()

    def _pay(self, tokens: int) -> None:
        if tokens and self.grant is not None and self.grant.tokens_per_minute is not None:
            self._admission.budgets.spend(self.client, self.grant.tokens_per_minute, tokens)


def _cost(last: Event | None) -> int:
    """Tokens of what is done: the prompt's are paid, too."""
    return last.prompt_tokens + last.completion_tokens if isinstance(last, Done) else 0


def _computed(event: Event) -> int:
    """Tokens that the engine has looked at when it says this."""
    match event:
        case Start():
            return event.prompt_tokens
        case Score() | Embedding():
            return event.count
    return 0


def _tokens_in(answer: Result) -> int:
    tokens = answer.data.get("tokens")
    return len(tokens) if isinstance(tokens, list) else 0


def _require_n(name: str, wanted: int, running: int, grant: Grant) -> None:
    if grant.max_n is not None and running + wanted > grant.max_n:
        most = f"at most {max(0, grant.max_n - running)} for {grant.name}, whose max_n is {grant.max_n}"
        raise wrong(name, wanted, most)


def _too_much(message: str, wait: int | None) -> RequestError:
    return RequestError(message, status=429, code="rate_limit_exceeded", retry_after=wait)
