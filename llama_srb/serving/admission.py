"""Admission: which clients' requests the pool gets now. Each request needs a reservation of slots.

`with admission.reserve(caller, model) as reservation:` and then reservation.generate(request), … is the only
way to a model's pool; only the server's own commands (terms.OWN) need no slot. No request waits for a slot:
it gets one, or an error.
"""

from __future__ import annotations

import logging
from asyncio import get_running_loop
from collections import Counter
from collections.abc import Iterator, Mapping
from types import TracebackType
from typing import Any, Self

from llama_srb.engine.commands import encode_extend
from llama_srb.engine.events import Done, Embedding, Event, Extend, Result, Score, Start
from llama_srb.engine.exchange import CommandRefused, Exchange
from llama_srb.engine.pool.engines import Change
from llama_srb.engine.pool.multi import MultiGeneration
from llama_srb.engine.pool.terms import Observer, Terms, TimeLimit
from llama_srb.models.names import RequestIds
from llama_srb.models.served import ServedModel
from llama_srb.request.fields import CompletionRequest, Extension
from llama_srb.request.values import RequestError, wrong
from llama_srb.serving.keys.api_keys import Grant, Key
from llama_srb.serving.keys.caller import Caller
from llama_srb.serving.limits import Budgets, Load
from llama_srb.serving.observe.beginnings import Beginnings, OnBegun
from llama_srb.serving.observe.metrics import Metrics
from llama_srb.serving.observe.model_metrics import Clock, ModelMetrics
from llama_srb.serving.observe.request_metrics import OTHER, Labels, adapter_label

log = logging.getLogger(__name__)


SHARE = (
    256  # the most requests of one WebSocket: fewer unread events than max_unread / SHARE are never too many
)
QUEUE_RETRY = 5  # seconds until a full queue may have room
DRAIN_RETRY = 5  # seconds until a proxy may have found another server, or this one may have started again
SLOT_RETRY = 1  # seconds until one of a client's requests may have ended


