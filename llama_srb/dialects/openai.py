"""OpenAI's completions: chunks that end in `data: [DONE]`, or one JSON body. Pure.

One choice a frame, its text always a string: clients append it unseen. usage counts all choices.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import orjson

from llama_srb.protocol import Done, Error, Event, Queued, Start, Stop, Stream
from llama_srb.request import CompletionRequest, Defaults, RequestError, request_from

N, MAX_TOKENS = 1, 16  # OpenAI's defaults
READ_HERE = frozenset({"stream", "stream_options", "model", "user", "suffix"})
END = b"data: [DONE]\n\n"


@dataclass(frozen=True, slots=True)
class Form:
    """How the client wants its answer, and of which model; None is "whichever there is"."""

    stream: bool = False
    include_usage: bool = False
    model: str | None = None


def parse(body: Mapping[str, Any], defaults: Defaults) -> tuple[CompletionRequest, Form]:
    """A body of this dialect as a request and a form; RequestError names what is wrong."""
    form = _form(body)
    ours = replace(defaults, n=N, max_tokens=MAX_TOKENS)
    request = request_from({**body, "prompt": _one_prompt(body.get("prompt"))}, ours, known=READ_HERE)
    if request.echo and not isinstance(request.prompt, str):
        raise RequestError("echo is true; it must be false when prompt is a list of token ids", param="echo")
    if body.get("suffix"):
        request = request.model_copy(update={"warnings": (*request.warnings, "suffix is not used")})
    return request, form


def _one_prompt(prompt: object) -> object:
    """A list of one prompt is that prompt, as OpenAI's clients may send it."""
    if isinstance(prompt, list) and prompt and isinstance(prompt[0], str | list):
        if len(prompt) > 1:
            raise RequestError(f"prompt is a list of {len(prompt)} prompts; it must be one", param="prompt")
        return prompt[0]
    return prompt


def _form(body: Mapping[str, Any]) -> Form:
    model, options = body.get("model"), body.get("stream_options")
    if model is not None and not isinstance(model, str):
        raise RequestError("model must be a text", param="model")
    if options is not None and not isinstance(options, dict):
        raise RequestError("stream_options must be an object", param="stream_options")
    include_usage = _switch(options or {}, "include_usage", "stream_options.include_usage")
    return Form(_switch(body, "stream", "stream"), include_usage, model)


def _switch(fields: Mapping[str, Any], name: str, param: str) -> bool:
    value = fields.get(name)
    if value is not None and not isinstance(value, bool):
        raise RequestError(f"{param} must be true or false", param=param)
    return bool(value)


def error_body(message: str, *, kind: str, param: str | None, code: str | None) -> dict[str, Any]:
    """An error in the form that OpenAI's clients read."""
    return {"error": {"message": message, "type": kind, "param": param, "code": code}}


@dataclass(slots=True)
class _Logprobs:
    """The tokens of one choice in OpenAI's four parallel lists; offset counts characters, with the echo's."""

    offset: int

    def lists(self, tokens: Iterable[Mapping[str, Any]]) -> dict[str, list[Any]]:
        """The lists for these tokens, which follow those of the last call."""
        made: dict[str, list[Any]] = {
            "tokens": [],
            "token_logprobs": [],
            "top_logprobs": [],
            "text_offset": [],
        }
        for token in tokens:
            made["tokens"].append(token["text"])
            made["token_logprobs"].append(token["logprob"])
            made["top_logprobs"].append({other["text"]: other["logprob"] for other in token.get("top", ())})
            made["text_offset"].append(self.offset)
            self.offset += len(token["text"])
        return made


def _usage(done: Done) -> dict[str, Any]:
    return {
        "prompt_tokens": done.prompt_tokens,
        "completion_tokens": done.completion_tokens,
        "total_tokens": done.prompt_tokens + done.completion_tokens,
        "prompt_tokens_details": {"cached_tokens": done.cached_tokens},
    }


def _choice(index: int, text: str, logprobs: object, finish_reason: str | None) -> dict[str, Any]:
    return {"text": text, "index": index, "logprobs": logprobs, "finish_reason": finish_reason}


