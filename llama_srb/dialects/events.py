"""The event stream: start, (prompt,) stream, stop, done as server-sent events, one JSON object each. Pure.

The keys that stand first in each object, `event` before all, are stable; later versions may add more keys.
"""

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from operator import attrgetter
from typing import Any

import orjson

from llama_srb.dialects.common.response_types import NOTHING, Compared, Frames, Noted, compared, with_warnings
from llama_srb.dialects.event_types import Event
from llama_srb.engine import events as engine
from llama_srb.engine.event_rows import public_rows, wire_name
from llama_srb.engine.events import NO_TOKENS, PUBLIC, Done, Loading, Start, Stream, TokenList
from llama_srb.request.fields import CompletionRequest
from llama_srb.request.parse import Defaults, request_from

CONTENT_TYPE = "text/event-stream; charset=utf-8"
DIVERSITY = "arithmetic"  # the default, if the settings allow it: docs/diversity.md shows its effect
COMPARED = frozenset(Compared.__annotations__)  # keys of done that compared() writes
READ_ELSEWHERE = frozenset({"stream", "model", "user"})
"""Fields that the content negotiation reads, or that OpenAI's clients add; they do not change the text."""
EVENTS = Frames(
    Event,
    "Frames `data: <Event>`, each followed by an empty line; first start, after loading or queued if the "
    "request had to wait; done or error last. "
    "Lines that begin with a colon are comments.",
)


def parse(body: Mapping[str, Any], defaults: Defaults) -> CompletionRequest:
    """Reads a body as a request; RequestError if a field is wrong."""
    return request_from(body, replace(defaults, diversity=DIVERSITY), known=READ_ELSEWHERE)


def render(events: Iterable[engine.Event], notes: Noted = NOTHING) -> bytes:
    """Events as frames, in order; the start event gets the notes. Internal events are skipped."""
    frames = []
    for event in events:
        if type(event) is Stream:  # nearly all events are of this kind
            frames.append(_stream(event))
        elif type(event) is Start and (notes or event.warnings):
            frames.append(_frame({**_fields(event), **with_warnings(notes, event)}))
        elif (write := _WRITERS.get(type(event))) is not None:
            frames.append(write(event))
    return b"".join(frames)


def _stream(event: Stream) -> bytes:
    """Formats these frames by hand, which is faster."""
    more = b"" if _SELDOM(event) == _NONE else _more(_SELDOM(event))
    text = orjson.dumps(event.text)
    return b'data: {"event": "stream", "index": %d, "text": %b%b}\n\n' % (event.index, text, more)


def _more(values: Iterable[Any]) -> bytes:
    """The keys that a stream event seldom has."""
    more = b""
    for name, value in zip(_MORE, values, strict=True):
        if value:
            more += name + (value.json if type(value) is TokenList else orjson.dumps(value))
    return more


def _frame(data: Mapping[str, Any]) -> bytes:
    return f"data: {json.dumps(data, ensure_ascii=False)}\n\n".encode()


def _fields(event: Any) -> dict[str, Any]:
    """An event as its frame has it: what is empty and may be absent is left out."""
    name, keys = _KEYS[type(event)]
    made: dict[str, Any] = {"event": name}
    for key, may_be_absent in keys:
        value = getattr(event, key)
        if not may_be_absent or value not in EMPTY:
            made[key] = list(value) if isinstance(value, TokenList) else value
    return made


def _loading(event: Loading) -> bytes:
    """The engine's own event of this kind belongs to no request and is no frame."""
    return _frame({**_fields(event), "progress": round(event.progress, 3)}) if event.id else b""


def _done(event: Done) -> bytes:
    return _frame({**_fields(event), **compared(event)})


EMPTY = (None, "", (), NO_TOKENS)
_KEYS: dict[type[Any], tuple[str, list[tuple[str, bool]]]] = {
    kind: (
        wire_name(kind),
        [(name, row.may_be_absent) for name, row in public_rows(kind).items() if name not in COMPARED],
    )
    for kind in PUBLIC
}
_WRITERS: dict[type[Any], Callable[[Any], bytes]] = {
    **dict.fromkeys(PUBLIC, lambda event: _frame(_fields(event))),
    Loading: _loading,
    Done: _done,
}
_ABSENT = {name: row.default for name, row in public_rows(Stream).items() if row.may_be_absent}
_SELDOM, _NONE = attrgetter(*_ABSENT), tuple(_ABSENT.values())
_MORE = tuple(b', "%b": ' % name.encode() for name in _ABSENT)
