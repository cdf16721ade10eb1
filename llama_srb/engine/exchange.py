"""One command and the events that answer it; the errors of engines.

EngineError             the operator must act: the engine died, does not load, speaks another protocol
├── EngineUnavailable   no engine can take the command: not built, pool stopped or draining
└── CommandRefused      the engine answered a command with an error event
ProtocolError           (codec.py) the engine wrote a line that is not an event: our fault
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Mapping
from dataclasses import replace
from types import TracebackType
from typing import Literal, Protocol, Self, TypeAlias

from llama_srb.engine.acknowledgements import Acknowledgements
from llama_srb.engine.commands import encode_cancel, encode_surplus
from llama_srb.engine.events import Done, Error, Event, Extend, Loading, Queued, Result, Stop, content_size

NOTHING_LOCKED: Mapping[str, str] = {}
CLOSING = (Done, Error, Result)
"""The events that end a request."""


class EngineError(Exception):
    """The engine failed; the message has the cause and the engine's last log lines."""


class EngineUnavailable(EngineError):
    """No engine can take the command: its program is missing, or the pool is stopped or draining.

    retry_after: seconds after which another try may succeed; None if nobody knows.
    """

    def __init__(self, message: str, *, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class CommandRefused(EngineError):
    """The engine answered a command with an error event."""

    def __init__(self, error: Error) -> None:
        super().__init__(error.message)
        self.error = error


ExchangeState: TypeAlias = Literal["new", "active", "cancelling", "done"]


class Sender(Protocol):
    """An engine, as its exchanges see it."""

    def send(self, line: bytes) -> int:
        """Sends a command; returns its number among all lines that the engine got."""


class Inbox:
    """The events of one request that its reader has not taken yet."""

    def __init__(self) -> None:
        self.unread = 0  # weight of the events that the reader has not processed, without the newest list
        self._pending: list[Event] = []
        self._weight = 0  # of the pending events: their number, and their tokens and alternatives
        self._in_hand = 0  # weight of the events that the reader took last and may still process
        self._is_closed = self._is_over = False
        self._waiter: asyncio.Future[None] | None = None

    def put(self, events: list[Event]) -> None:
        """Adds events; they do not wake the reader, wake() does."""
        if not self._is_closed:
            self._pending += events
            self.unread = self._in_hand + self._weight
            self._weight += len(events) + content_size(events)

    def wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def take(self) -> list[Event]:
        """Waits for events and returns all of them; the list is empty after the last event."""
        self._in_hand = 0
        while not self._pending:
            if self._is_over:
                return []
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
        events, self._pending = self._pending, []
        self._in_hand, self._weight = self._weight, 0
        self.unread = 0
        return events

    def end(self) -> None:
        """Marks that no more events will come."""
        self._is_over = True

    def close(self) -> None:
        """Drops all events, also later ones: the reader has left."""
        self._is_closed = True
        self._pending.clear()
        self._weight = self._in_hand = self.unread = 0


class Exchange:
    """One command and the events that answer it: an async iterator of lists of events, inside `async with`.

    |                   | new                  | active                | cancelling         | done    |
    |-------------------|----------------------|-----------------------|--------------------|---------|
    | cancel()          | done, all cancelled  | sends it, cancelling  | nothing            | nothing |
    | cancel(index)     | sent once active     | sends it              | nothing            | nothing |
    | end_surplus()     | nothing              | sends it              | nothing            | nothing |
    | extend(line)      | None                 | sends it, waits       | None               | None    |
    | leaving the block | done, unread         | cancel(), unread      | the rest is unread | nothing |
    | deliver(events)   | done if closing      | read; done if closing | the same           | nothing |
    | tell(progress)    | read, if shown       | nothing               | nothing            | nothing |
    | lost(message)     | (never)              | error; new if queued  | error              | nothing |

    It ends when the engine reports the end, not when its reader leaves: until then the engine uses its id.
    "unread": no reader gets the events. "closing": Done, Error or Result.
    """

    def __init__(
        self,
        id: str,
        line: bytes,
        *,
        n: int = 0,
        restartable: bool = False,
        on_enter: Callable[[Exchange], None] | None = None,
        on_done: Callable[[Exchange], None] | None = None,
        on_events: Callable[[Exchange, list[Event]], None] = lambda exchange, events: None,
        client: str = "",
        yields: bool = False,
        timeout: float | None = None,
        locked: Mapping[str, str] = NOTHING_LOCKED,
        shows_loading: bool = False,
    ) -> None:
        """restartable: it may go to another engine when its own dies before it has begun.

        on_events: sees events before the reader. client: only this one sees and ends the request without
        knowing its id. yields: it waits for all others, and does not count as waiting. timeout: seconds
        that its client allows. locked: fields that extends may not change, and what sets them. shows_loading:
        its reader gets the progress of a load that it waits for.
        """
        self.id = id
        self.line = line
        self.state: ExchangeState = "new"
        self.commands = Acknowledgements(id)
        self.engine: Sender | None = None  # None until the command is sent
        self.client, self.yields, self.timeout, self.locked = client, yields, timeout, locked
        self._shows_loading = shows_loading
        self.cancelled = False  # as a whole, by its client or by the server
        self.ending: asyncio.Future[None] = asyncio.get_running_loop().create_future()  # cancelled or done
        self.last: Event | None = None  # the last event that came, read or not
        self._on_events = on_events
        self._n = n
        self._restartable = restartable
        self._on_enter = on_enter
        self._on_done = on_done
        self._reason = ""  # finish_reason in place of "cancelled"
        self._cancelled_early: list[int] = []
        self._begun = False  # the engine has sent an event other than queued and extend
        self._inbox = Inbox()

    async def __aenter__(self) -> Self:
        if self._on_enter is not None:
            self._on_enter(self)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._inbox.close()
        self.cancel()

    @property
    def n(self) -> int:
        """The number of its sequences; 0 if it generates nothing."""
        return self._n + self.commands.added

    @property
    def unread(self) -> int:
        """Weight of the events that the reader has not processed, without the newest list."""
        return self._inbox.unread

    @property
    def waits(self) -> bool:
        """Whether it has not begun."""
        return self.state in ("new", "active") and not self._begun

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> list[Event]:
        """The events that came since the last call; the last list ends with Done, Error or Result."""
        if events := await self._inbox.take():
            return events
        raise StopAsyncIteration

    def expire(self) -> None:
        """Ends the request; sequences that still run get the finish_reason timeout."""
        if self.state == "active":
            self._reason = "timeout"
        self.cancel()

    def cancel(self, index: int | None = None) -> None:
        """Ends the request, or only the sequence `index`; the command is written before this returns."""
        self.cancelled = self.cancelled or (index is None and self.state != "done")
        if self.state == "new" and index is None:
            self.deliver([Done(self.id, 0, 0, 0, 0)])
        elif self.state == "new" and index is not None:
            self._cancelled_early.append(index)
        elif self.state == "active" and self.engine is not None:
            self.engine.send(encode_cancel(self.id, index))
            if index is None:
                self.state = "cancelling"
                self._set_ending()

    def end_surplus(self) -> None:
        """Ends the sequences that still run, since the texts that are there are enough."""
        if self.state == "active" and self.engine is not None:
            self.engine.send(encode_surplus(self.id))

    async def extend(self, line: bytes, add: int) -> Extend | None:
        """Sends a command for `add` more sequences; None if the request does not run, or ends first.

        CommandRefused if the engine refuses it; the request continues.
        """
        if self.state != "active" or self.engine is None:
            return None
        answer = await self.commands.extend(self.engine.send(line), add)
        if isinstance(answer, Error):
            raise CommandRefused(answer)
        return answer

    def sent(self, engine: Sender, line: int) -> None:
        """Is called when the command was sent to the engine, as the line of this number."""
        self.state, self.engine = "active", engine
        self.commands.begin(line)
        for index in self._cancelled_early:
            self.cancel(index)

    def deliver(self, events: list[Event]) -> None:
        """Takes the events of one read, or a final event of the server's own; a closing event is the last."""
        if self.state == "done":
            return
        self.commands.begun()
        self._begun = self._begun or not all(isinstance(event, Queued | Extend) for event in events)
        last = events[-1]
        if type(last) is Done and last.count == 0 < self.n:
            events = _cancelled(last, self.n)
        if self._reason:
            events = [_with_reason(event, self._reason) for event in events]
        self.last = events[-1]
        self._inbox.put(events)
        self._on_events(self, events)
        for event in events:
            if type(event) is Extend and self.commands.answer_extend(event):
                self._restartable = False  # its line asks for fewer sequences
        if isinstance(self.last, CLOSING):
            self._close()
        self._inbox.wake()

    def tell(self, progress: float) -> None:
        """Tells its reader how far the load is that it waits for. This does not begin the request."""
        if self.state == "new" and self._shows_loading:
            self._inbox.put([Loading(progress, self.id)])
            self._inbox.wake()

    def fail(self, code: str, message: str) -> None:
        """Ends the request with an error of the server's own; an engine that runs it gets a cancel."""
        if self.state == "active":
            self.cancel()
        self.deliver([Error(code, message, self.id)])

    def lost(self, message: str) -> None:
        """The engine has died: an error, or the state new again if the request was only queued."""
        if self._restartable and self.state == "active" and self.last is not None and not self._begun:
            self.state, self.engine, self.last = "new", None, None
            self.commands.withdraw_extends()
        else:
            self.deliver([Error("engine_died", message, self.id)])

    def _close(self) -> None:
        self.state = "done"
        self._inbox.end()
        self.commands.end_extends()
        self._set_ending()
        if self._on_done is not None:
            self._on_done(self)

    def _set_ending(self) -> None:
        if not self.ending.done():
            self.ending.set_result(None)


def _cancelled(done: Done, n: int) -> list[Event]:
    """The events of n sequences that were cancelled before they began: the engine sends only done."""
    return [*(Stop(done.id, i, 0, 0, "cancelled") for i in range(n)), replace(done, count=n)]


def _with_reason(event: Event, reason: str) -> Event:
    if isinstance(event, Stop) and event.finish_reason == "cancelled":
        return replace(event, finish_reason=reason)
    return event


def new_id() -> str:
    """Random, 128 bits: an id is never used again, and a client that does not know it cannot cancel it."""
    return secrets.token_hex(16)
