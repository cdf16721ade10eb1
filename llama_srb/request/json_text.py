"""JSON from clients to values, and back, without holding the interpreter for long: threads go on. Pure."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from json import decoder, scanner
from typing import Any, NoReturn

import orjson

from llama_srb.request.values import MAX_DEPTH, RequestError, is_text

MAX_VALUES = 1_000_000  # of one text, estimated: later each takes up to a microsecond
MAX_WORK = 1_400_000
"""What orjson may do at once, about 50 ms: it holds the interpreter. A unit is 40 ns, as measured."""
CONTAINER, MEMBER, BYTES = 6, 4, 16  # units of a list or an object and of a member; bytes of a unit
MAX_CONTAINERS = 200_000  # of one text; Python's garbage collector looks at all of them at once, 50 ms
PARSED = "over 300"  # levels, that no parser here reads: of orjson 1024, of Python's some hundreds
WRITTEN, CONTAINERS_WRITTEN = 50_000, 100  # members of a list that orjson writes at once
UPDATED = 10_000  # members that are added to an object at once


def read_json(name: str, text: bytes | str, most: int = MAX_DEPTH, param: str | None = None) -> Any:
    """Parses JSON of at most `most` levels; json.JSONDecodeError if it is none.

    RequestError: it has more levels, or too many values. param: for that error.

    What orjson could parse only by holding the interpreter for more than 50 ms is parsed in Python, which
    takes ten times as long. So it is called in a thread if the text is long.
    """
    data = text.encode(errors="surrogatepass") if isinstance(text, str) else text
    commas, opening = data.count(b","), data.count(b"[") + data.count(b"{")
    if (marks := commas + opening) > MAX_VALUES:
        message = f"{name} has {marks} commas and opening brackets; it may have {MAX_VALUES}"
        raise RequestError(f"{message}: send fewer values", param=param)
    members = min(data.count(b":"), marks)  # an upper bound: marks in texts count, too
    work = len(data) // BYTES + commas + CONTAINER * opening + MEMBER * members
    try:
        value = orjson.loads(data) if work <= MAX_WORK else _Slow(name, param).parse(data)
    except RecursionError:
        depth: int | str = PARSED
    except orjson.JSONDecodeError as error:
        if "depth limit" not in error.msg and "ecursion" not in error.msg:
            raise
        depth = PARSED
    else:
        if opening <= most or (depth := _depth(value)) <= most:
            return value
    raise RequestError(f"{name} is nested {depth} levels deep; it must be at most {most}", param=param)


def json_of(value: Any) -> bytes:
    """JSON of an answer; a thread that makes a long one lets the others go on."""
    return b"".join(_pieces(value))


def _pieces(value: Any) -> Iterator[bytes]:
    if isinstance(value, dict) and any(
        isinstance(one, list) and _step(one) < len(one) for one in value.values()
    ):
        for i, (name, member) in enumerate(value.items()):
            yield (b"," if i else b"{") + orjson.dumps(name) + b":"
            yield from _pieces(member)
        yield b"}"
    elif isinstance(value, list) and (step := _step(value)) < len(value):
        for i in range(0, len(value), step):
            yield (b"," if i else b"[") + orjson.dumps(value[i : i + step])[1:-1]
        yield b"]"
    else:
        yield orjson.dumps(value)


def _step(values: list[Any]) -> int:
    """How many members of a list are written at once."""
    return WRITTEN if values and not isinstance(values[0], dict | list) else CONTAINERS_WRITTEN


def _depth(value: Any) -> int:
    depth, level = 0, [value]
    while level := [one for one in level if type(one) in (dict, list)]:
        depth, level = depth + 1, [child for one in level for child in _children(one)]
    return depth


def _children(value: dict[str, Any] | list[Any]) -> Iterable[Any]:
    return value.values() if isinstance(value, dict) else value


class _Slow:
    """Python's own parser of JSON in Python, which takes and refuses what orjson does."""

    def __init__(self, name: str, param: str | None) -> None:
        self._name, self._param, self._containers = name, param, 0
        made = json.JSONDecoder(parse_int=_integer, parse_float=_number, parse_constant=_refuse)
        made.object_pairs_hook = _object
        made.parse_string = _text  # type: ignore[attr-defined]
        made.parse_object = self._counted(decoder.JSONObject)  # type: ignore[attr-defined]
        made.parse_array = self._counted(decoder.JSONArray)  # type: ignore[attr-defined]
        made.scan_once = scanner.py_make_scanner(made)  # type: ignore[attr-defined]
        self._decode = made.decode

    def parse(self, data: bytes) -> Any:
        try:
            text = data.decode()
        except UnicodeDecodeError as error:
            raise json.JSONDecodeError(f"byte {error.start} is not UTF-8", "", 0) from None
        return self._decode(text)

    def _counted(self, parse: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*arguments: Any) -> Any:
            self._containers += 1
            if self._containers > MAX_CONTAINERS:
                message = f"{self._name} has more than {MAX_CONTAINERS} lists and objects"
                raise RequestError(f"{message}: send fewer", param=self._param)
            return parse(*arguments)

        return counted


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    _require_texts([name for name, _ in pairs])
    made: dict[str, Any] = {}
    for first in range(0, len(pairs), UPDATED):
        made.update(pairs[first : first + UPDATED])
    return made


def _text(text: str, end: int, strict: bool = True) -> tuple[str, int]:
    value, after = decoder.scanstring(text, end, strict)  # type: ignore[attr-defined]
    _require_texts([value])
    return value, after


def _require_texts(texts: list[str]) -> None:
    if not is_text("".join(texts)):
        raise json.JSONDecodeError("lone surrogate in string", "", 0)


def _integer(digits: str) -> int | float:
    """As orjson: beyond 64 bits it is a float."""
    return value if len(digits) <= 20 and -(2**63) <= (value := int(digits)) < 2**64 else _number(digits)


def _number(digits: str) -> float:
    if abs(number := float(digits)) == float("inf"):
        raise json.JSONDecodeError("number is infinity when parsed as double", "", 0)
    return number


def _refuse(constant: str) -> NoReturn:
    raise json.JSONDecodeError(f"{constant} is no JSON", "", 0)
