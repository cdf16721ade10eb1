"""Turns at work that few may do at once: fair between clients, however much one of them asks for."""

from __future__ import annotations

from collections import Counter, deque
from typing import Generic, TypeVar

One = TypeVar("One")


class Turns(Generic[One]):
    """Those who work and those who wait, by client. most: how many may work at once; of_a_client: of one.

    The next turn goes to the client with the least work, of these to the one that has come, or whose last
    turn has ended, longest ago.
    """

    def __init__(self, most: int, of_a_client: int) -> None:
        self._most, self._of_a_client = most, of_a_client
        self.working: Counter[str] = Counter()
        self.waiting: dict[str, deque[One]] = {}  # the client whose turn was last is the last

    def wait(self, client: str, one: One) -> None:
        self.waiting.setdefault(client, deque()).append(one)

    def begin(self) -> tuple[str, One] | None:
        """The next client, and the first of its waiting ones, who works now; None if nobody may."""
        may = [client for client in self.waiting if self.working[client] < self._of_a_client]
        if not may or self.working.total() >= self._most:
            return None
        client = min(may, key=self.working.__getitem__)
        self.working[client] += 1
        ones = self.waiting.pop(client)
        begun = ones.popleft()
        if ones:
            self.waiting[client] = ones
        return client, begun

    def end(self, client: str) -> None:
        """One of this client has ended its work."""
        self.working[client] -= 1
        self.working += Counter()  # drops clients without work
        if client in self.waiting:  # who has come meanwhile is first
            self.waiting[client] = self.waiting.pop(client)