class Admission:
    """Counts slots, queued requests and tokens; above a limit it raises RequestError with 400, 429 or 503.

    is_draining: new requests get 503; those that were accepted finish. change: of is_draining, and of open.
    """

    def __init__(self, load: Load, *, by_model: bool = False) -> None:
        self.load = load
        self.metrics = Metrics(by_model=by_model)
        self.ids = RequestIds()
        self.budgets = Budgets()
        self.is_draining, self.change = False, Change()
        self._open: set[Reservation] = set()
        self._queued = 0  # the requests of those that count in the queue, waiting or not

    @property
    def open(self) -> int:
        """The reservations that are held: by requests that run, wait or are being read."""
        return len(self._open)

    def require_no_drain(self, caller: Caller) -> None:
        """RequestError 503 while the server drains, unless the caller's request was accepted before."""
        if self.is_draining and not caller.is_accepted:
            message = "the server drains: it takes no new requests"
            raise RequestError(message, status=503, code="draining", retry_after=DRAIN_RETRY)

    def reserve(
        self,
        caller: Caller,
        model: ServedModel,
        count: int = 1,
        *,
        yields: bool = False,
        again: bool = False,
        owed: bool = False,
        inner: bool = False,
        on_begun: OnBegun | None = None,
        dialect: str = "",
    ) -> Reservation:
        """Returns a reservation of `count` slots, which are granted all or none when its block is entered.

        yields: the engine runs other requests first, so it does not count as one of those that run at once.
        again: a slot is free for another request of the block when its request is over.
        owed: a request that was accepted needs it, so no limit refuses or ends it; its tokens count.
        inner: a request that has its slot needs it: that one counts in the queue and at once, not this one.
        on_begun: called for each request, when all generations of the block have their first token. dialect:
        of the answer, if it is another one than the path's.
        """
        return Reservation(self, caller, model, count, yields, again, owed, inner, on_begun, dialect)

    async def extend(self, generation: Exchange, extension: Extension, caller: Caller) -> Extend | None:
        """Adds sequences to a generation, which has its slot already; None if it has just ended."""
        if (grant := caller.grant) is not None:
            _require_n("add", extension.add, generation.n, grant)
            self._require_tokens(grant)
        return await generation.extend(encode_extend(generation.id, extension), extension.add)

    # For reservations

    def grant(self, reservation: Reservation) -> None:
        if not reservation.owed:
            self._require_room(reservation)
        self._open.add(reservation)
        self._queued += reservation.is_queued * reservation.count

    def release(self, reservation: Reservation) -> None:
        self._open.remove(reservation)
        self._queued -= reservation.is_queued * reservation.count
        self.change.notify()

    def unread_on_connection(self, reservation: Reservation) -> int:
        """Events that wait for the reader of the reservation's connection, in all of its requests."""
        return sum(other.unread for other in self._open if other.hang_up == reservation.hang_up)

    def _require_room(self, reservation: Reservation) -> None:
        self.require_no_drain(reservation.caller)
        if reservation.is_queued:
            self._require_queue(reservation)
        if (grant := reservation.grant) is not None:
            if not reservation.yields:
                self._require_slots(grant, reservation.count)
            self._require_tokens(grant)

    def _require_queue(self, reservation: Reservation) -> None:
        """RequestError if the queue is full, unless its client holds less than its share of it."""
        if self._queued + reservation.count <= self.load.max_queue:
            return
        waiting = Counter({reservation.client: 0})
        for one in self._open:
            if one.is_queued and (count := one.waiting):
                waiting[one.client] += count
        count, limit, total = reservation.count, self.load.max_queue, waiting.total()
        share = limit // len(waiting)
        if total + count <= limit or waiting[reservation.client] + count <= share:
            return
        these = "" if count == 1 else f", and these are {count}"
        each = "" if len(waiting) == 1 else f", or {share} of each client that waits"
        message = f"{total} requests are waiting{these}; at most {limit} may (--max-queue){each}"
        retry_after = QUEUE_RETRY if count <= max(1, limit) else None
        raise RequestError(message, status=503, code="queue_full", retry_after=retry_after)

    def _require_slots(self, grant: Grant, count: int) -> None:
        limit, client = grant.concurrent, grant.client
        if limit is None:
            return
        if sum(one.slots for one in self._open if one.client == client) + count > limit:
            these = "" if count == 1 else f"; these are {count}"
            message = f"{grant.name} may run {limit} requests at once{these}"
            raise _too_much(message, SLOT_RETRY if count <= limit else None)

    def _require_tokens(self, grant: Grant) -> None:
        if grant.tokens_per_minute is None:
            return
        if wait := self.budgets.wait(grant.client, grant.tokens_per_minute):
            message = f"{grant.name} has spent its {grant.tokens_per_minute} tokens a minute"
            raise _too_much(f"{message}; try again in {wait} s", wait)


