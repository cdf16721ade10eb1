"""`/v1/embeddings`: vectors of texts in OpenAI's form. Pure.

Vectors have length 1. `dimensions` keeps the first ones and brings the rest to length 1 again, which is what
models are made for that were trained so (Matryoshka); of others the vectors get worse.
"""

from __future__ import annotations

import base64
import math
import sys
from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import orjson

from llama_srb.protocol import Done, Embedding, Event
from llama_srb.request import (
    INT32_MAX,
    MAX_EMBEDDED,
    MAX_WARNINGS,
    RequestError,
    is_text,
    is_tokens,
    unknown_field,
    whole,
    wrong,
)

Text: TypeAlias = str | list[int]
Encoding: TypeAlias = Literal["float", "base64"]
NOT_USED = frozenset({"user"})


@dataclass(frozen=True, slots=True)
class EmbeddingRequest:
    """Texts, or their token ids; how many numbers of each vector, and how they are written."""

    input: tuple[Text, ...]
    encoding_format: Encoding = "float"
    dimensions: int | None = None
    model: str | None = None
    warnings: tuple[str, ...] = ()

    def engine_fields(self) -> dict[str, Any]:
        """The engine's embed command without op and id."""
        return {"input": self.input}


def _one(name: str, value: object) -> Text:
    if (isinstance(value, str) and value and is_text(value)) or (
        isinstance(value, list) and value and is_tokens(value)
    ):
        return value
    raise wrong(name, value, "a text that is not empty, or a list of token ids", "input")


def _input(value: object) -> tuple[Text, ...]:
    """One text, one list of token ids, or a list of either."""
    if isinstance(value, str) or (isinstance(value, list) and value and is_tokens(value)):
        return (_one("input", value),)
    if not isinstance(value, list) or not 1 <= len(value) <= MAX_EMBEDDED:
        raise wrong("input", value, f"a text, or a list of 1 to {MAX_EMBEDDED} texts or lists of token ids")
    return tuple(_one(f"input[{i}]", item) for i, item in enumerate(value))


def _format(value: object) -> object:
    if value not in ("float", "base64"):
        raise wrong("encoding_format", value, '"float" or "base64"')
    return value


def _model(value: object) -> str:
    if not isinstance(value, str):
        raise wrong("model", value, "a text")
    return value


_READERS: Mapping[str, Callable[[object], Any]] = {
    "input": _input,
    "encoding_format": _format,
    "dimensions": lambda value: whole("dimensions", value, 1, INT32_MAX),
    "model": _model,
}


def parse(body: Mapping[str, Any], *, strict: bool = False) -> EmbeddingRequest:
    """A body as a request; RequestError names what is wrong."""
    given = {name: value for name, value in body.items() if value is not None and name not in NOT_USED}
    unknown = [name for name in given if name not in _READERS]
    if unknown and strict:
        raise RequestError(unknown_field(unknown[0], _READERS), param=unknown[0])
    if "input" not in given:
        raise RequestError("input is missing", param="input")
    warnings = tuple(unknown_field(name, _READERS) for name in unknown[:MAX_WARNINGS])
    values = {name: read(given[name]) for name, read in _READERS.items() if name in given}
    return EmbeddingRequest(**values, warnings=warnings)


def shortened(vector: Sequence[float], dimensions: int | None) -> Sequence[float]:
    """The first numbers, as a vector of length 1."""
    if dimensions is None or dimensions == len(vector):
        return vector
    if dimensions > len(vector):
        raise wrong("dimensions", dimensions, f"at most {len(vector)}, which the model has")
    length = math.hypot(*vector[:dimensions]) or 1.0
    return [number / length for number in vector[:dimensions]]


def encoded(vector: Sequence[float], encoding: Encoding) -> object:
    """Numbers, or their 32-bit floats, little-endian, in base64."""
    if encoding == "float":
        return vector
    floats = array("f", vector)
    if sys.byteorder == "big":
        floats.byteswap()
    return base64.b64encode(floats.tobytes()).decode()


class Body:
    """Events folded into one JSON body, for one request."""

    def __init__(self, request: EmbeddingRequest, *, model: str) -> None:
        self._request = request
        self._model = model
        self._vectors: dict[int, object] = {}
        self._done: Done | None = None

    def take(self, events: Iterable[Event]) -> None:
        """Events, which follow those of the last call."""
        for event in events:
            self._done = event if isinstance(event, Done) else self._done
            if isinstance(event, Embedding):
                vector = shortened(event.embedding, self._request.dimensions)
                self._vectors[event.index] = encoded(vector, self._request.encoding_format)

    def json(self) -> bytes:
        """The body; all events must have been taken."""
        assert self._done is not None
        data = [
            {"object": "embedding", "index": index, "embedding": vector}
            for index, vector in sorted(self._vectors.items())
        ]
        n = self._done.prompt_tokens
        usage = {"prompt_tokens": n, "total_tokens": n}
        body = {"object": "list", "data": data, "model": self._model, "usage": usage}
        return orjson.dumps(body | ({"warnings": self._request.warnings} if self._request.warnings else {}))
