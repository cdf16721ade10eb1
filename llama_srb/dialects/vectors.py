"""Vectors of texts in the forms of llama-server and Ollama; embeddings.py has OpenAI's form. Pure."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

from typing_extensions import TypedDict

from llama_srb.dialects import embeddings
from llama_srb.dialects.common.fields import switch
from llama_srb.dialects.common.reply import ServerInfo
from llama_srb.dialects.common.response_types import Count, Warned
from llama_srb.dialects.common.texts import Text, TextsBody
from llama_srb.dialects.openllm import ConfiguredVectors, refuse_unknown
from llama_srb.engine.events import Done, Embedding, Event
from llama_srb.request.values import MAX_WARNINGS, RequestError

Vector: TypeAlias = Sequence[float]
Rows: TypeAlias = list[Vector]
Shape: TypeAlias = Callable[[Rows, Done], Any]


class LlamacppVector(TypedDict):
    """embedding is a list of one vector, since the engine pools the vectors of the tokens."""

    index: Count
    embedding: list[Vector]


class OllamaVectors(Warned):
    """total_duration: nanoseconds."""

    model: str
    embeddings: list[Vector]
    total_duration: Count
    load_duration: Count
    prompt_eval_count: Count


class OllamaVector(Warned):
    embedding: Vector


class Vectors(TextsBody):
    """Builds the body of one request.

    names: possible names of the field with the texts. truncate: long texts are truncated, not refused.
    """

    def __init__(
        self, body: Mapping[str, Any], names: tuple[str, ...], shape: Shape, *, truncate: bool = False
    ) -> None:
        given = [body[name] for name in names if body.get(name) is not None]
        if not given:
            raise RequestError(f"{names[0]} is missing", param=names[0])
        self.request = embeddings.parse({"input": given[0], "dimensions": body.get("dimensions")})
        self.truncate = truncate
        super().__init__(model="", warnings=())
        self._shape = shape
        self._rows: dict[int, Vector] = {}

    def shorten(self, texts: Iterable[tuple[Text, int]]) -> None:
        """Takes the truncated texts, each with the number of its removed tokens."""
        inputs, cuts = zip(*texts, strict=True)
        self.request = replace(self.request, input=inputs)
        lost = [f"the last {n} tokens of input[{i}] were cut" for i, n in enumerate(cuts) if n]
        self.warnings = tuple(lost[:MAX_WARNINGS])

    def gather(self, event: Event) -> None:
        if isinstance(event, Embedding):
            self._rows[event.index] = embeddings.shortened(event.embedding, self.request.dimensions)

    def body(self, done: Done) -> Any:
        return self._shape([self._rows[i] for i in sorted(self._rows)], done)


def _native(rows: Rows, done: Done) -> list[LlamacppVector]:
    return [{"index": i, "embedding": [row]} for i, row in enumerate(rows)]


def _configured(rows: Rows, done: Done) -> ConfiguredVectors:
    return [tuple(row) for row in rows]


def _of_openllm(body: Mapping[str, Any]) -> Vectors:
    names = ("input", "text", "message", "prompt")
    refuse_unknown(body, (*names, "dimensions", "model", "stream", "configuration"))
    return Vectors(body, names, _configured)


def _of_ollama(
    body: Mapping[str, Any],
    about: ServerInfo,
    names: tuple[str, ...],
    shape: Callable[[Rows, Done, str], Any],
) -> Vectors:
    truncate = switch(body, "truncate", True)
    return Vectors(body, names, lambda rows, done: shape(rows, done, about.name), truncate=truncate)


def _embed(rows: Rows, done: Done, model: str) -> OllamaVectors:
    return {
        "model": model,
        "embeddings": rows,
        "total_duration": round(1e6 * done.total_ms),
        "load_duration": 0,
        "prompt_eval_count": done.prompt_tokens,
    }


def _embedding(rows: Rows, done: Done, model: str) -> OllamaVector:
    return {"embedding": rows[0]}


VECTORS: Mapping[str, Callable[[Mapping[str, Any], ServerInfo], Vectors]] = {
    "/embedding": lambda body, about: Vectors(body, ("content", "input"), _native),
    "/embeddings": lambda body, about: Vectors(body, ("content", "input"), _native),
    "/embed": lambda body, about: _of_openllm(body),
    "/api/embed": lambda body, about: _of_ollama(body, about, ("input",), _embed),
    "/api/embeddings": lambda body, about: _of_ollama(body, about, ("prompt",), _embedding),
}
