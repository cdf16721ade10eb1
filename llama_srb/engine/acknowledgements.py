"""Which commands of one request its engine has acknowledged: the one that begins it, and its extends.

The engine reads commands in order. A command is lost if it is not acknowledged and the engine has answered
two later status commands of the watchdog.
"""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass
from typing import TypeAlias

from llama_srb.engine.events import Error, Extend

OVERLOOKED = 2  # answers to later status commands, after which a command is lost
NOT_TAKEN = "the engine has not taken the command"

Answer: TypeAlias = Extend | Error | None


@dataclass(slots=True)
class Command:
    """A command that was sent; line is its number among all lines that the engine got."""

    line: int = 0
    is_acknowledged: bool = False
    n_overlooked: int = 0  # answers to status commands that were sent later

    def is_lost(self, asked: int) -> bool:
        """Counts the answer to the status command in line `asked`."""
        self.n_overlooked += self.line < asked and not self.is_acknowledged
        return self.n_overlooked >= OVERLOOKED


@dataclass(slots=True)
class ExtendCommand(Command):
    """A command for `add` more sequences."""

    add: int = 0
    answer: asyncio.Future[Answer] | None = None

    def end(self, answer: Answer) -> None:
        if self.answer is not None and not self.answer.done():  # done: its client has left
            self.answer.set_result(answer)


class Acknowledgements:
    """Tracks the commands of one request, from the engine's events."""

    def __init__(self, id: str) -> None:
        self.added = 0  # sequences that extends ask for, without the refused ones
        self._id = id
        self._begin = Command()
        self._extends: deque[ExtendCommand] = deque()  # answered in the order of sending

    @property
    def line(self) -> int:
        """The number of the command that begins the request."""
        return self._begin.line

    @property
    def is_any_missing(self) -> bool:
        return not self._begin.is_acknowledged or not all(one.is_acknowledged for one in self._extends)

    def begin(self, line: int) -> None:
        """The command that begins the request was sent to an engine, as the line of this number."""
        self._begin = Command(line)

    def begun(self) -> None:
        """An event has come, which acknowledges the command that begins the request."""
        self._begin.is_acknowledged = True

    def extend(self, line: int, add: int) -> asyncio.Future[Answer]:
        """A command for `add` more sequences was sent; the answer is None when the request ends first."""
        answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self.added += add
        self._extends.append(ExtendCommand(line, add=add, answer=answer))
        return answer

    def acknowledge(self, line: int) -> None:
        """The engine has read this line."""
        for one in (self._begin, *self._extends):
            one.is_acknowledged = one.is_acknowledged or line == one.line

    def answer_extend(self, event: Extend) -> bool:
        """Answers the oldest extend; False if there is none."""
        if not self._extends:
            return False
        self._extends.popleft().end(event)
        return True

    def refuse(self, error: Error) -> bool:
        """The engine has refused a line; False if it is not one of these extends."""
        for one in self._extends:
            if one.line == error.line:
                self._refuse(one, error)
                return True
        return False

    def _refuse(self, one: ExtendCommand, error: Error) -> None:
        self._extends.remove(one)
        self.added -= one.add
        one.end(error)

    def is_lost(self, asked: int) -> bool:
        """Counts the answer to the status command in line `asked`, and fails the extends that are lost.

        True if the command that begins the request is lost.
        """
        for one in [one for one in self._extends if one.is_lost(asked)]:
            self._refuse(one, Error("engine_error", NOT_TAKEN, self._id))
        return not self._begin.is_acknowledged and self._begin.is_lost(asked)

    def withdraw_extends(self) -> None:
        """The engine has died; another one gets the request as it began."""
        self.added -= sum(one.add for one in self._extends)
        self.end_extends()

    def end_extends(self) -> None:
        """Ends all extends without an answer, since the request has ended."""
        while self._extends:
            self._extends.popleft().end(None)