class Reservation(Observer):
    """The slots of one client's request. It counts the requests in them, their time and tokens.

    A slot is for one generation, prefix, score or embedding. It is free again when the engine reports the
    end, which may come after the block. An unused slot is free when the block is left. A command that is
    answered at once borrows a slot.
    """

    def __init__(
        self,
        admission: Admission,
        caller: Caller,
        model: ServedModel,
        count: int,
        yields: bool,
        again: bool = False,
        owed: bool = False,
        inner: bool = False,
        on_begun: OnBegun | None = None,
        dialect: str = "",
    ) -> None:
        self._model, self._pool, self._again = model, model.pool, again
        self._dialect = dialect or caller.dialect
        self.caller, self.grant, self.client = caller, caller.grant, caller.client
        self.hang_up = caller.hang_up
        self.owed, self.is_item = owed, caller.is_item or owed
        self.is_queued = not (inner or self.is_item)  # it counts in the queue
        self.count, self.yields = count, yields or inner or self.is_item
        self._beginnings = Beginnings(count, on_begun) if on_begun is not None else None
        self._admission = admission
        self._in_block = False
        self._unused = 0
        self._adapters: dict[Exchange, str] = {}  # labels of generations that have not entered the pool
        self._running: dict[Exchange, Clock] = {}
        self._terms = Terms()
        self._computed = 0  # tokens of a prefix, score or embedding that is not done
        self._command_tokens = 0  # tokens of commands; paid only if nothing else was run

    def __enter__(self) -> Self:
        self._admission.grant(self)
        self._model.begin_use()
        self._in_block, self._unused = True, self.count
        self._terms = Terms(self.client, tuple(self._limits()), self, self.caller.priority)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._in_block, self._unused = False, 0
        self._end_if_over()
        self._model.end_use()

    def _limits(self) -> Iterator[TimeLimit]:
        if self.is_item:
            return  # it waits for all others; its batch has a time limit
        load, now = self._admission.load, get_running_loop().time()
        for seconds, name, only_waiting in (
            (load.queue_timeout, "--queue-timeout", True),
            (load.request_timeout, "--request-timeout", False),
        ):
            if seconds is not None:
                yield TimeLimit(now + seconds, f"{seconds:g} s ({name})", only_waiting)

    def _end_if_over(self) -> None:
        if not self._in_block and not self._running:
            self._admission.release(self)
            self._pay(self._command_tokens)
            self._command_tokens = 0

    @property
    def about(self) -> str:
        """The model's name for the log, if there are several."""
        return f" model={self._model.name}" if self._admission.metrics.by_model else ""

    # Counts

    @property
    def _metrics(self) -> ModelMetrics:
        return self._admission.metrics.of(self._model.name)

    @property
    def slots(self) -> int:
        """The slots in use, of those that its client may have at once."""
        return 0 if self.yields else self._unused + len(self._running)

    @property
    def waiting(self) -> int:
        """The number of requests that have not begun."""
        return self._unused + sum(exchange.waits for exchange in self._running)

    @property
    def unread(self) -> int:
        return sum(exchange.unread for exchange in self._running)

    # The pool's methods

    def generate(self, request: CompletionRequest, *, shows_loading: bool = False) -> Exchange:
        """As Pool.generate(); RequestError if n exceeds the caller's max_n."""
        self._require_n(request)
        generation = self._pool.generate(request, self._terms, shows_loading=shows_loading)
        self._adapters[generation] = _adapter_of(request, self._model)
        if self._beginnings is not None:
            self._beginnings.expect(generation, request)
        self.caller.trace.asked(request, self._model.name)
        return generation

    def generate_all(self, requests: list[CompletionRequest]) -> MultiGeneration:
        for request in requests:
            self._require_n(request)
        several = self._pool.generate_all(requests, self._terms)
        for generation, request in zip(several.parts, requests, strict=True):
            self._adapters[generation] = _adapter_of(request, self._model)
            if self._beginnings is not None:
                self._beginnings.expect(generation, request)
        self.caller.trace.asked(requests[0], self._model.name)
        return several

    def prefix(self, request: CompletionRequest) -> Exchange:
        return self._pool.prefix(request, self._terms)

    def run(self, op: str, **arguments: Any) -> Exchange:
        self.caller.trace.ran(op, self._model.name)
        return self._pool.run(op, self._terms, **arguments)

    async def command(self, op: str, **arguments: Any) -> Mapping[str, Any]:
        self._command_tokens += len(arguments.get("tokens", ()))
        try:
            return await self._pool.command(op, self._terms, **arguments)
        except CommandRefused:
            self._unused += self._in_block  # it has only borrowed the slot
            raise

    def _require_n(self, request: CompletionRequest) -> None:
        if self.grant is not None:
            name = "n" if request.candidates == request.n else "best_of"
            _require_n(name, request.candidates, 0, self.grant)

    # The pool's observer

    def entered(self, exchange: Exchange) -> None:
        if not self._unused:
            raise RuntimeError(f"more requests run than the {self.count} that were reserved")
        self._unused -= 1
        labels = Labels(self._dialect, self._adapters.pop(exchange, ""))
        self._running[exchange] = self._metrics.clock(labels)
        if exchange.n:
            self._admission.ids.add(exchange.id, self._model.name)
        if (session := self.caller.session) is not None:
            session.add(exchange, lambda refusal: exchange.fail(refusal.code or "", refusal.message))

    def received(self, exchange: Exchange, events: list[Event]) -> None:
        if (clock := self._running.get(exchange)) is None:
            return
        if self._beginnings is not None:
            self._beginnings.take(exchange, events)
        if exchange.n:
            clock.take(events)
            if self.caller.trace.takes_texts:
                self.caller.trace.took(exchange.id, events)
        else:
            self._computed += sum(map(_computed, events))
        if exchange.unread > self._admission.load.max_unread // SHARE and not exchange.cancelled:
            self._require_reader(exchange)

    def _require_reader(self, exchange: Exchange) -> None:
        """Ends the connection if too many events, of all of its requests together, are unread."""
        unread = self._admission.unread_on_connection(self)
        if unread > self._admission.load.max_unread:
            log.warning("request %s: its client has %d unread events", exchange.id, unread)
            exchange.cancel()
            self.hang_up()

    def over(self, exchange: Exchange) -> None:
        if self._beginnings is not None:
            self._beginnings.discard(exchange)
        if (clock := self._running.pop(exchange, None)) is None:
            return
        if exchange.n:
            clock.over(exchange.last, exchange.n)
            self.caller.trace.ended(exchange.id, clock, exchange.last)
        if self.caller.session is not None:
            self.caller.session.discard(exchange)
        if isinstance(exchange.last, Result):
            self._unused += self._in_block  # a command only borrows the slot
            self._command_tokens += _tokens_in(exchange.last)
        else:
            self._unused += self._in_block and self._again
            self._pay(_cost(exchange.last) or self._computed)
            self._command_tokens = self._computed = 0
        self._end_if_over()

    def _pay(self, tokens: int) -> None:
        if not tokens:
            return
        self._metrics.spent(_key_label(self.grant), tokens)
        if self.grant is not None and self.grant.tokens_per_minute is not None:
            self._admission.budgets.spend(self.client, self.grant.tokens_per_minute, tokens)


