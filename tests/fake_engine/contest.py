"""finish and prune: which sequences of a request go on. The lower its index, the surer a sequence is."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

from .requests import Request, Sequence

BY_THEMSELVES = ("stop", "length")


class Contest:
    """What the fields of a command ask for, and how many sequences have ended."""

    def __init__(self, command: dict[str, Any]) -> None:
        self.first: int | None = command.get("finish", {}).get("first")
        self.marks: list[int] = list(command.get("prune", {}).get("at", ()))
        self.keep: int = command.get("prune", {}).get("keep", 0)
        self.counts = "finish" in command or "prune" in command
        self.ended = self.saved = 0

    def stopped(self, sequence: Sequence, reason: str, limit: int) -> None:
        self.ended += reason in BY_THEMSELVES
        if reason in ("surplus", "pruned"):
            self.saved += max(0, (limit if limit >= 0 else sys.maxsize) - sequence.length)

    @property
    def is_over(self) -> bool:
        """Whether as many sequences have ended as the client wants."""
        return self.first is not None and self.ended >= self.first

    def beaten(self, request: Request) -> Iterator[Sequence]:
        """The sequences that must not pass a mark at which all are."""
        while self.marks and all(one.length >= self.marks[0] for one in request.running):
            self.marks.pop(0)
            yield from request.running[max(0, self.keep - self.ended) :]

    @property
    def timings(self) -> dict[str, float]:
        return {"saved_tokens": self.saved} if self.counts else {}


def certainty_of(sequence: Sequence) -> float:
    return 1.0 / (1 + sequence.index)
