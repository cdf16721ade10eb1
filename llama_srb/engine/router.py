"""Routes an engine's events to their requests, by id or by the number of the command's line."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable

from llama_srb.engine.acknowledgements import NOT_TAKEN
from llama_srb.engine.codec import UNREADABLE, ProtocolError, parse
from llama_srb.engine.events import Accepted, Error, Event, Loading, Ready, Result, Stream, shows_step
from llama_srb.engine.exchange import CLOSING, Exchange

log = logging.getLogger("llama_srb.engine")  # this name is documented
wire = logging.getLogger("llama_srb.wire")  # all prompts and texts; --log-prompts shows them
WATCHDOG = "watchdog"  # the id of the watchdog's status command; ids of requests are random
CLOSING_NAMES = frozenset(event.__name__.lower() for event in CLOSING)


class Router:
    """The open requests of one engine.

    on_load gets Loading and Ready, on_status the answer to the watchdog's status command.
    """

    def __init__(
        self, pid: int, on_load: Callable[[Loading | Ready], None], on_status: Callable[[Result], None]
    ) -> None:
        self.heard = False  # an event of a request has come since the watchdog's last check
        self.stepped = False  # an event has shown that the engine made a decode step
        self._pid = pid
        self._exchanges: dict[str, Exchange] = {}
        self._on_load = on_load
        self._on_status = on_status

    def __len__(self) -> int:
        """The number of open requests."""
        return len(self._exchanges)

    @property
    def owes_acknowledgement(self) -> bool:
        """Whether a command is not acknowledged yet."""
        return any(exchange.commands.is_any_missing for exchange in self._exchanges.values())

    def add(self, exchange: Exchange) -> None:
        """Routes the events of this id to the exchange from now on."""
        self._exchanges[exchange.id] = exchange

    def lose_all(self, cause: str) -> None:
        """Ends all exchanges: the engine is gone."""
        exchanges, self._exchanges = self._exchanges, {}
        for exchange in exchanges.values():
            exchange.lost(cause)

    def fail_overlooked(self, asked: int) -> None:
        """Fails requests whose command was sent before line `asked` and is still not acknowledged.

        The engine reads commands in order, so it has lost such a command.
        """
        for exchange in [one for one in self._exchanges.values() if one.commands.is_lost(asked)]:
            log.error("engine %d: it has not taken request %s", self._pid, exchange.id)
            del self._exchanges[exchange.id]
            exchange.fail("engine_error", NOT_TAKEN)

    def route(self, lines: list[bytes]) -> None:
        """Groups events by request, so that each request gets one list and wakes once for a decode step.

        ProtocolError for a line that cannot be parsed and belongs to no request.
        """
        groups: defaultdict[str, list[Event]] = defaultdict(list)
        debug = wire.isEnabledFor(logging.DEBUG)
        try:
            for line in lines:
                if debug:
                    wire.debug("engine %d >> %r", self._pid, line)
                try:
                    event = parse(line)
                except ProtocolError as error:
                    self._fail_one(error, groups)
                    continue
                if type(event) is Stream:  # first, since nearly all events are of this type
                    groups[event.id].append(event)
                elif event is not None:
                    self._route_one(event, groups)
        finally:
            self.heard = self.heard or bool(groups)
            for id, events in groups.items():
                self._look_for_step(events)
                if (exchange := self._exchanges.get(id)) is not None:
                    exchange.deliver(events)

    def _route_one(self, event: Event, groups: dict[str, list[Event]]) -> None:
        if isinstance(event, (Loading, Ready)):
            self._on_load(event)
        elif isinstance(event, Accepted):
            if (exchange := self._exchanges.get(event.id)) is not None:
                exchange.commands.acknowledge(event.line)
        elif type(event) is Error and self._is_of_another_line(event):
            self._refuse(event)
        else:
            groups[event.id].append(event)
            if isinstance(event, CLOSING):
                self._finish(event.id, groups.pop(event.id))

    def _is_of_another_line(self, error: Error) -> bool:
        """Whether the error answers another command than the one that began its request."""
        exchange = self._exchanges.get(error.id)
        return error.line is not None and (exchange is None or exchange.commands.line != error.line)

    def _refuse(self, error: Error) -> None:
        """Gives the error to the extend that it answers; an error of another command is only logged."""
        if not any(exchange.commands.refuse(error) for exchange in self._exchanges.values()):
            log.warning("engine %d: line %d: %s: %s", self._pid, error.line, error.code, error.message)

    def _fail_one(self, fault: ProtocolError, groups: dict[str, list[Event]]) -> None:
        """Ends the request that an unreadable line belongs to; raises the fault if there is none."""
        exchange = self._exchanges.get(fault.id)
        if exchange is None:
            raise fault
        log.error("engine %d: it wrote %s: %s", self._pid, fault, fault.shown)
        if (before := groups.pop(exchange.id, None)) is not None:
            exchange.deliver(before)
        exchange.fail("engine_error", UNREADABLE)
        if fault.event in CLOSING_NAMES:  # otherwise the id stays until the engine's closing event
            del self._exchanges[exchange.id]

    def _finish(self, id: str, events: list[Event]) -> None:
        """Delivers a closing event and forgets the id, so that no later line can reach another request."""
        self._look_for_step(events)
        exchange = self._exchanges.pop(id, None)
        if isinstance(events[-1], Result) and id == WATCHDOG:
            self._on_status(events[-1])
        elif exchange is not None:
            self.heard = True
            exchange.deliver(events)
        elif isinstance(events[-1], Error):
            log.warning("engine %d: %s: %s", self._pid, events[-1].code, events[-1].message)

    def _look_for_step(self, events: list[Event]) -> None:
        self.stepped = self.stepped or any(map(shows_step, events))
