"""OpenAI's chat completions: chunks of deltas that end in `data: [DONE]`, or one JSON body of messages. Pure.

The engine writes the prompt and reads the answers, by the model's own template; here its events get OpenAI's
form. What a model thinks is reasoning_content, as DeepSeek and llama-server name it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import orjson

from llama_srb.dialects.openai import (
    END,
    UNFINISHED,
    Form,
    error_body,
    form_of,
    marks_of,
    renumbered,
    usage_of,
)
from llama_srb.protocol import Again, Done, Error, Event, Extend, Queued, Start, Stop, Stream
from llama_srb.request import MAX_LOGPROBS, CompletionRequest, Defaults, RequestError, request_from, wrong

N, MAX_TOKENS = 1, -1  # OpenAI's defaults
READ_HERE = frozenset({
    "stream", "stream_options", "model", "user", "logprobs", "top_logprobs", "store", "metadata",
    "service_tier", "safety_identifier", "prompt_cache_key",
})  # fmt: skip

Fields: TypeAlias = dict[str, Any]


def parse(body: Mapping[str, Any], defaults: Defaults) -> tuple[CompletionRequest, Form]:
    """A body of this dialect as a request and a form; RequestError names what is wrong."""
    form = form_of(body)
    if body.get("messages") is None:
        raise RequestError("messages is missing", param="messages")
    request = request_from(
        body, replace(defaults, n=N, max_tokens=MAX_TOKENS, whole=not form.stream), known=READ_HERE
    )
    return request.model_copy(update={"logprobs": _logprobs(body)}), form


def _logprobs(body: Mapping[str, Any]) -> int | None:
    """logprobs says whether, top_logprobs how many alternatives."""
    wanted, top = body.get("logprobs"), body.get("top_logprobs")
    if wanted is not None and not isinstance(wanted, bool):
        raise wrong("logprobs", wanted, "true or false")
    if top is not None and (type(top) is not int or not 0 <= top <= MAX_LOGPROBS):
        raise wrong("top_logprobs", top, f"a whole number between 0 and {MAX_LOGPROBS}")
    if top and not wanted:
        raise RequestError("top_logprobs is given without logprobs", param="top_logprobs")
    return (top or 0) if wanted else None


def _one_logprob(token: Mapping[str, Any]) -> Fields:
    text = token["text"]
    return {"token": text, "logprob": token["logprob"], "bytes": list(text.encode())}


def _token(token: Mapping[str, Any]) -> Fields:
    return _one_logprob(token) | {"top_logprobs": list(map(_one_logprob, token.get("top", ())))}


def _call(call: Mapping[str, Any]) -> Fields:
    """A piece of a call; its first one has id and name."""
    function = {"arguments": call["arguments"]}
    if "name" not in call:
        return {"index": call["index"], "function": function}
    named = {"index": call["index"], "id": call["id"], "type": "function"}
    return named | {"function": {"name": call["name"], **function}}


def _delta(event: Stream) -> Fields:
    delta: Fields = {"content": event.text} if event.text else {}
    if event.reasoning:
        delta["reasoning_content"] = event.reasoning
    if event.tool_calls:
        delta["tool_calls"] = list(map(_call, event.tool_calls))
    return delta


def _finish_reason(stop: Stop, *, called: bool) -> str:
    """In OpenAI's words, which depend on whether the choice called a tool."""
    if stop.finish_reason != "stop":
        return UNFINISHED
    return "tool_calls" if called else "stop"


