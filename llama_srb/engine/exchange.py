"""One command and the events that answer it, and why there may be no engine to ask.

EngineError             the operator must act: it died, does not load, speaks another protocol
├── EngineUnavailable   there is no engine to ask: not built, pool stopped or draining
└── CommandRefused      the engine answered a command with an error event
ProtocolError           (codec.py) the engine wrote what is no event: our fault
"""

from __future__ import annotations

import asyncio
import secrets
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Literal, Protocol, Self, TypeAlias

from llama_srb.engine.commands import encode_cancel
from llama_srb.engine.events import Done, Error, Event, Extend, Queued, Result, Stop, bulk

OVERLOOKED = 2  # of its questions answered since a command was sent, and that command not: it never will be
CLOSING = (Done, Error, Result)
"""Events after which a request is over."""
NOT_TAKEN = "the engine has not taken the command"


class EngineError(Exception):
    """The engine failed; the message says how, with its last log lines."""


class EngineUnavailable(EngineError):
    """There is no engine to ask: its program is missing, or the pool is stopped or draining."""


class CommandRefused(EngineError):
    """The engine answered a command with an error event."""

    def __init__(self, error: Error) -> None:
        super().__init__(error.message)
        self.error = error


@dataclass(slots=True)
class Unanswered:
    """A command that the engine has not acknowledged; line is its number among all."""

    line: int = 0
    add: int = 0  # sequences that it asks for
    answer: asyncio.Future[Extend | None] | None = None
    acknowledged: bool = False
    overlooked: int = 0  # questions that were sent behind it, and answered before it

    def is_overlooked(self, asked: int) -> bool:
        """Counts the answer to the question in line `asked`."""
        self.overlooked += self.line < asked and not self.acknowledged
        return self.overlooked >= OVERLOOKED


ExchangeState: TypeAlias = Literal["new", "active", "cancelling", "done"]


class Sender(Protocol):
    """Where commands go: an engine."""

    def send(self, line: bytes) -> int:
        """Sends a command; its number among all."""