def _echo(request: CompletionRequest) -> str:
    return request.prompt if request.echo and isinstance(request.prompt, str) else ""


def _logprobs_of(request: CompletionRequest) -> defaultdict[int, _Logprobs]:
    return defaultdict(lambda: _Logprobs(len(_echo(request))))


class Chunks:
    """Events as chunks, for one request; created is in seconds since 1970."""

    def __init__(self, request: CompletionRequest, form: Form, *, model: str, created: int) -> None:
        self._request = request
        self._form = form
        self._about = {"object": "text_completion", "created": created, "model": model}
        self._head = b""  # made with the id of the first event; frames begin with it
        self._logprobs = _logprobs_of(request)

    def render(self, events: list[Event]) -> bytes:
        """Frames for these events, which follow those of the last call."""
        return b"".join(map(self._frames, events))

    def _frames(self, event: Event) -> bytes:
        match event:
            case Stream(tokens=()):
                # Nearly all frames are this one, so it is put together by hand.
                text = orjson.dumps(event.text)
                return b'%b,"choices":[{"text":%b,"index":%d,"logprobs":null,"finish_reason":null}]}\n\n' % (
                    self._head, text, event.index,
                )  # fmt: skip
            case Stream():
                logprobs = self._logprobs[event.index].lists(event.tokens)
                return self._frame(choices=[_choice(event.index, event.text, logprobs, None)])
            case Stop():
                return self._frame(choices=[_choice(event.index, "", None, event.finish_reason)])
            case Queued():
                return b": queued at position %d\n\n" % event.position
            case Start():
                return self._begin(event)
            case Done():
                usage = self._frame(choices=[], usage=_usage(event)) if self._form.include_usage else b""
                return usage + END
            case Error():
                kind = "invalid_request_error" if event.code == "invalid_request" else "server_error"
                error = error_body(event.message, kind=kind, param=event.param, code=event.code)
                return b"data: %b\n\n" % orjson.dumps(error)
        return b""

    def _begin(self, start: Start) -> bytes:
        about = {"id": f"cmpl-{start.id}", **self._about}
        self._head = b"data: " + orjson.dumps(about)[:-1]
        frames = []
        if self._request.warnings:
            frames.append(self._frame(choices=[_choice(0, "", None, None)], warnings=self._request.warnings))
        if echo := _echo(self._request):
            frames += [
                self._frame(choices=[_choice(index, echo, None, None)]) for index in range(start.count)
            ]
        return b"".join(frames)

    def _frame(self, **fields: Any) -> bytes:
        return b"%b,%b\n\n" % (self._head, orjson.dumps(fields)[1:])


@dataclass(slots=True)
class _Choice:
    text: str
    finish_reason: str | None = None
    tokens: list[Mapping[str, Any]] = field(default_factory=list)


class Body:
    """Events folded into one JSON body, for one request; created is in seconds since 1970."""

    def __init__(self, request: CompletionRequest, *, model: str, created: int) -> None:
        self._request = request
        self._about = {"object": "text_completion", "created": created, "model": model}
        self._choices = [_Choice(_echo(request)) for _ in range(request.n)]
        self._done: Done | None = None

    def take(self, events: Iterable[Event]) -> None:
        """Events, which follow those of the last call."""
        for event in events:
            match event:
                case Stream():
                    self._choices[event.index].text += event.text
                    self._choices[event.index].tokens += event.tokens
                case Stop():
                    self._choices[event.index].finish_reason = event.finish_reason
                case Done():
                    self._done = event

    def json(self) -> bytes:
        """The body; all events must have been taken."""
        assert self._done is not None
        logprobs = _logprobs_of(self._request)
        wanted = self._request.logprobs is not None
        choices = [
            _choice(i, one.text, logprobs[i].lists(one.tokens) if wanted else None, one.finish_reason)
            for i, one in enumerate(self._choices)
        ]
        body = {"id": f"cmpl-{self._done.id}", **self._about, "choices": choices, "usage": _usage(self._done)}
        return orjson.dumps(body | ({"warnings": self._request.warnings} if self._request.warnings else {}))
