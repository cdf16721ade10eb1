"""`/v1/embeddings`: vectors of texts in OpenAI's form. Pure.

Vectors have length 1. `dimensions` keeps the first numbers of a vector and normalizes it to length 1 again.
Models with Matryoshka training are made for that; with other models the vectors get worse.
"""

import base64
import math
import sys
from array import array
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from typing_extensions import TypedDict

from llama_srb.dialects.common.response_types import Count, Warned
from llama_srb.dialects.common.texts import Text, TextsBody, list_of_texts, model_name, one_text
from llama_srb.dialects.openai.answer import Origin
from llama_srb.engine.events import Done, Embedding, Event
from llama_srb.request.parse import Reader, read_fields
from llama_srb.request.shapes import SIDES, cache_salt, kept_tokens, limit_fields, one_of
from llama_srb.request.values import INT32_MAX, MAX_EMBEDDED, whole, wrong

Encoding: TypeAlias = Literal["float", "base64"]
NOT_USED = frozenset({"user"})


@dataclass(frozen=True, slots=True)
class EmbeddingRequest:
    """Texts or lists of token ids, the number of dimensions of their vectors, and the vectors' encoding."""

    input: tuple[Text, ...]
    encoding_format: Encoding = "float"
    dimensions: int | None = None
    model: str | None = None
    truncate_prompt_tokens: int | None = None
    truncation_side: str | None = None
    cache_salt: str | None = None  # does nothing: vectors use no cells of others
    warnings: tuple[str, ...] = ()

    def engine_fields(self) -> dict[str, Any]:
        """The engine's embed command without op and id."""
        return {"input": self.input, **limit_fields(self.truncate_prompt_tokens, self.truncation_side)}


def _format(value: object) -> object:
    if value not in ("float", "base64"):
        raise wrong("encoding_format", value, '"float" or "base64"')
    return value


def _one(name: str) -> Callable[[object], Text]:
    return one_text(name, "a text that is not empty, or a list of token ids", empty=False, param="input")


_MANY = f"a text, or a list of 1 to {MAX_EMBEDDED} texts or lists of token ids"
_READERS: Mapping[str, Reader] = {
    "input": list_of_texts("input", MAX_EMBEDDED, _MANY, _one),
    "encoding_format": _format,
    "dimensions": lambda value: whole("dimensions", value, 1, INT32_MAX),
    "model": model_name,
    "truncate_prompt_tokens": lambda value: whole(
        "truncate_prompt_tokens", kept_tokens(value), -1, INT32_MAX
    ),
    "truncation_side": one_of("truncation_side", SIDES),
    "cache_salt": cache_salt,
}


def parse(body: Mapping[str, Any], *, strict: bool = False) -> EmbeddingRequest:
    """Reads a body as a request; RequestError if a field is wrong."""
    used = {name: value for name, value in body.items() if name not in NOT_USED}
    return EmbeddingRequest(**read_fields(used, _READERS, required="input", strict=strict))


def shortened(vector: Sequence[float], dimensions: int | None) -> Sequence[float]:
    """The first `dimensions` numbers of a vector, normalized to length 1."""
    if dimensions is None or dimensions == len(vector):
        return vector
    if dimensions > len(vector):
        raise wrong("dimensions", dimensions, f"at most {len(vector)}, the model's dimensions")
    length = math.hypot(*vector[:dimensions]) or 1.0
    return [number / length for number in vector[:dimensions]]


def encoded(vector: Sequence[float], encoding: Encoding) -> Sequence[float] | str:
    """A vector as a list of numbers, or as base64 of 32-bit little-endian floats."""
    if encoding == "float":
        return vector
    floats = array("f", vector)
    if sys.byteorder == "big":
        floats.byteswap()
    return base64.b64encode(floats.tobytes()).decode()


class EmbeddingEntry(TypedDict):
    object: Literal["embedding"]
    index: Count
    embedding: Sequence[float] | str


class EmbeddingUsage(TypedDict):
    prompt_tokens: Count
    total_tokens: Count


class Embeddings(Warned):
    object: Literal["list"]
    data: list[EmbeddingEntry]
    model: str
    system_fingerprint: str
    usage: EmbeddingUsage


class Body(TextsBody):
    """Builds the body of one request."""

    def __init__(self, request: EmbeddingRequest, origin: Origin) -> None:
        super().__init__(model=origin.model, warnings=request.warnings)
        self._request, self._fingerprint = request, origin.fingerprint
        self._vectors: dict[int, Sequence[float] | str] = {}

    def gather(self, event: Event) -> None:
        if isinstance(event, Embedding):
            vector = shortened(event.embedding, self._request.dimensions)
            self._vectors[event.index] = encoded(vector, self._request.encoding_format)

    def body(self, done: Done) -> Embeddings:
        data: list[EmbeddingEntry] = [
            {"object": "embedding", "index": index, "embedding": vector}
            for index, vector in sorted(self._vectors.items())
        ]
        usage: EmbeddingUsage = {"prompt_tokens": done.prompt_tokens, "total_tokens": done.prompt_tokens}
        return {
            "object": "list",
            "data": data,
            "model": self.model,
            "system_fingerprint": self._fingerprint(),
            "usage": usage,
        }
