"""The event stream: start, (prompt,) stream, stop, done as server-sent events, one JSON object each. Pure.

`event` and what it is about come first in each object and stay; more keys may follow.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

import orjson

from llama_srb.engine.events import Done, Error, Event, Extend, Progress, Prompt, Queued, Start, Stop, Stream
from llama_srb.request.fields import CompletionRequest
from llama_srb.request.parse import Defaults, request_from

CONTENT_TYPE = "text/event-stream; charset=utf-8"
DIVERSITY = "arithmetic"  # where the settings allow it: docs/diversity.md has what it brings
READ_ELSEWHERE = frozenset({"stream", "model", "user"})
"""Fields of the negotiation and of OpenAI's clients; they say nothing about the text."""


def parse(body: Mapping[str, Any], defaults: Defaults) -> CompletionRequest:
    """A body of this dialect as a request; RequestError names what is wrong."""
    return request_from(body, replace(defaults, diversity=DIVERSITY), known=READ_ELSEWHERE)


def render(events: Iterable[Event], warnings: tuple[str, ...] = ()) -> bytes:
    """Events as frames, in order; warnings go into the start event. What is not for clients is left out."""
    frames = []
    for event in events:
        if type(event) is Start and warnings:
            frames.append(_frame({**_start(event), "warnings": warnings}))
        elif (write := _WRITERS.get(type(event))) is not None:
            frames.append(write(event))
    return b"".join(frames)


def _stream(event: Stream) -> bytes:
    """Nearly all frames are this one, so it is put together by hand."""
    more = _more(event) if event.tokens or event.reasoning or event.tool_calls else b""
    text = orjson.dumps(event.text)
    return b'data: {"event": "stream", "index": %d, "text": %b%b}\n\n' % (event.index, text, more)


def _more(event: Stream) -> bytes:
    tokens = b', "tokens": ' + event.tokens.json if event.tokens else b""
    given = ((name, getattr(event, name)) for name in ("reasoning", "tool_calls"))
    rest = (b', "%b": %b' % (name.encode(), orjson.dumps(value)) for name, value in given if value)
    return b"".join((tokens, *rest))


def _frame(data: Mapping[str, Any]) -> bytes:
    return f"data: {json.dumps(data, ensure_ascii=False)}\n\n".encode()


def _fields(event: Event, name: str, *keys: str) -> dict[str, Any]:
    return {"event": name} | {key: getattr(event, key) for key in keys}


def _start(event: Start) -> dict[str, Any]:
    return _fields(event, "start", "count", "id", "prompt_tokens", "cached_tokens", "seed")


def _queued(event: Queued) -> dict[str, Any]:
    return _fields(event, "queued", "position", "id")


def _prompt(event: Prompt) -> dict[str, Any]:
    data = {"event": "prompt", "text": event.text}
    return data | ({"tokens": list(event.tokens)} if event.tokens else {})


def _progress(event: Progress) -> dict[str, Any]:
    return _fields(event, "progress", "processed", "total")


def _stop(event: Stop) -> dict[str, Any]:
    return (
        _fields(event, "stop", "index", "length", "stop", "finish_reason")
        | ({"stop_text": event.stop_text} if event.stop_text else {})
        | _known(event, "logprob", "mean_logprob", "distinct_2", "duplicate_of")
    )


def _known(event: Event, *names: str) -> dict[str, Any]:
    """The fields that have a value."""
    return {name: value for name in names if (value := getattr(event, name)) is not None}


def _extend(event: Extend) -> dict[str, Any]:
    return _fields(event, "extend", "first", "count")


def _done(event: Done) -> dict[str, Any]:
    data = _fields(event, "done", "count", "prompt_tokens", "cached_tokens", "completion_tokens")
    return data | {"timings": dict(event.timings)} | ({"ranking": event.ranking} if event.ranking else {})


def _error(event: Error) -> dict[str, Any]:
    data = _fields(event, "error", "code", "message")
    return data | ({"param": event.param} if event.param else {})


def _framed(fields: Callable[[Any], dict[str, Any]]) -> Callable[[Any], bytes]:
    return lambda event: _frame(fields(event))


_WRITERS: dict[type[Any], Callable[[Any], bytes]] = {
    Stream: _stream,
    Queued: _framed(_queued),
    Start: _framed(_start),
    Prompt: _framed(_prompt),
    Progress: _framed(_progress),
    Stop: _framed(_stop),
    Extend: _framed(_extend),
    Done: _framed(_done),
    Error: _framed(_error),
}