def _adapter_of(request: CompletionRequest, model: ServedModel) -> str:
    return adapter_label(request.lora, model.settings.adapter_names)


def _key_label(grant: Grant | None) -> str:
    """The names of keys are the operator's; those in JSON web tokens are not, and may be any number."""
    if grant is None:
        return ""
    return grant.name if isinstance(grant, Key) else OTHER


def _cost(last: Event | None) -> int:
    """The tokens that a request has cost, its prompts' included; 0 if it has not ended with done."""
    if not isinstance(last, Done):
        return 0
    return last.prompt_tokens + last.negative_tokens + last.completion_tokens


def _computed(event: Event) -> int:
    """The tokens that the engine has computed when it sends this event."""
    match event:
        case Start():
            return event.prompt_tokens
        case Score() | Embedding():
            return event.count
    return 0


def _tokens_in(answer: Result) -> int:
    tokens, counts = answer.data.get("tokens"), answer.data.get("counts", [])
    return (len(tokens) if isinstance(tokens, list) else 0) + sum(map(int, counts))


def _require_n(name: str, wanted: int, running: int, grant: Grant) -> None:
    if grant.max_n is not None and running + wanted > grant.max_n:
        most = f"at most {max(0, grant.max_n - running)} for {grant.name}, whose max_n is {grant.max_n}"
        raise wrong(name, wanted, most)


def _too_much(message: str, wait: int | None) -> RequestError:
    return RequestError(message, status=429, code="rate_limit_exceeded", retry_after=wait)