class Exchange:
    """One command and the events that answer it: an async iterator of lists of events, inside `async with`.

    |                   | new                  | active                | cancelling         | done    |
    |-------------------|----------------------|-----------------------|--------------------|---------|
    | cancel()          | done, all cancelled  | sends it, cancelling  | nothing            | nothing |
    | cancel(index)     | sent once active     | sends it              | nothing            | nothing |
    | extend(line)      | None                 | sends it, waits       | None               | None    |
    | leaving the block | done, unseen         | cancel(), unseen      | the rest is unseen | nothing |
    | deliver(events)   | done if closing      | seen; done if closing | the same           | nothing |
    | refuse(error)     | (never)              | that extend's wait    | the same           | nothing |
    | lost(message)     | (never)              | error; new if queued  | error              | nothing |

    It is over when the engine says so, not when its reader loses interest: until then the engine has its id.
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
    ) -> None:
        self.id = id
        self.line = line
        self.n = n
        self.state: ExchangeState = "new"
        self.cancelled = False  # as a whole, by whomever
        self.client = ""  # whose it is: only that one sees and ends it without knowing its id
        self.timeout: float | None = None  # seconds that it may take, by its client's own wish
        self._reason = ""  # why it was cancelled, in place of "cancelled"
        self.ending: asyncio.Future[None] = asyncio.get_running_loop().create_future()  # cancelled or done
        self._restartable = restartable  # may go to another engine when its own dies before starting it
        self._on_enter = on_enter
        self._on_done = on_done
        self.engine: Sender | None = None  # once sent
        self.on_events: Callable[[list[Event]], None] = lambda events: None  # sees them before any reader
        self._cancelled_early: list[int] = []
        self._own = Unanswered()  # its command
        self._acknowledged = False
        self._begun = False  # the engine has told more of it than that it waits
        self._extending: deque[Unanswered] = deque()  # answered in the order of sending
        self._pending: list[Event] = []
        self._weight = 0  # of what is pending: events, and what they hold
        self._read = 0  # of what its reader has not come back from
        self.unread = 0  # of both, what was there before the last ones came: its reader has had a turn for it
        self._last: Event | None = None
        self._unseen = False
        self._waiter: asyncio.Future[None] | None = None

    async def __aenter__(self) -> Self:
        if self._on_enter is not None:
            self._on_enter(self)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._unseen = True
        self._pending.clear()
        self._weight = self._read = self.unread = 0
        self.cancel()

    @property
    def last(self) -> Event | None:
        """The last event that came, seen or not."""
        return self._last

    @property
    def waits(self) -> bool:
        """Whether nothing of it has begun."""
        return self.state in ("new", "active") and not self._begun

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> list[Event]:
        """The events that came since the last call; the last list ends with Done, Error or Result."""
        self._read = 0
        while not self._pending:
            if self.state == "done":
                raise StopAsyncIteration
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
        events, self._pending = self._pending, []
        self._read, self._weight = self._weight, 0
        self.unread = 0
        return events

    def expire(self) -> None:
        """Ends it all; the finish_reason of what is not over is timeout."""
        if self.state == "active":
            self._reason = "timeout"
        self.cancel()

    def cancel(self, index: int | None = None) -> None:
        """Ends it all, or only the sequence `index`; the command is written before this returns."""
        self.cancelled = self.cancelled or (index is None and self.state != "done")
        if self.state == "new":
            self._cancel_unsent(index)
        elif self.state == "active" and self.engine is not None:
            self.engine.send(encode_cancel(self.id, index))
            if index is None:
                self.state = "cancelling"
                self._set_ending()

    def _cancel_unsent(self, index: int | None) -> None:
        if index is not None:
            self._cancelled_early.append(index)
            return
        self.deliver([Done(self.id, 0, 0, 0, 0)])

    def _stopped(self, done: Done) -> list[Event]:
        """What cancelled sequences come to that nobody has told of: none was begun."""
        stops = [Stop(self.id, i, 0, 0, "cancelled") for i in range(self.n)]
        return [*stops, replace(done, count=self.n)]

    async def extend(self, line: bytes, add: int) -> Extend | None:
        """Sends a command for `add` more sequences; None when there is nothing (any more) to extend.

        CommandRefused when the engine refuses it; the request goes on.
        """
        if self.state != "active" or self.engine is None:
            return None
        answer: asyncio.Future[Extend | None] = asyncio.get_running_loop().create_future()
        self.n += add
        self._extending.append(Unanswered(self.engine.send(line), add, answer))
        return await answer

    def _answer_extend(self, event: Extend | None) -> None:
        answer = self._extending.popleft().answer
        if answer is not None and not answer.done():  # else its client has left
            answer.set_result(event)

    def refuse(self, error: Error) -> bool:
        """The engine refuses a line; False when it is none of this one's extends."""
        for one in self._extending:
            if one.line == error.line:
                self._refuse_extend(one, error)
                return True
        return False

    def _refuse_extend(self, one: Unanswered, error: Error) -> None:
        self._extending.remove(one)
        self.n -= one.add
        if one.answer is not None and not one.answer.done():
            one.answer.set_exception(CommandRefused(error))

    @property
    def line_number(self) -> int:
        """That of its command among all that its engine got."""
        return self._own.line

    def acknowledge(self, line: int) -> None:
        """The engine has its command of this line, and will answer it."""
        self._acknowledged = self._acknowledged or line == self._own.line
        for one in self._extending:
            one.acknowledged = one.acknowledged or line == one.line

    @property
    def is_unanswered(self) -> bool:
        """Whether the engine owes a sign that it has taken a command."""
        return not self._acknowledged or not all(one.acknowledged for one in self._extending)

    def is_overlooked(self, asked: int) -> bool:
        """Counts the answer to the question in line `asked`; True when its own command will have none."""
        for one in [one for one in self._extending if one.is_overlooked(asked)]:
            self._refuse_extend(one, Error("engine_error", NOT_TAKEN, self.id))
        return not self._acknowledged and self._own.is_overlooked(asked)

    def sent(self, engine: Sender, line: int) -> None:
        """The engine has the command now, as its line of this number."""
        self.state, self.engine, self._own = "active", engine, Unanswered(line)
        self._acknowledged = False
        for index in self._cancelled_early:
            self.cancel(index)

    def deliver(self, events: list[Event]) -> None:
        """Takes what one read brought, or a final event of our own; a closing event is always the last."""
        if self.state == "done":
            return
        self._acknowledged = True
        self._begun = self._begun or not all(isinstance(event, Queued | Extend) for event in events)
        last = events[-1]
        if type(last) is Done and last.count == 0 < self.n:
            events = self._stopped(last)
        if self._reason:
            events = [self._with_reason(event) for event in events]
        self._last = events[-1]
        if not self._unseen:
            self._pending += events
            self.unread = self._read + self._weight
            self._weight += len(events) + bulk(events)
        self.on_events(events)
        for event in events:
            if type(event) is Extend and self._extending:
                self._restartable = False  # its line asks for fewer
                self._answer_extend(event)
        if isinstance(self._last, CLOSING):
            self._close()
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _with_reason(self, event: Event) -> Event:
        if isinstance(event, Stop) and event.finish_reason == "cancelled":
            return replace(event, finish_reason=self._reason)
        return event

    def fail(self, code: str, message: str) -> None:
        """Ends it with an error that no engine wrote; an engine that works on it is told."""
        if self.state == "active":
            self.cancel()
        self.deliver([Error(code, message, self.id)])

    def lost(self, message: str) -> None:
        """The engine is gone: an error, or back to new if the engine had only said that it has to wait."""
        if self._restartable and self.state == "active" and self._last is not None and not self._begun:
            self.state, self.engine, self._last = "new", None, None
            self.n -= sum(one.add for one in self._extending)
            self._end_extends()
        else:
            self.deliver([Error("engine_died", message, self.id)])

    def _end_extends(self) -> None:
        while self._extending:
            self._answer_extend(None)

    def _close(self) -> None:
        self.state = "done"
        self._end_extends()
        self._set_ending()
        if self._on_done is not None:
            self._on_done(self)

    def _set_ending(self) -> None:
        if not self.ending.done():
            self.ending.set_result(None)


def new_id() -> str:
    """Random, 128 bits: never used again, and whoever does not know it cannot cancel it."""
    return secrets.token_hex(16)
