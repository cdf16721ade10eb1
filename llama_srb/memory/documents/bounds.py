"""What holds for every document: its bounds, and the error that says what is wrong with it."""

from __future__ import annotations

from dataclasses import dataclass


class Unreadable(Exception):
    """A document cannot be read; the message says why, with value and bound."""


@dataclass(frozen=True, slots=True)
class Limits:
    """The bounds of one document, as in DocumentLimits."""

    body: int
    unpacked: int
    text: int
    pages: int
    entries: int
    memory: int
    seconds: float


def require(value: int, most: int, unit: str) -> None:
    if value > most:
        raise Unreadable(f"it has {value:,} {unit}; it must have at most {most:,}")
