"""Values that are nearly those that a schema allows: one thing of a value is changed."""

from __future__ import annotations

import random
from typing import Any

STRANGE: list[Any] = [None, True, False, 0, -1, 1, 2.5, 1e3, 10**9, "", "a", "ž🦊", [], [None], {}, {"a": 1}]

EXACT = 1e15  # a float above it may have been another decimal number


def is_exact(value: Any) -> bool:
    """Whether each number in it is the one that was written."""
    match value:
        case dict():
            return all(map(is_exact, value.values()))
        case list():
            return all(map(is_exact, value))
        case float():
            return abs(value) < EXACT
        case _:
            return True


def mutated(value: Any, dice: random.Random) -> Any:
    """The value with another part, a part less or a part more."""
    parts = (
        list(value) if isinstance(value, dict) else list(range(len(value))) if isinstance(value, list) else []
    )
    if parts and dice.random() < 0.6:
        place = dice.choice(parts)
        changed = value.copy()
        changed[place] = mutated(value[place], dice)
        return changed
    match value:
        case dict():
            return _object(value, dice)
        case list():
            return _list(value, dice)
        case bool() | None:
            return dice.choice(STRANGE)
        case int() | float():
            return dice.choice([value + 1, value - 1, -value, value / 2, value * 10, value + 0.5, *STRANGE])
        case _:
            return _text(value, dice)


def _object(value: dict[str, Any], dice: random.Random) -> Any:
    left = dice.choice(list(value)) if value else None
    match dice.randrange(4):
        case 0:
            return {name: one for name, one in value.items() if name != left}
        case 1:
            return value | {dice.choice(["", "a", "other", "x-1", "größe"]): dice.choice(STRANGE)}
        case 2:
            return {name + "x" if name == left else name: one for name, one in value.items()}
        case _:
            return dice.choice(STRANGE)


def _list(value: list[Any], dice: random.Random) -> Any:
    at = dice.randrange(len(value) + 1)
    match dice.randrange(4):
        case 0:
            return value[:at] + value[at + 1 :]
        case 1:
            return [*value[:at], dice.choice([*STRANGE, *value]), *value[at:]]
        case 2:
            return value[::-1]
        case _:
            return dice.choice(STRANGE)


def _text(value: str, dice: random.Random) -> Any:
    at = dice.randrange(len(value) + 1)
    one = dice.choice('aZ0-:.@/ é🦊\n"\\')
    changes = [
        value[:at] + value[at + 1 :],
        value[:at] + one + value[at:],
        value * 2,
        value.swapcase(),
        *STRANGE,
    ]
    return dice.choice(changes)
