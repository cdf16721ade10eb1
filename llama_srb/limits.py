"""A pool that asks first whether a request may begin (its key, the queue), and ends what takes too long.

Everything that generates passes here, whatever its dialect and its transport.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass

from llama_srb import sessions
from llama_srb.keys import Grant, caller
from llama_srb.metrics import Clock, Metrics
from llama_srb.pool import EngineSettings, Exchange, Generation, Mode, Pool, TimeLimit
from llama_srb.protocol import Done, Event, Extend
from llama_srb.request import CompletionRequest, Extension
from llama_srb.sessions import Session
from llama_srb.values import RequestError, wrong

log = logging.getLogger(__name__)

MINUTE = 60.0
SHARE = 256  # requests of one connection among which the bound of unread events may be divided
QUEUE_RETRY = 5  # seconds after which a full queue is worth another try

address: ContextVar[str] = ContextVar("address", default="")
"""Where the request at hand comes from."""

hang_up: ContextVar[Callable[[], None]] = ContextVar("hang_up", default=lambda: None)
"""Ends the connection of the request at hand at once, whatever is still to be written."""


def current_client() -> str:
    """Whose the request at hand is: a key's, a token's, or where none is needed an address's."""
    grant = caller.get()
    return f"address {address.get()}" if grant is None else grant.client


@dataclass(frozen=True, slots=True)
class Load:
    """What a server lets pile up; times in seconds, None is no limit."""

    max_queue: int = 256
    max_unread: int = 250_000
    queue_timeout: float | None = None
    request_timeout: float | None = None


@dataclass(slots=True)
class Budget:
    """Tokens that flow in steadily and may be overdrawn once: what they cost is known only afterwards."""

    per_minute: float
    left: float
    at: float

    def refill(self, per_minute: int, now: float) -> None:
        self.per_minute = per_minute
        self.left = min(per_minute, self.left + (now - self.at) * per_minute / MINUTE)
        self.at = now

    @property
    def wait(self) -> int:
        """Whole seconds until there is something left."""
        return math.ceil(max(0.0, (1 - self.left) * MINUTE / self.per_minute))


class LimitedPool(Pool):
    """Pool's own table holds; what is beyond its caller's limits is a RequestError, 400 or 429."""

    def __init__(
        self,
        settings: EngineSettings,
        *,
        mode: Mode = "resident",
        max_engines: int = 4,
        load: Load = Load(),
    ) -> None:
        super().__init__(settings, mode=mode, max_engines=max_engines)
        self._load = load
        self.metrics = Metrics()
        self.on_engine_start = self.metrics.engine_started
        self._leaving: dict[str, Callable[[], None]] = {}  # what ends its connection, by an exchange's id
        self._callers: dict[str, Grant] = {}  # of what runs, by its id
        self._sessions: dict[str, Session] = {}  # with whose key it ends, by its id
        self._budgets: dict[str, Budget] = {}  # by client

    def generate(self, request: CompletionRequest) -> Generation:
        if (grant := caller.get()) is not None:
            self._require_n("n", request.candidates, 0, grant)
        self._require_place()
        return super().generate(request)

    async def extend(self, generation: Generation, extension: Extension) -> Extend | None:
        if (grant := caller.get()) is not None:
            self._require_n("add", extension.add, generation.n, grant)
        return await super().extend(generation, extension)

    def _require_n(self, name: str, wanted: int, running: int, grant: Grant) -> None:
        if grant.max_n is not None and running + wanted > grant.max_n:
            most = f"at most {max(0, grant.max_n - running)} for {grant.name}, whose max_n is {grant.max_n}"
            raise wrong(name, wanted, most)

    def _require_place(self) -> None:
        waiting = sum(exchange.waits for exchange in self._live.values() if exchange.n)
        if waiting >= self._load.max_queue:
            message = f"{waiting} requests are waiting, which is the most (--max-queue)"
            raise RequestError(message, status=503, code="queue_full", retry_after=QUEUE_RETRY)

    def _require_turn(self, grant: Grant) -> None:
        running = sum(one.client == grant.client for one in self._callers.values())
        if grant.concurrent is not None and running >= grant.concurrent:
            raise _too_much(f"{grant.name} may run {grant.concurrent} requests at once", 1)
        if grant.tokens_per_minute is None:
            return
        if wait := self._budget(grant.client, grant.tokens_per_minute).wait:
            message = f"{grant.name} has spent its {grant.tokens_per_minute} tokens a minute"
            raise _too_much(f"{message}; it may go on in {wait} s", wait)

    def _budget(self, client: str, per_minute: int) -> Budget:
        now = time.monotonic()
        budget = self._budgets.setdefault(client, Budget(per_minute, per_minute, now))
        budget.refill(per_minute, now)
        return budget

    def _exchange(
        self, id: str, line: bytes, n: int, on_enter: Callable[[Exchange], None] | None = None
    ) -> Exchange:
        if (grant := caller.get()) is not None:
            self._require_turn(grant)
        exchange = super()._exchange(id, line, n, on_enter)
        if n:
            exchange.on_events = self._watch(exchange, self.metrics.clock())
        return exchange

    def _watch(self, exchange: Exchange, clock: Clock) -> Callable[[list[Event]], None]:
        """Sees a generation's events before its reader does, who may be too slow for them."""

        def take(events: list[Event]) -> None:
            clock.take(events)
            if exchange.unread > self._load.max_unread // SHARE and not exchange.cancelled:
                self._require_reader(exchange)

        return take

    def _require_reader(self, exchange: Exchange) -> None:
        """A connection may have many requests; what counts is all that it is behind."""
        leave = self._leaving.get(exchange.id)
        mine = [one for one in self._live.values() if self._leaving.get(one.id) == leave]
        behind = sum(one.unread for one in mine)
        if leave is not None and behind > self._load.max_unread:
            log.warning("request %s: its reader is %d events behind", exchange.id, behind)
            exchange.cancel()
            leave()

    def _client(self) -> str:
        return current_client()

    def _limits(self, exchange: Exchange) -> list[TimeLimit]:
        load = self._load
        if not exchange.n:
            return []
        return [
            *super()._limits(exchange),
            (load.queue_timeout, "--queue-timeout", self._end_waiting),
            (load.request_timeout, "--request-timeout", self._end_late),
        ]

    def _take(self, exchange: Exchange) -> None:
        super()._take(exchange)
        if exchange.id not in self._live:  # it was cancelled before it was sent, and is over
            return
        self._leaving[exchange.id] = hang_up.get()
        if (grant := caller.get()) is not None:
            self._callers[exchange.id] = grant
        if (session := sessions.current.get()) is not None:
            self._sessions[exchange.id] = session
            session.add(exchange, lambda refusal: exchange.fail(refusal.code or "", refusal.message))

    def _forget(self, exchange: Exchange) -> None:
        super()._forget(exchange)
        self._leaving.pop(exchange.id, None)
        if (session := self._sessions.pop(exchange.id, None)) is not None:
            session.discard(exchange)
        grant = self._callers.pop(exchange.id, None)
        if grant is not None and grant.tokens_per_minute is not None and isinstance(exchange.last, Done):
            spent = exchange.last.prompt_tokens + exchange.last.completion_tokens
            self._budget(grant.client, grant.tokens_per_minute).left -= spent


def _too_much(message: str, wait: int) -> RequestError:
    return RequestError(message, status=429, code="rate_limit_exceeded", retry_after=wait)
