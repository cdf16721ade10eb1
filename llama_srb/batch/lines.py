"""One line of a batch: from its bytes to a request, or the reason why it is none. Pure."""

from __future__ import annotations

import codecs
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from llama_srb.request.json_text import read_json
from llama_srb.request.values import MAX_DEPTH, RequestError, shown

MAX_CUSTOM_ID = 512  # characters
LINE_DEPTH = MAX_DEPTH + 1  # levels of JSON: a body is one level deep in its line


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A path that lines may ask.

    prompt: the fields of a body from which its prompt is made, in the order in which they stand in it.
    has_stream: whether a body may ask for a stream.
    """

    path: str
    prompt: tuple[str, ...]
    has_stream: bool = True


# OpenAI's batches may ask the first four of them.
ENDPOINTS: Mapping[str, Endpoint] = {
    one.path: one
    for one in (
        Endpoint("/v1/chat/completions", ("tools", "messages")),
        Endpoint("/v1/completions", ("prompt",)),
        Endpoint("/v1/embeddings", ("input",), has_stream=False),
        Endpoint("/v1/responses", ("instructions", "tools", "input")),
        Endpoint("/v1/score", ("prompt", "texts"), has_stream=False),
    )
}
PATHS = ", ".join(ENDPOINTS)


class LineError(Exception):
    """A line is no request. number: of the line, from 1; None: the error is about the whole file."""

    def __init__(self, code: str, message: str, number: int | None = None, param: str | None = None) -> None:
        super().__init__(message)
        self.code, self.message, self.number, self.param = code, message, number, param

    def __str__(self) -> str:
        return self.message if self.number is None else f"line {self.number}: {self.message}"


@dataclass(frozen=True, slots=True)
class Line:
    """A request of a batch. size: of its line, in bytes."""

    custom_id: str
    endpoint: Endpoint
    body: Mapping[str, Any]
    size: int

    @property
    def sequences(self) -> int:
        """The sequences that a server generates for it at once; 1 if the body says nothing valid."""
        prompt = self.body.get("prompt")
        are_prompts = isinstance(prompt, list) and any(type(one) is not int for one in prompt)
        prompts = len(prompt) if are_prompts and prompt else 1
        counts = (self.body.get("n"), self.body.get("best_of"), 1)
        return prompts * max(one for one in counts if type(one) is int)

    def content(self, model: str | None = None) -> bytes:
        """The body as it is sent: its answer is one JSON object. model: for a body that names none."""
        body = {"model": model, **self.body} if model is not None else dict(self.body)
        if self.endpoint.has_stream:
            body |= {"stream": False}
            body.pop("stream_options", None)  # OpenAI refuses it without a stream
        return orjson.dumps(body)

    def beginning(self) -> bytes:
        """The parts of its body with which prompts begin, so that lines of one prefix have one beginning."""
        fields = ("model", *self.endpoint.prompt)
        return orjson.dumps([self.endpoint.path, *(self.body.get(name) for name in fields)])


def parse(data: bytes, number: int | None = None, endpoint: str | None = None) -> Line:
    """Reads a line; LineError. number: of the line, from 1. endpoint: the one path that lines may ask."""
    line = _object(data.removeprefix(codecs.BOM_UTF8), number)  # Windows' editors write one
    custom_id = _needed(line, "custom_id", number)
    if not isinstance(custom_id, str) or not 0 < len(custom_id) <= MAX_CUSTOM_ID:
        length = f" of {len(custom_id)} characters" if isinstance(custom_id, str) else ""
        wanted = f"a text of 1 to {MAX_CUSTOM_ID} characters"
        raise _wrong("custom_id", f"{shown(custom_id)}{length}", wanted, number)
    if (method := _needed(line, "method", number)) != "POST":
        raise _wrong("method", shown(method), '"POST"', number)
    url = _needed(line, "url", number)
    known = ENDPOINTS.get(url) if isinstance(url, str) else None
    if known is None:
        raise _wrong("url", shown(url), f"one of {PATHS}", number)
    if endpoint is not None and url != endpoint:
        raise _wrong("url", shown(url), f"the batch's endpoint, {endpoint}", number, "mismatched_endpoint")
    if not isinstance(body := _needed(line, "body", number), dict):
        raise _wrong("body", shown(body), "an object", number)
    return Line(custom_id, known, body, len(data))


def _object(data: bytes, number: int | None) -> dict[str, Any]:
    try:
        line = read_json("the line", data, LINE_DEPTH)
    except RequestError as error:
        raise LineError("invalid_json_line", error.message, number) from None
    except json.JSONDecodeError as error:
        message = f"it is not JSON: {error.msg} (column {error.colno})"
        raise LineError("invalid_json_line", message, number) from None
    if not isinstance(line, dict):
        raise LineError("invalid_json_line", f"it is {shown(line)}; it must be an object", number)
    return line


def _needed(line: dict[str, Any], name: str, number: int | None) -> object:
    if name not in line:
        wanted = "custom_id, method, url and body are needed"
        raise LineError("missing_required_parameter", f"it has no {name}; {wanted}", number, name)
    return line[name]


def _wrong(name: str, value: str, wanted: str, number: int | None, code: str = "") -> LineError:
    message = f"{name} is {value}; it must be {wanted}"
    return LineError(code or f"invalid_{name}", message, number, name)
