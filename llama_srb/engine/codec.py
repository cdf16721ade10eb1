"""Lines of the engine's stdout as events: cut, read, checked. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import MISSING, fields
from typing import Any, TypeAlias

import orjson

from llama_srb.engine.events import (
    Accepted,
    Again,
    Done,
    Embedding,
    Error,
    Event,
    Extend,
    Loading,
    Progress,
    Prompt,
    Queued,
    Ready,
    Result,
    Score,
    Start,
    Stop,
    Stream,
    TokenList,
)

PROTOCOL = 1
LINE_LIMIT = 64 << 20
"""Longest line that is believed, in bytes: the tokens of a 10 MB text fit, an endless line does not."""


class ProtocolError(Exception):
    """The engine wrote a line that is not an event of this protocol: a fault of ours, never of a client.

    The message quotes nothing of the line, which may hold anybody's text; `shown` is for the operator.
    """

    def __init__(self, message: str, line: bytes = b"") -> None:
        super().__init__(message)
        self._line = line

    @property
    def event(self) -> str:
        """The event's name, as far as the line has its usual beginning; else empty."""
        return self._head()[0]

    @property
    def id(self) -> str:
        """Whose line it is, as far as it has its usual beginning; else empty."""
        return self._head()[1]

    def _head(self) -> tuple[str, str]:
        head = _HEAD.match(self._line)
        return (head[1].decode(), head[2].decode()) if head else ("", "")

    @property
    def shown(self) -> str:
        """The line's beginning without the texts in it."""
        line = _TEXT.sub(b'"\xe2\x80\xa6"', self._line[:SHOWN])
        return line.decode(errors="replace") + ("…" if len(self._line) > SHOWN else "")


SHOWN = 200  # bytes of a faulty line in the log
_HEAD = re.compile(rb'\{"event":"(\w+)","id":"([\w.-]{1,64})"', re.ASCII)  # as every line of a request begins
_TEXT = re.compile(rb'(?<=:)"(?:[^"\\]|\\.)*"?', re.DOTALL)


class Lines:
    """Cuts what was read into lines, whatever the borders of the reads; keeps the unfinished rest."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []  # a list, so that a long line in many reads is joined once
        self._size = 0

    def feed(self, chunk: bytes) -> list[bytes]:
        """The lines that this chunk completes, without their line feeds."""
        self._parts.append(chunk)
        self._size += len(chunk)
        if b"\n" not in chunk:
            if self._size > LINE_LIMIT:
                raise ProtocolError(f"a line of more than {LINE_LIMIT} bytes")
            return []
        *lines, rest = b"".join(self._parts).split(b"\n")
        self._parts, self._size = [rest], len(rest)
        return lines


def parse(line: bytes) -> Event | None:
    """The event that a line holds; None when this protocol has no event of that name (from a newer engine).

    Unknown fields are ignored. No JSON, a known event with a missing or wrongly typed field: ProtocolError.
    """
    try:
        data = orjson.loads(line)
        parser = _PARSERS.get(data["event"])
        return None if parser is None else parser(data)
    except KeyError as missing:
        raise ProtocolError(f"a line without {missing}", line) from None
    except orjson.JSONDecodeError as error:  # its message says where, and nothing of the line
        raise ProtocolError(f"a line that is no JSON ({error})", line) from None
    except TypeError as error:
        raise ProtocolError(f"a line that is no event ({error})", line) from None


_Parser: TypeAlias = Callable[[dict[str, Any]], Event]


def _stream(data: dict[str, Any]) -> Event:
    """Nearly all lines are stream events, n for each decode step, so this one is written out."""
    id, index, text = data["id"], data["index"], data["text"]
    if type(id) is not str or type(index) is not int or type(text) is not str:
        raise TypeError("id, index and text of stream are not str, int and str")
    return Stream(id, index, text) if len(data) == 4 else _STREAM(data)


def _result(data: dict[str, Any]) -> Result:
    """Whatever is not the envelope is the answer."""
    if type(data["id"]) is not str:
        raise TypeError("id of result is not str")
    return Result(data["id"], {key: value for key, value in data.items() if key not in ("event", "id")})


def _ready(data: dict[str, Any]) -> Event:
    """An engine of another protocol need not have our fields; all that we want of it is the number."""
    if type(data["protocol"]) is int and data["protocol"] != PROTOCOL:
        return Ready(data["protocol"], n_ctx=0, max_sequences=0, backend="")
    return _READY(data)


_TYPES: dict[str, tuple[type, ...]] = {
    "str": (str,),
    "str | None": (str,),
    "int": (int,),
    "int | None": (int,),
    "float": (float, int),
    "float | None": (float, int),
    "tuple[int, ...]": (list,),
    "bool": (bool,),
    "Mapping[str, Any]": (dict,),
    "Mapping[str, float]": (dict,),
    "tuple[Mapping[str, Any], ...]": (list,),
    "tuple[float, ...]": (list,),
    "TokenList": (list,),
}


def _parser(event: type[Any]) -> _Parser:
    """Reads an event by its dataclass: what has a default may be absent or null; True is no int."""
    name = event.__name__.lower()
    rows = [
        (
            f.name,
            _TYPES[str(f.type)],
            f.default is MISSING and f.default_factory is MISSING,
            TokenList.of if str(f.type) == "TokenList" else tuple,
        )
        for f in fields(event)
    ]

    def parse_event(data: dict[str, Any]) -> Event:
        values = {}
        for key, types, required, made_of in rows:
            value = data[key] if required else data.get(key)
            if type(value) in types:
                values[key] = made_of(value) if type(value) is list else value
            elif required or value is not None:
                raise TypeError(f"{key} of {name} is not {types[0].__name__}")
        made: Event = event(**values)
        return made

    return parse_event


_READY = _parser(Ready)
_STREAM = _parser(Stream)
_PARSERS: dict[str, _Parser] = {
    "stream": _stream,
    "result": _result,
    "ready": _ready,
    "loading": _parser(Loading),
    "accepted": _parser(Accepted),
    "queued": _parser(Queued),
    "start": _parser(Start),
    "prompt": _parser(Prompt),
    "progress": _parser(Progress),
    "stop": _parser(Stop),
    "again": _parser(Again),
    "score": _parser(Score),
    "embedding": _parser(Embedding),
    "extend": _parser(Extend),
    "done": _parser(Done),
    "error": _parser(Error),
}
