"""The events of a stream. No I/O here.

Made by scripts/events from the rows of llama_srb/engine/events.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias


@dataclass(frozen=True, slots=True)
class Loading:
    """The request waits for its model, which is not loaded; progress is the part of it that is loaded."""

    id: str
    progress: float


@dataclass(frozen=True, slots=True)
class Queued:
    """The request waits in the queue; position 1 is admitted next."""

    position: int
    id: str


@dataclass(frozen=True, slots=True)
class Start:
    """The request is admitted; its prompt is about to be computed.

    cut_tokens: those that were cut from the prompt, or from the sequence that it continues.

    warnings name fields that are ignored and what of a schema is left out, recalled a task's chunks. story:
    the parts of the prompt that was made of a story.
    """

    count: int
    id: str
    prompt_tokens: int
    cached_tokens: int
    seed: int
    warnings: tuple[str, ...] = ()
    recalled: tuple[Mapping[str, Any], ...] = ()
    story: Mapping[str, Any] | None = None
    cut_tokens: int | None = None
    prompt_token_ids: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Prompt:
    """The prompt, if echo is set: first its whole text, then, with logprobs, its tokens over some events."""

    text: str
    tokens: tuple[Mapping[str, Any], ...] = ()


@dataclass(frozen=True, slots=True)
class PromptLogprobs:
    """The prompt's tokens over some events, with prompt_logprobs; the first one of all has no logprob."""

    tokens: tuple[Mapping[str, Any], ...] = ()


@dataclass(frozen=True, slots=True)
class Progress:
    """How many tokens of a long prompt are prefilled."""

    processed: int
    total: int


@dataclass(frozen=True, slots=True)
class Text:
    """New text of one sequence; tokens only if the request has logprobs.

    In a chat also reasoning and tool calls. token_ids, entropies: of the tokens that were drawn since the
    last event, with return_token_ids and return_entropies.

    The server's event "stream". Only the first piece of a tool call has its id and name.
    """

    index: int
    text: str
    tokens: tuple[Mapping[str, Any], ...] = ()
    reasoning: str = ""
    tool_calls: tuple[Mapping[str, Any], ...] = ()
    token_ids: tuple[int, ...] = ()
    entropies: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class Stop:
    """One sequence has ended; length counts tokens, stop is 1 if a stop token or stop string ended it.

    With ranking: the sum and the mean of its tokens' logprobs, and distinct_2, the share of different pairs
    of words. With dedupe: the index of the sequence that this one is a duplicate of. With then: how many of
    the tokens are the free answer's. end: sentences or paragraphs, if `end` ended it.

    finish_reason: stop, length, cancelled, timeout; with finish surplus, with prune pruned, in a loop
    repetition. certainty: with rank_by certainty, the mean of the model's.
    """

    index: int
    length: int
    stop: int
    finish_reason: str
    stop_text: str = ""
    logprob: float | None = None
    mean_logprob: float | None = None
    distinct_2: float | None = None
    certainty: float | None = None
    duplicate_of: int | None = None
    free_length: int | None = None
    stop_token: int | None = None
    end: str = ""


@dataclass(frozen=True, slots=True)
class Then:
    """The free answer of a sequence has ended, as a stop event has it; what follows is its second answer.

    Only with then.return_free.
    """

    index: int
    length: int
    stop: int
    finish_reason: str
    stop_text: str = ""
    end: str = ""


@dataclass(frozen=True, slots=True)
class Done:
    """All sequences of the request have ended; with ranking: their indices, best first.

    timings: milliseconds.

    ranking: with best_of or rank_by. With rank_by.vote, votes has {answer, count}, the leading answer first.
    With diversity_stats: {texts, beginnings, mean_overlap, effective_number}. With finish or prune, timings
    has saved_tokens, too.
    """

    count: int
    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int
    timings: Mapping[str, float] = field(default_factory=dict)
    ranking: tuple[int, ...] = ()
    votes: tuple[Mapping[str, Any], ...] | None = None
    diversity_stats: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Error:
    """Ends the request.

    Iterating raises it as a ClientError.
    """

    code: str
    message: str
    param: str | None = None


Event: TypeAlias = (
    Loading | Queued | Start | Prompt | PromptLogprobs | Progress | Text | Stop | Then | Done | Error
)

EVENTS: dict[str, type[Any]] = {
    "loading": Loading,
    "queued": Queued,
    "start": Start,
    "prompt": Prompt,
    "prompt_logprobs": PromptLogprobs,
    "progress": Progress,
    "stream": Text,
    "stop": Stop,
    "then": Then,
    "done": Done,
    "error": Error,
}