class Chunks:
    """Events as chunks, for one request; created is in seconds since 1970."""

    def __init__(self, request: CompletionRequest, form: Form, *, model: str, created: int) -> None:
        self._warnings = request.warnings
        self._form = form
        self._about = {"object": "chat.completion.chunk", "created": created, "model": model}
        self._head = b""  # made with the id of the first event; frames begin with it
        self._tail = b',"usage":null}\n\n' if form.include_usage else b"}\n\n"
        self._called: set[int] = set()  # the choices that called a tool

    def render(self, events: list[Event]) -> bytes:
        """Frames for these events, which follow those of the last call."""
        return b"".join(map(self._frames, events))

    def _frames(self, event: Event) -> bytes:
        match event:
            case Stream(tokens=(), reasoning="", tool_calls=()):
                # Nearly all frames are this one, so it is put together by hand.
                return (
                    b'%b,"choices":[{"index":%d,"delta":{"content":%b},"logprobs":null,"finish_reason":null}]%b'
                    % (self._head, event.index, orjson.dumps(event.text), self._tail)
                )
            case Stream():
                if event.tool_calls:
                    self._called.add(event.index)
                logprobs = {"content": list(map(_token, event.tokens))} if event.tokens else None
                return self._chunk(event.index, _delta(event), logprobs)
            case Stop():
                reason = _finish_reason(event, called=event.index in self._called)
                return self._chunk(event.index, {}, None, reason, marks_of(event))
            case Queued():
                return b": queued at position %d\n\n" % event.position
            case Start():
                return self._begin(event)
            case Extend():
                return self._roles(range(event.first, event.count))
            case Done():
                last: Fields = {"choices": []}
                last |= {"ranking": event.ranking} if event.ranking else {}
                last |= {"usage": usage_of(event)} if self._form.include_usage else {}
                return (self._framed(last) if len(last) > 1 else b"") + END
            case Error():
                kind = "invalid_request_error" if event.code == "invalid_request" else "server_error"
                error = error_body(event.message, kind=kind, param=event.param, code=event.code)
                return b"data: %b\n\n" % orjson.dumps(error)
        return b""

    def _begin(self, start: Start) -> bytes:
        about = {"id": f"chatcmpl-{start.id}", **self._about}
        self._head = b"data: " + orjson.dumps(about)[:-1]
        warned = self._framed({"choices": [], "warnings": self._warnings}) if self._warnings else b""
        return warned + self._roles(range(start.count))

    def _roles(self, indices: Iterable[int]) -> bytes:
        role = {"role": "assistant", "content": ""}
        return b"".join(self._chunk(index, role) for index in indices)

    def _chunk(
        self,
        index: int,
        delta: Fields,
        logprobs: Fields | None = None,
        finish_reason: str | None = None,
        marks: Fields | None = None,
    ) -> bytes:
        choice = {"index": index, "delta": delta, "logprobs": logprobs, "finish_reason": finish_reason}
        return self._framed({"choices": [choice | (marks or {})]})

    def _framed(self, fields: Mapping[str, Any]) -> bytes:
        tail = b"}\n\n" if "usage" in fields else self._tail
        return b"%b,%b%b" % (self._head, orjson.dumps(fields)[1:-1], tail)


@dataclass(slots=True)
class _Choice:
    content: list[str] = field(default_factory=list)
    reasoning: list[str] = field(default_factory=list)
    calls: list[Fields] = field(default_factory=list)
    tokens: list[Fields] = field(default_factory=list)
    stop: Stop | None = None

    def add(self, event: Stream) -> None:
        self.content.append(event.text)
        self.reasoning.append(event.reasoning)
        self.tokens += map(_token, event.tokens)
        for call in event.tool_calls:
            if "name" in call:
                self.calls.append({"id": call["id"], "type": "function", "function": _named(call)})
            else:
                self.calls[call["index"]]["function"]["arguments"] += call["arguments"]

    def message(self) -> Fields:
        content = "".join(self.content)
        made: Fields = {"role": "assistant", "content": content if content or not self.calls else None}
        if reasoning := "".join(self.reasoning):
            made["reasoning_content"] = reasoning
        return made | ({"tool_calls": self.calls} if self.calls else {})


def _named(call: Mapping[str, Any]) -> Fields:
    return {"name": call["name"], "arguments": call["arguments"]}


class Body:
    """Events folded into one JSON body, for one request; created is in seconds since 1970."""

    def __init__(self, request: CompletionRequest, *, model: str, created: int) -> None:
        self._request = request
        self._about = {"object": "chat.completion", "created": created, "model": model}
        self._choices = [_Choice() for _ in range(request.n)]
        self._done: Done | None = None

    def take(self, events: Iterable[Event]) -> None:
        """Events, which follow those of the last call."""
        for event in events:
            match event:
                case Stream():
                    self._choices[event.index].add(event)
                case Stop():
                    self._choices[event.index].stop = event
                case Again():
                    self._choices[event.index] = _Choice()
                case Extend():
                    self._choices += [_Choice() for _ in range(event.first, event.count)]
                case Done():
                    self._done = event

    def json(self) -> bytes:
        """The body; all events must have been taken."""
        assert self._done is not None
        best_first = self._done.ranking or range(len(self._choices))
        places = {number: i for i, number in enumerate(best_first)}
        choices = [self._choice(i, self._choices[number], places) for i, number in enumerate(best_first)]
        body = {"id": f"chatcmpl-{self._done.id}", **self._about, "choices": choices}
        body["usage"] = usage_of(self._done)
        return orjson.dumps(body | ({"warnings": self._request.warnings} if self._request.warnings else {}))

    def _choice(self, index: int, one: _Choice, places: Mapping[int, int]) -> Fields:
        stop = renumbered(one.stop, places)
        assert stop is not None  # each sequence stops before done
        return {
            "index": index,
            "message": one.message(),
            "logprobs": None if self._request.logprobs is None else {"content": one.tokens},
            "finish_reason": _finish_reason(stop, called=bool(one.calls)),
        } | marks_of(stop)
