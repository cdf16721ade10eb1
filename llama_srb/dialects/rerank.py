"""`/v1/rerank` and its other paths: which documents answer a query, in the forms of five servers.

A body with `documents` is answered as Jina and vLLM do, on /v2/rerank as Cohere does, on /v1/reranking as
llama-server does; one with `texts` as Text Embeddings Inference (TEI) does, on every path. The relevance is
between 0 and 1: the logistic function of what the model's head gives, where that is a logit. llama-server's
form, and TEI's `raw_scores`, have the logit itself. Pure.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NotRequired, TypeAlias

from typing_extensions import TypedDict

from llama_srb.dialects.common.response_types import Count, Warned
from llama_srb.dialects.common.texts import TextsBody, model_name
from llama_srb.dialects.openai.answer import Origin
from llama_srb.engine.events import Done, Embedding, Event
from llama_srb.request.parse import Reader, read_fields
from llama_srb.request.shapes import one_of
from llama_srb.request.values import MAX_EMBEDDED, RequestError, is_text, switch, whole, wrong

PROBABILITIES = frozenset({"qwen3", "qwen3vl"})
"""Architectures whose head gives a probability: llama.cpp draws yes against no."""
LLAMACPP, COHERE = frozenset({"/reranking", "/v1/reranking"}), frozenset({"/v2/rerank"})
NOT_USED = frozenset({"user", "priority"})
WITHOUT_EFFECT = frozenset({"rank_fields", "max_chunks_per_doc", "max_tokens_per_doc"})


@dataclass(frozen=True, slots=True)
class RerankRequest:
    """A query and its documents. top_n: the most that are told; raw: as the head gives it.

    truncate: a document that is too long is cut, on which side.
    """

    query: str
    documents: tuple[str, ...]
    top_n: int
    tells_documents: bool
    truncate: bool
    side: str
    raw: bool
    form: str
    warnings: tuple[str, ...] = ()

    def engine_fields(self) -> dict[str, Any]:
        """The engine's rerank command without op and id."""
        return {
            "query": self.query,
            "documents": self.documents,
            "truncate": self.truncate,
            "truncation_side": self.side,
        }


def _query(value: object) -> str:
    if not (isinstance(value, str) and is_text(value) and value):
        raise wrong("query", value, "a text that is not empty")
    return value


def _documents(name: str) -> Callable[[object], tuple[str, ...]]:
    def read(value: object) -> tuple[str, ...]:
        if not isinstance(value, list) or not 1 <= len(value) <= MAX_EMBEDDED:
            raise wrong(name, value, f"a list of 1 to {MAX_EMBEDDED} texts")
        return tuple(_document(f"{name}[{i}]", one, name) for i, one in enumerate(value))

    return read


def _document(where: str, value: object, name: str) -> str:
    text = value.get("text") if isinstance(value, Mapping) else value
    if not (isinstance(text, str) and is_text(text)):
        raise wrong(where, value, "a text, or an object with a text", name)
    return text


_READERS: Mapping[str, Reader] = {
    "query": _query,
    "documents": _documents("documents"),
    "texts": _documents("texts"),
    "top_n": lambda value: whole("top_n", value, 1, 2**31 - 1),
    "return_documents": partial(switch, "return_documents"),
    "return_text": partial(switch, "return_text"),
    "raw_scores": partial(switch, "raw_scores"),
    "truncate": partial(switch, "truncate"),
    "truncation": partial(switch, "truncation"),
    "truncation_direction": one_of("truncation_direction", ("Right", "Left", "right", "left")),
    "model": model_name,
}


def parse(body: Mapping[str, Any], path: str, *, strict: bool = False) -> RerankRequest:
    """Reads a body as a request; RequestError if a field is wrong."""
    used = {name: value for name, value in body.items() if name not in NOT_USED | WITHOUT_EFFECT}
    idle = [name for name in body if name in WITHOUT_EFFECT and body[name] is not None]
    given = read_fields(used, _READERS, required="query", strict=strict)
    tei = "texts" in given
    if tei == ("documents" in given):
        both = "documents and texts are given; give one of them" if tei else "documents is missing"
        raise RequestError(both, param="documents")
    documents = given["texts" if tei else "documents"]
    form = "tei" if tei else "llamacpp" if path in LLAMACPP else "cohere" if path in COHERE else "jina"
    told = given.get("return_text", False) if tei else given.get("return_documents", form == "jina")
    return RerankRequest(
        given["query"],
        documents,
        min(given.get("top_n", len(documents)), len(documents)),
        told,
        bool(given.get("truncate", given.get("truncation", form in ("jina", "cohere")))),
        given.get("truncation_direction", "right").lower(),
        given.get("raw_scores", False) if tei else form == "llamacpp",
        form,
        (*given["warnings"], *(f"{name} has no effect here" for name in idle)),
    )


class RankedText(TypedDict):
    text: str


class Ranked(TypedDict):
    index: Count
    relevance_score: float
    document: NotRequired[RankedText]


class TeiRanked(TypedDict):
    index: Count
    score: float
    text: NotRequired[str]


class RerankUsage(TypedDict):
    prompt_tokens: Count
    total_tokens: Count


class Reranked(Warned):
    """results: the most relevant first."""

    id: NotRequired[str]
    object: NotRequired[str]
    model: NotRequired[str]
    usage: NotRequired[RerankUsage]
    meta: NotRequired[dict[str, Any]]
    results: list[Ranked]


RerankAnswer: TypeAlias = Reranked | list[TeiRanked]


class Body(TextsBody):
    """Builds the body of one request. is_probability: what the model's head gives is one."""

    def __init__(self, request: RerankRequest, origin: Origin, *, is_probability: bool) -> None:
        super().__init__(model=origin.model, warnings=request.warnings)
        self._request, self._plain = request, request.raw or is_probability
        self._scores: dict[int, float] = {}

    def gather(self, event: Event) -> None:
        if isinstance(event, Embedding):
            score = event.embedding[0]
            self._scores[event.index] = score if self._plain else logistic(score)

    def body(self, done: Done) -> RerankAnswer:
        best = sorted(self._scores.items(), key=lambda item: (-item[1], item[0]))[: self._request.top_n]
        usage: RerankUsage = {"prompt_tokens": done.prompt_tokens, "total_tokens": done.prompt_tokens}
        match self._request.form:
            case "tei":
                return [self._tei(index, score) for index, score in best]
            case "cohere":
                meta = {"api_version": {"version": "2"}, "billed_units": {"search_units": 1}}
                return {"id": f"rerank-{done.id}", "results": self._results(best), "meta": meta}
        made: Reranked = {
            "object": "list",
            "model": self.model,
            "usage": usage,
            "results": self._results(best),
        }
        return made if self._request.form == "llamacpp" else {"id": f"rerank-{done.id}", **made}

    def _results(self, best: Sequence[tuple[int, float]]) -> list[Ranked]:
        made: list[Ranked] = [{"index": index, "relevance_score": score} for index, score in best]
        for one in made if self._request.tells_documents else ():
            one["document"] = {"text": self._request.documents[one["index"]]}
        return made

    def _tei(self, index: int, score: float) -> TeiRanked:
        made: TeiRanked = {"index": index, "score": score}
        if self._request.tells_documents:
            made["text"] = self._request.documents[index]
        return made


def logistic(x: float) -> float:
    """A logit as a probability."""
    return 1 / (1 + math.exp(-x)) if x >= 0 else math.exp(x) / (1 + math.exp(x))
