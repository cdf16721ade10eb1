"""`/v1/score`: how likely a model finds texts after a prompt, as one JSON body. Pure.

The answer has what lm-eval asks of a text (sum of log-probabilities, whether it is the greedy one) and what a
writer asks of one (mean, perplexity), and each token's log-probability.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import orjson

from llama_srb.protocol import Done, Event, Score
from llama_srb.request import (
    MAX_LOGPROBS,
    MAX_SCORED,
    MAX_WARNINGS,
    LoraScales,
    RequestError,
    is_text,
    is_tokens,
    lora_fields,
    lora_scales,
    unknown_field,
    whole,
    wrong,
)

Text: TypeAlias = str | list[int]


@dataclass(frozen=True, slots=True)
class ScoreRequest:
    """Texts that may follow a prompt, all as text or as token ids; logprobs counts alternatives."""

    texts: tuple[Text, ...]
    prompt: Text = ""
    logprobs: int = 0
    cache: bool = True
    lora: LoraScales | None = None
    model: str | None = None
    warnings: tuple[str, ...] = field(default=())

    def engine_fields(self) -> dict[str, Any]:
        """The engine's score command without op and id."""
        prompt = {"prompt": self.prompt} if isinstance(self.prompt, str) else {"tokens": self.prompt}
        kept = {} if self.cache else {"cache": False}
        return {**prompt, "texts": self.texts, "logprobs": self.logprobs, **kept, **lora_fields(self.lora)}


def _text(name: str) -> Callable[[object], Text]:
    def read(value: object) -> Text:
        if isinstance(value, str) and is_text(value):
            return value
        if isinstance(value, list) and value and is_tokens(value):
            return value
        raise wrong(name, value, "a text or a list of token ids")

    return read


def _texts(value: object) -> tuple[Text, ...]:
    """One text, one list of token ids, or a list of either."""
    single = isinstance(value, str) or (isinstance(value, list) and bool(value) and is_tokens(value))
    items = [value] if single else value
    if not isinstance(items, list) or not 1 <= len(items) <= MAX_SCORED:
        raise wrong("texts", value, f"a list of 1 to {MAX_SCORED} texts or lists of token ids")
    return tuple(_text(f"texts[{i}]")(item) for i, item in enumerate(items))


def _switch(value: object) -> bool:
    if not isinstance(value, bool):
        raise wrong("cache", value, "true or false")
    return value


def _model(value: object) -> str:
    if not isinstance(value, str):
        raise wrong("model", value, "a text")
    return value


_READERS: Mapping[str, Callable[[object], Any]] = {
    "texts": _texts,
    "prompt": _text("prompt"),
    "logprobs": lambda value: whole("logprobs", value, 0, MAX_LOGPROBS),
    "cache": _switch,
    "lora": lora_scales,
    "model": _model,
}


def parse(body: Mapping[str, Any], *, strict: bool = False) -> ScoreRequest:
    """A body as a request; RequestError names what is wrong."""
    given = {name: value for name, value in body.items() if value is not None}
    unknown = [name for name in given if name not in _READERS]
    if unknown and strict:
        raise RequestError(unknown_field(unknown[0], _READERS), param=unknown[0])
    if "texts" not in given:
        raise RequestError("texts is missing", param="texts")
    warnings = tuple(unknown_field(name, _READERS) for name in unknown[:MAX_WARNINGS])
    values = {name: read(given[name]) for name, read in _READERS.items() if name in given}
    return ScoreRequest(**values, warnings=warnings)


class Body:
    """Events folded into one JSON body, for one request."""

    def __init__(self, request: ScoreRequest, *, model: str) -> None:
        self._request = request
        self._model = model
        self._scores: list[Score] = []
        self._done: Done | None = None

    def take(self, events: Iterable[Event]) -> None:
        """Events, which follow those of the last call."""
        for event in events:
            self._done = event if isinstance(event, Done) else self._done
            if isinstance(event, Score):
                self._scores.append(event)

    def json(self) -> bytes:
        """The body; all events must have been taken."""
        assert self._done is not None
        done, scores = self._done, sorted(self._scores, key=lambda score: score.index)
        usage = {
            "prompt_tokens": done.prompt_tokens + done.completion_tokens,
            "completion_tokens": 0,
            "total_tokens": done.prompt_tokens + done.completion_tokens,
            "prompt_tokens_details": {"cached_tokens": done.cached_tokens},
        }
        about = {"id": f"score-{done.id}", "object": "list", "model": self._model}
        body = {**about, "data": list(map(_score, scores)), "usage": usage}
        return orjson.dumps(body | ({"warnings": self._request.warnings} if self._request.warnings else {}))


def _score(score: Score) -> dict[str, Any]:
    """A text of which nothing is predicted (its only token is the first of all) has no mean."""
    mean = score.logprob / score.count if score.count else None
    return {
        "object": "score",
        "index": score.index,
        "sum": score.logprob,
        "mean": mean,
        "perplexity": None if mean is None else math.exp(min(-mean, 700.0)),
        "count": score.count,
        "greedy": score.greedy,
        "tokens": score.tokens,
    }
