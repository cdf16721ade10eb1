"""The engine's stdout → lines → checked events. No I/O here."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias, get_args

import orjson

from llama_srb.engine.event_rows import rows, wire_name
from llama_srb.engine.events import DiversityStats, Event, Ready, Result, Stream, TokenList, Vote

PROTOCOL = 1
LINE_LIMIT = 64 << 20
"""The longest line that is accepted, in bytes. The tokens of a 10 MB text fit."""
LONG_RESULT = 64 << 10  # bytes
UNREADABLE = "the engine wrote a line that cannot be read; the server's log has more"
PIECES = b'"pieces":[['


class ProtocolError(Exception):
    """The engine wrote a line that is not an event of this protocol: a bug of ours, never a client's error.

    The message quotes nothing of the line, because the line may hold another client's text. `shown` is for
    the operator's log.
    """

    def __init__(self, message: str, line: bytes = b"") -> None:
        super().__init__(message)
        self._line = line

    @property
    def event(self) -> str:
        """The event's name; empty if the line does not begin as events do."""
        return self._head()[0]

    @property
    def id(self) -> str:
        """The request's id; empty if the line does not begin as events do."""
        return self._head()[1]

    def _head(self) -> tuple[str, str]:
        head = _HEAD.match(self._line)
        return (head[1].decode(), head[2].decode()) if head else ("", "")

    @property
    def shown(self) -> str:
        """The first SHOWN bytes of the line, with its texts left out."""
        line = _TEXT.sub(b'"\xe2\x80\xa6"', self._line[:SHOWN])
        return line.decode(errors="replace") + ("…" if len(self._line) > SHOWN else "")


SHOWN = 200  # bytes of a faulty line in the log
_HEAD = re.compile(rb'\{"event":"(\w+)","id":"([\w.-]{1,64})"', re.ASCII)  # each event of a request begins so
_TEXT = re.compile(rb'(?<=:)"(?:[^"\\]|\\.)*"?', re.DOTALL)


class Lines:
    """Splits chunks into lines. A line may span several chunks; the unfinished last line is buffered."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []  # joined once per line, so that a long line costs linear time
        self._size = 0

    def feed(self, chunk: bytes) -> list[bytes]:
        """Returns the lines that this chunk completes, without their line feeds."""
        self._parts.append(chunk)
        self._size += len(chunk)
        if b"\n" not in chunk:
            if self._size > LINE_LIMIT:
                raise ProtocolError(f"a line of more than {LINE_LIMIT} bytes")
            return []
        *lines, rest = b"".join(self._parts).split(b"\n")
        self._parts, self._size = [rest], len(rest)
        return lines


def parse(line: bytes, *, is_long: bool = False) -> Event | None:
    """Parses a line as an event; None for an unknown event name, which a newer engine may send.

    Unknown fields are ignored. ProtocolError for invalid JSON, and for a missing or wrongly typed field. A
    long result keeps its line, since reading it takes long; is_long: it is read nevertheless.
    """
    if not is_long and len(line) > LONG_RESULT and (head := _HEAD.match(line)) and head[1] == b"result":
        return Result(head[2].decode(), {}, line)
    try:
        data = orjson.loads(line)
        parser = _PARSERS.get(data["event"])
        return None if parser is None else parser(data)
    except KeyError as missing:
        raise ProtocolError(f"a line without {missing}", line) from None
    except orjson.JSONDecodeError as error:  # its message has the position, but no text of the line
        raise ProtocolError(f"a line that is not valid JSON ({error})", line) from None
    except TypeError as error:
        raise ProtocolError(f"a line that is not an event ({error})", line) from None


_Parser: TypeAlias = Callable[[dict[str, Any]], Event]


def _stream(data: dict[str, Any]) -> Event:
    """Parses a stream event. Nearly all lines are stream events, so this is written by hand for speed."""
    id, index, text = data["id"], data["index"], data["text"]
    if type(id) is not str or type(index) is not int or type(text) is not str:
        raise TypeError("id, index and text of stream are not str, int and str")
    return Stream(id, index, text) if len(data) == 4 else _STREAM(data)


def read_result(line: bytes) -> Mapping[str, Any]:
    """The data of a long result; ProtocolError. Called in a thread: it never holds the interpreter for long.

    The bytes of a million tokens would be a million lists, for each of which the garbage collector takes its
    time. So they are read as bytes.
    """
    begin = line.find(PIECES) + len(PIECES)
    if begin < len(PIECES) or (end := line.find(b"]]", begin)) < 0:
        return _data_of(line)
    data = _data_of(line[:begin] + line[end:])
    try:
        pieces = [bytes(map(int, one.split(b",") if one else ())) for one in line[begin:end].split(b"],[")]
    except ValueError as error:
        raise ProtocolError(f"a result whose pieces are no bytes ({error})", line) from None
    return {**data, "pieces": pieces}


def _data_of(line: bytes) -> Mapping[str, Any]:
    event = parse(line, is_long=True)
    assert isinstance(event, Result)
    return event.data


def _result(data: dict[str, Any]) -> Result:
    """Parses a result: all fields but `event` and `id` are the answer."""
    if type(data["id"]) is not str:
        raise TypeError("id of result is not str")
    return Result(data["id"], {key: value for key, value in data.items() if key not in ("event", "id")})


def _ready(data: dict[str, Any]) -> Event:
    """Parses ready. Of an engine with another protocol only the protocol's number is read."""
    if type(data["protocol"]) is int and data["protocol"] != PROTOCOL:
        return Ready(data["protocol"], n_ctx=0, max_sequences=0, backend="")
    return _READY(data)


_TYPES: dict[Any, tuple[type, ...]] = {
    str: (str,),
    str | None: (str,),
    int: (int,),
    int | None: (int,),
    float: (float, int),
    float | None: (float, int),
    tuple[int, ...]: (list,),
    tuple[str, ...]: (list,),
    bool: (bool,),
    Mapping[str, Any]: (dict,),
    Mapping[str, float]: (dict,),
    tuple[Mapping[str, Any], ...]: (list,),
    tuple[float, ...]: (list,),
    TokenList: (list,),
    tuple[Vote, ...] | None: (list,),  # the engine sends none
    DiversityStats | None: (dict,),
}


def _parser(event: type[Any]) -> _Parser:
    """Makes a parser from an event's rows. Fields with a default may be absent or null."""
    name = event.__name__.lower()
    keys = [
        (row.name, _TYPES[row.type], row.needed, TokenList.of if row.type is TokenList else tuple)
        for row in rows(event)
    ]

    def parse_event(data: dict[str, Any]) -> Event:
        values = {}
        for key, types, needed, convert in keys:
            value = data[key] if needed else data.get(key)
            if type(value) in types:  # by type(), so that True is not an int
                values[key] = convert(value) if type(value) is list else value
            elif needed or value is not None:
                raise TypeError(f"{key} of {name} is not {types[0].__name__}")
        made: Event = event(**values)
        return made

    return parse_event


_PARSERS: dict[str, _Parser] = {
    wire_name(event): _parser(event) for event in get_args(Event) if event is not Result
}
_READY, _STREAM = _PARSERS["ready"], _PARSERS["stream"]
_PARSERS |= {"ready": _ready, "stream": _stream, "result": _result}
