"""`/v1/score`: how likely texts are after a prompt, as one JSON body. Pure.

For each text the answer has the figures that lm-eval needs (the sum of the log-probabilities, greedy or not),
the mean and the perplexity, and each token's log-probability.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated, Any, Literal, NotRequired

from pydantic import Field
from typing_extensions import TypedDict

from llama_srb.dialects.common.response_types import Count, Token, Warned, tokens_json
from llama_srb.dialects.common.texts import Text, TextsBody, list_of_texts, model_name, one_text
from llama_srb.dialects.openai.answer import Usage, usage_of
from llama_srb.engine.events import Done, Event, Score
from llama_srb.request.parse import Reader, read_fields
from llama_srb.request.shapes import LoraScales, cache_salt, cells_fields, lora_scales
from llama_srb.request.values import MAX_LOGPROBS, MAX_SCORED, switch, whole


@dataclass(frozen=True, slots=True)
class ScoreRequest:
    """Texts that may follow a prompt, as text or token ids; logprobs: alternatives of each token.

    certainty: also how certain the model is at each token, on average.
    """

    texts: tuple[Text, ...]
    prompt: Text = ""
    logprobs: int = 0
    cache: bool = True
    certainty: bool = False
    lora: LoraScales | None = None
    cache_salt: str | None = None
    model: str | None = None
    warnings: tuple[str, ...] = ()

    def engine_fields(self) -> dict[str, Any]:
        """The engine's score command without op and id."""
        prompt = {"prompt": self.prompt} if isinstance(self.prompt, str) else {"tokens": self.prompt}
        cache = {} if self.cache else {"cache": False}
        certainty = {"certainty": True} if self.certainty else {}
        more = {**cache, **certainty, **cells_fields(self.lora, self.cache_salt)}
        return {**prompt, "texts": self.texts, "logprobs": self.logprobs, **more}


def _one(name: str) -> Callable[[object], Text]:
    return one_text(name, "a text or a list of token ids")


_MANY = f"a list of 1 to {MAX_SCORED} texts or lists of token ids"
_READERS: Mapping[str, Reader] = {
    "texts": list_of_texts("texts", MAX_SCORED, _MANY, _one),
    "prompt": _one("prompt"),
    "logprobs": lambda value: whole("logprobs", value, 0, MAX_LOGPROBS),
    "cache": partial(switch, "cache"),
    "certainty": partial(switch, "certainty"),
    "lora": lora_scales,
    "cache_salt": cache_salt,
    "model": model_name,
}


def parse(body: Mapping[str, Any], *, strict: bool = False) -> ScoreRequest:
    """Reads a body as a request; RequestError if a field is wrong."""
    return ScoreRequest(**read_fields(body, _READERS, required="texts", strict=strict))


class ScoredText(TypedDict):
    object: Literal["score"]
    index: Count
    sum: Annotated[float, Field(description="The sum of the tokens' log-probabilities (natural logarithm).")]
    mean: Annotated[float | None, Field(description="sum / count; null when count is 0.")]
    perplexity: Annotated[float | None, Field(description="exp(-mean).")]
    count: Annotated[int, Field(ge=0, description="Tokens that have a log-probability.")]
    greedy: Annotated[bool, Field(description="Each token was the likeliest.")]
    certainty: NotRequired[
        Annotated[float, Field(description="Of the model, the mean over the tokens; if it is asked for.")]
    ]
    tokens: list[Token]


class ScoredTexts(Warned):
    id: str
    object: Literal["list"]
    model: str
    data: list[ScoredText]
    usage: Usage


class Body(TextsBody):
    """Builds the body of one request."""

    def __init__(self, request: ScoreRequest, *, model: str) -> None:
        super().__init__(model=model, warnings=request.warnings)
        self._scores: list[Score] = []

    def gather(self, event: Event) -> None:
        if isinstance(event, Score):
            self._scores.append(event)

    def body(self, done: Done) -> ScoredTexts:
        scores = sorted(self._scores, key=lambda score: score.index)
        given = replace(done, prompt_tokens=done.prompt_tokens + done.completion_tokens, completion_tokens=0)
        return {
            "id": f"score-{done.id}",
            "object": "list",
            "model": self.model,
            "data": list(map(_score, scores)),
            "usage": usage_of(given),
        }


def _score(score: Score) -> ScoredText:
    """The mean is null if no token is predicted: the text's only token is the first of the sequence."""
    mean = score.logprob / score.count if score.count else None
    made: ScoredText = {
        "object": "score",
        "index": score.index,
        "sum": score.logprob,
        "mean": mean,
        "perplexity": None if mean is None else math.exp(min(-mean, 700.0)),
        "count": score.count,
        "greedy": score.greedy,
        "tokens": tokens_json(score.tokens),
    }
    if score.certainty is not None:
        made["certainty"] = score.certainty
    return made
