"""The types of the event stream's frames, of which /openapi.json is made. Pure.

Made by scripts/events from the rows of llama_srb/engine/events.py.
"""

from typing import Annotated, Literal, NotRequired

from pydantic import Field
from typing_extensions import TypeAliasType, TypedDict

from llama_srb.dialects.common.response_types import CallPiece, Compared, Count, Noted, RankedToken, Token


class LoadingEvent(TypedDict):
    """The request waits for its model, which is not loaded; progress is the part of it that is loaded."""

    event: Literal["loading"]
    id: str
    progress: Annotated[float, Field(ge=0, le=1)]


class QueuedEvent(TypedDict):
    """The request waits in the queue; position 1 is admitted next."""

    event: Literal["queued"]
    position: Count
    id: str


class StartEvent(Noted):
    """The request is admitted; its prompt is about to be computed.

    cut_tokens: those that were cut from the prompt, or from the sequence that it continues.
    """

    event: Literal["start"]
    count: Count
    id: str
    prompt_tokens: Count
    cached_tokens: Count
    seed: int
    cut_tokens: NotRequired[Count]
    prompt_token_ids: NotRequired[list[int]]


class PromptEvent(TypedDict):
    """The prompt, if echo is set: first its whole text, then, with logprobs, its tokens over some events."""

    event: Literal["prompt"]
    text: str
    tokens: NotRequired[list[Token]]


class PromptLogprobsEvent(TypedDict):
    """The prompt's tokens over some events, with prompt_logprobs; the first one of all has no logprob."""

    event: Literal["prompt_logprobs"]
    tokens: list[RankedToken]


class ProgressEvent(TypedDict):
    """How many tokens of a long prompt are prefilled."""

    event: Literal["progress"]
    processed: Count
    total: Count


class StreamEvent(TypedDict):
    """New text of one sequence; tokens only if the request has logprobs.

    In a chat also reasoning and tool calls. token_ids, entropies: of the tokens that were drawn since the
    last event, with return_token_ids and return_entropies.
    """

    event: Literal["stream"]
    index: Count
    text: str
    tokens: NotRequired[list[Token]]
    reasoning: NotRequired[str]
    tool_calls: NotRequired[list[CallPiece]]
    token_ids: NotRequired[list[int]]
    entropies: NotRequired[list[float]]


class StopEvent(TypedDict):
    """One sequence has ended; length counts tokens, stop is 1 if a stop token or stop string ended it.

    With ranking: the sum and the mean of its tokens' logprobs, and distinct_2, the share of different pairs
    of words. With dedupe: the index of the sequence that this one is a duplicate of. With then: how many of
    the tokens are the free answer's. end: sentences or paragraphs, if `end` ended it.
    """

    event: Literal["stop"]
    index: Count
    length: Count
    stop: Count
    finish_reason: str
    stop_text: NotRequired[str]
    logprob: NotRequired[float]
    mean_logprob: NotRequired[float]
    distinct_2: NotRequired[float]
    certainty: NotRequired[float]
    duplicate_of: NotRequired[Count]
    free_length: NotRequired[Count]
    stop_token: NotRequired[Annotated[int, Field(description="Of stop_token_ids.")]]
    end: NotRequired[str]


class ThenEvent(TypedDict):
    """The free answer of a sequence has ended, as a stop event has it; what follows is its second answer.

    Only with then.return_free.
    """

    event: Literal["then"]
    index: Count
    length: Count
    stop: Count
    finish_reason: str
    stop_text: NotRequired[str]
    end: NotRequired[str]


class ExtendEvent(TypedDict):
    """The request got more sequences: their indices are first to count - 1."""

    event: Literal["extend"]
    first: Count
    count: Count


class DoneEvent(Compared):
    """All sequences of the request have ended; with ranking: their indices, best first.

    timings: milliseconds.
    """

    event: Literal["done"]
    count: Count
    prompt_tokens: Count
    cached_tokens: Count
    completion_tokens: Count
    timings: dict[str, float]
    ranking: NotRequired[list[Count]]


class ErrorEvent(TypedDict):
    """Ends the request."""

    event: Literal["error"]
    code: str
    message: str
    param: NotRequired[str]


Event = TypeAliasType(
    "Event",
    Annotated[
        LoadingEvent
        | QueuedEvent
        | StartEvent
        | PromptEvent
        | PromptLogprobsEvent
        | ProgressEvent
        | StreamEvent
        | StopEvent
        | ThenEvent
        | ExtendEvent
        | DoneEvent
        | ErrorEvent,
        Field(discriminator="event"),
    ],
)
