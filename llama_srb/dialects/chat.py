"""OpenAI's chat completions: chunks of deltas that end in `data: [DONE]`, or one JSON body of messages. Pure.

The engine writes the prompt and reads the answers, by the model's own template; here its events get OpenAI's
form. What a model thinks is reasoning_content, as DeepSeek and llama-server name it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import orjson

from llama_srb.dialects.common.reply import Text, as_json
from llama_srb.dialects.openai import UNFINISHED, CompletionBody, Fields, Form, Frames, form_of, marks_of
from llama_srb.engine.events import Event, Extend, Start, Stop, Stream
from llama_srb.request.fields import CompletionRequest
from llama_srb.request.parse import Defaults, request_from
from llama_srb.request.values import MAX_LOGPROBS, RequestError, wrong

N, MAX_TOKENS = 1, -1  # OpenAI's defaults
PREFIX = "chatcmpl-"  # of ids
READ_HERE = frozenset({
    "stream", "stream_options", "model", "user", "logprobs", "top_logprobs", "store", "metadata",
    "service_tier", "safety_identifier", "prompt_cache_key",
})  # fmt: skip


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


def _tokens(tokens: Iterable[Mapping[str, Any]]) -> list[orjson.Fragment]:
    """Each as JSON at once: with many alternatives a whole answer's are too many objects."""
    return [as_json(_token(token)) for token in tokens]


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


class Chunks(Frames):
    """Events as chunks."""

    kind, prefix = "chat.completion.chunk", PREFIX

    def __init__(self, request: CompletionRequest, form: Form, *, model: str, created: int) -> None:
        super().__init__(request, form, model=model, created=created)
        self._called: set[int] = set()  # the choices that called a tool

    def _frames(self, event: Event) -> bytes:
        match event:
            case Stream(reasoning="", tool_calls=()) if not event.tokens:
                # Nearly all frames are this one, so it is put together by hand.
                return (
                    b'%b,"choices":[{"index":%d,"delta":{"content":%b},"logprobs":null,"finish_reason":null}]%b'
                    % (self._head, event.index, orjson.dumps(event.text), self._tail)
                )
        return super()._frames(event)

    def _pieces_of(self, event: Event) -> bytes:
        match event:
            case Stream():
                if event.tool_calls:
                    self._called.add(event.index)
                logprobs = {"content": _tokens(event.tokens)} if event.tokens else None
                return self._chunk(event.index, _delta(event), logprobs)
            case Stop():
                reason = _finish_reason(event, called=event.index in self._called)
                return self._chunk(event.index, {}, None, reason, marks_of(event))
            case Extend():
                return self._roles(range(event.first, event.count))
        return b""

    def _begin(self, start: Start) -> bytes:
        return super()._begin(start) + self._roles(range(start.count))

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


def _message(one: Text) -> Fields:
    calls = [
        {"id": call["id"], "type": "function", "function": _named(call)}
        for _, call in sorted(one.calls.items())
    ]
    made: Fields = {"role": "assistant", "content": one.text if one.text or not calls else None}
    if reasoning := "".join(one.thoughts):
        made["reasoning_content"] = reasoning
    return made | ({"tool_calls": calls} if calls else {})


def _named(call: Mapping[str, Any]) -> Fields:
    return {"name": call["name"], "arguments": call["arguments"]}


class Body(CompletionBody[Text]):
    """Events folded into one body."""

    kind, prefix = "chat.completion", PREFIX

    def __init__(self, request: CompletionRequest, *, model: str, created: int) -> None:
        super().__init__(request, Text, model=model, created=created)

    def choice(self, index: int, one: Text, stop: Stop | None) -> Fields:
        assert stop is not None  # each sequence stops before done
        return {
            "index": index,
            "message": _message(one),
            "logprobs": {"content": _tokens(one.tokens)} if self._wants_logprobs else None,
            "finish_reason": _finish_reason(stop, called=bool(one.calls)),
        } | marks_of(stop)
