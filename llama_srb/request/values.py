"""Bounds and types of values, and the error for a wrong value. Knows no field."""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Sequence
from itertools import islice
from typing import Any, Literal, TypeAlias, TypeVar, get_args

T = TypeVar("T", bound=str)
SearchBy: TypeAlias = Literal["words", "meaning", "hybrid"]  # how a memory is searched
SEARCHES: tuple[SearchBy, ...] = get_args(SearchBy)
MAX_AROUND = 5  # neighbours of a chunk that its text has, before and behind it
INT32_MAX = 2**31 - 1
MAX_LOGPROBS = 100
MAX_TEXTS, MAX_TEXT_BYTES = 1024, 4096  # of a list such as stop, and of one of its texts: the engine's limits
MAX_BIAS = 1e9
MAX_INDEX = 100_000  # index of a sequence: the engine's limit
MAX_MESSAGES = 10_000
MAX_ADAPTERS = 1024
MAX_SALT = 1024  # characters: vLLM's limit
MAX_ADAPTER_ID = 2**31 - 1
MAX_ADAPTER_SCALE = 100  # the engine's limit
MAX_EMBEDDED = 2048  # texts of one request: OpenAI's limit, and the engine's
MAX_SCORED = 1024  # texts of one request: the engine's limit
MAX_PROMPTS = 256  # prompts of one request
MAX_DEPTH = 64  # levels of JSON in a body: the engine's limit for a line, in which no value is nested deeper
MAX_WARNINGS = 16  # a body may have a million unknown names, and each search for the nearest name takes 1 ms


class RequestError(Exception):
    """The client's request is wrong; the message has field, value and bound; status is the HTTP status."""

    def __init__(
        self,
        message: str,
        *,
        param: str | None = None,
        status: int = 400,
        code: str | None = None,
        retry_after: int | None = None,  # seconds until the request may succeed
    ) -> None:
        super().__init__(message)
        self.message = message
        self.param = param
        self.status = status
        self.code = code
        self.retry_after = retry_after


def shown(value: object) -> str:
    """A value as JSON, cut to 60 characters: an error must not repeat a prompt."""
    if isinstance(value, list | tuple | dict) and len(value) > 8:
        return f"a{'n object' if isinstance(value, dict) else ' list'} of {len(value)}"
    text = json.dumps(_cut(value), default=str)
    return text if len(text) <= 60 else text[:57] + "..."


def _cut(value: object, levels: int = 8) -> object:
    """The beginning of a value, which may have megabytes: more than 60 characters of JSON."""
    match value:
        case str():
            return value[:61]
        case list() | tuple():
            return [_cut(one, levels - 1) for one in value[:61]] if levels else "..."
        case dict():
            first = list(islice(value.items(), 61))
            return {_cut(name): _cut(one, levels - 1) for name, one in first} if levels else "..."
    return value


def wrong(name: str, value: object, wanted: str, param: str | None = None) -> RequestError:
    """The error for a wrong value: names the field, the value and the wanted value."""
    return RequestError(f"{name} is {shown(value)}; it must be {wanted}", param=param or name)


def whole(name: str, value: object, low: int, high: int) -> int:
    """Reads a whole number within bounds; 8.0 is accepted, true is not."""
    value = int(value) if isinstance(value, float) and value.is_integer() else value
    bounds = f"between {low} and {high}"
    if not isinstance(value, int) or isinstance(value, bool):
        raise wrong(name, value, f"a whole number {bounds}")
    if not low <= value <= high:
        raise wrong(name, value, bounds)
    return value


def share(name: str, value: object) -> float:
    """Reads a number between 0 and 1."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
        raise wrong(name, value, "a number between 0 and 1")
    return float(value)


def switch(name: str, value: object) -> bool:
    """Reads true or false."""
    if not isinstance(value, bool):
        raise wrong(name, value, "true or false")
    return value


def named(name: str, known: Sequence[T], value: object) -> T:
    """Reads one of these names."""
    found = next((one for one in known if one == value), None)
    if found is None:
        raise wrong(name, value, " or ".join(f'"{one}"' for one in known))
    return found


def is_number(value: object) -> bool:
    """Whether a value is a finite number; true is not."""
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def is_token(value: object) -> bool:
    """Whether a value can be a token id."""
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= INT32_MAX


def token_id(value: object) -> object:
    """Converts a text of at most 10 digits to its number: int() raises an error for thousands of digits."""
    if isinstance(value, str) and len(value) <= 10 and value.isascii() and value.isdecimal():
        return int(value)
    return value


def is_tokens(value: Collection[Any]) -> bool:
    """Whether a list is not empty and all items can be token ids; fast, since a prompt may have a million."""
    return set(map(type, value)) == {int} and 0 <= min(value) <= max(value) <= INT32_MAX


def is_text(value: object) -> bool:
    """Whether a value is a str without lone surrogates, which UTF-8 cannot encode."""
    if not isinstance(value, str):
        return False
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True
