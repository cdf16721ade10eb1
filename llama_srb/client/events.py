"""The events of a stream. No I/O here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields
from typing import Any, TypeAlias

from llama_srb.client.errors import ClientError, RequestRefused, ServerError
from llama_srb.client.reader import read_as

REFUSED = frozenset({"invalid_request", "context_exceeded"})
"""The codes of error events that mean a faulty request."""


@dataclass(frozen=True, slots=True)
class Loading:
    """The request waits for its model's load; progress goes from 0 to 1."""

    id: str
    progress: float


@dataclass(frozen=True, slots=True)
class Queued:
    """The request waits in the queue; position 1 is admitted next."""

    position: int
    id: str


@dataclass(frozen=True, slots=True)
class Start:
    """The request is admitted; warnings name fields that are ignored, recalled a task's chunks.

    story: the parts of the prompt that was made of a story. cut_tokens: of a continued sequence with a story.
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
class PromptLogprobs:
    """Tokens of the prompt, each with its logprob, its rank and alternatives, with prompt_logprobs."""

    tokens: tuple[Mapping[str, Any], ...] = ()


@dataclass(frozen=True, slots=True)
class Prompt:
    """A piece of the prompt, if the request has echo; each choice's text begins with it."""

    text: str
    tokens: tuple[Mapping[str, Any], ...] = ()


@dataclass(frozen=True, slots=True)
class Progress:
    """How many tokens of a long prompt are prefilled."""

    processed: int
    total: int


@dataclass(frozen=True, slots=True)
class Text:
    """New text of one sequence (the server's event "stream"); tokens only if the request has logprobs.

    In a chat also the reasoning and pieces of tool calls. Only a call's first piece has its id and name.
    token_ids, entropies: of the tokens drawn since the last event, with return_token_ids, return_entropies.
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
    """One sequence has ended, after length tokens; stop is 1 if a stop token or stop string ended it.

    With best_of or rank_by: the sum and mean of its tokens' logprobs, and distinct-2, its share of different
    pairs of words; with rank_by certainty also the mean of that. finish_reason: stop, length, cancelled,
    timeout; with finish surplus, with prune pruned. With dedupe: the index of the sequence that this one is
    a duplicate of. With then, if a second answer has begun: how many of the tokens are the free answer's.
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
    """The free answer of a sequence has ended, as in Stop; its second answer follows.

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
    """All sequences have ended; with best_of or rank_by, ranking has their indices, best first.

    With rank_by.vote, votes has {answer, count}, the leading answer first. With diversity_stats: {texts,
    beginnings, mean_overlap, effective_number}. With finish or prune, timings has saved_tokens, too.
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
    """Ends the stream; iterating raises it as a ClientError."""

    code: str
    message: str
    param: str | None = None


Event: TypeAlias = (
    Loading | Queued | Start | Prompt | PromptLogprobs | Progress | Text | Then | Stop | Done | Error
)

EVENTS: dict[str, type[Any]] = {
    "loading": Loading, "queued": Queued, "start": Start, "prompt": Prompt,
    "prompt_logprobs": PromptLogprobs, "progress": Progress,
    "stream": Text, "then": Then, "stop": Stop, "done": Done, "error": Error,
}  # fmt: skip
_NAMES = {event: name for name, event in EVENTS.items()}
_FIELDS = {event: tuple(fields(event)) for event in EVENTS.values()}


def event_from(data: Mapping[str, Any]) -> Event | None:
    """Makes an event from a JSON object of the stream; None for an unknown event of a newer server.

    Unknown keys are ignored. ServerError if a key is missing or its value has another type.
    """
    kind = EVENTS.get(str(data.get("event")))
    if kind is None:
        return None
    try:
        event: Event = read_as(kind, data)
    except KeyError as missing:
        raise ServerError(f"an event of the server is incomplete: no {missing} in {data['event']}") from None
    except TypeError as error:
        raise ServerError(f"an event of the server is wrong: in {data['event']} {error}") from None
    return event


def as_json(event: Event) -> dict[str, Any]:
    """The event as the server writes it, without fields at their default."""
    values = {row.name: getattr(event, row.name) for row in _FIELDS[type(event)]}
    defaults = {row.name: row.default for row in _FIELDS[type(event)] if row.default is not MISSING}
    written = {key: one for key, one in values.items() if key not in defaults or one != defaults[key]}
    return {"event": _NAMES[type(event)], **written}


def failure(error: Error) -> ClientError:
    """Makes an exception from an error event."""
    kind = RequestRefused if error.code in REFUSED else ServerError
    return kind(error.message, code=error.code, param=error.param)
