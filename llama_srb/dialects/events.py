"""The event stream: start, (prompt,) stream, stop, done as server-sent events, one JSON object each. Pure.

The keys that stand first in each object, `event` before all, are stable; later versions may add more keys.
"""

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Annotated, Any, Literal, NotRequired, get_args

import orjson
from pydantic import Field
from typing_extensions import TypeAliasType, TypedDict

from llama_srb.dialects.common.response_types import (
    NOTHING,
    Compared,
    Count,
    Frames,
    Noted,
    RankedToken,
    Token,
    compared,
)
from llama_srb.engine import events as engine
from llama_srb.engine.events import (
    NO_TOKENS,
    Done,
    Error,
    Extend,
    Loading,
    Progress,
    Prompt,
    PromptLogprobs,
    Queued,
    Start,
    Stop,
    Stream,
    Then,
    TokenList,
)
from llama_srb.request.fields import CompletionRequest
from llama_srb.request.parse import Defaults, request_from

CONTENT_TYPE = "text/event-stream; charset=utf-8"
DIVERSITY = "arithmetic"  # the default, if the settings allow it: docs/diversity.md shows its effect
MORE = ("reasoning", "tool_calls", "token_ids", "entropies")  # fields of a stream event that it seldom has
READ_ELSEWHERE = frozenset({"stream", "model", "user"})
"""Fields that the content negotiation reads, or that OpenAI's clients add; they do not change the text."""


# ----------------------------------------------------------------------------------------------------
# Answers
# ----------------------------------------------------------------------------------------------------


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

    cut_tokens: those that were cut from the sequence that it continues, if it has a story.
    """

    event: Literal["start"]
    count: Count
    id: str
    prompt_tokens: Count
    cached_tokens: Count
    seed: int
    cut_tokens: NotRequired[Count]
    prompt_token_ids: NotRequired[list[int]]


class PromptLogprobsEvent(TypedDict):
    """The prompt's tokens over some events, with prompt_logprobs; the first one of all has no logprob."""

    event: Literal["prompt_logprobs"]
    tokens: list[RankedToken]


class PromptEvent(TypedDict):
    """The prompt, if echo is set: first its whole text, then, with logprobs, its tokens over some events."""

    event: Literal["prompt"]
    text: str
    tokens: NotRequired[list[Token]]


class ProgressEvent(TypedDict):
    """How many tokens of a long prompt are prefilled."""

    event: Literal["progress"]
    processed: Count
    total: Count


class CallPiece(TypedDict):
    """A piece of a tool call; only the first piece has id and name."""

    index: Count
    id: NotRequired[str]
    name: NotRequired[str]
    arguments: str


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
    ranking: NotRequired[tuple[Count, ...]]


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
EVENTS = Frames(
    Event,
    "Frames `data: <Event>`, each followed by an empty line; first start, after loading or queued if the "
    "request had to wait; done or error last. "
    "Lines that begin with a colon are comments.",
)

# ----------------------------------------------------------------------------------------------------
# Requests and frames
# ----------------------------------------------------------------------------------------------------


def parse(body: Mapping[str, Any], defaults: Defaults) -> CompletionRequest:
    """Reads a body as a request; RequestError if a field is wrong."""
    return request_from(body, replace(defaults, diversity=DIVERSITY), known=READ_ELSEWHERE)


def render(events: Iterable[engine.Event], notes: Noted = NOTHING) -> bytes:
    """Events as frames, in order; the start event gets the notes. Internal events are skipped."""
    frames = []
    for event in events:
        if type(event) is Start and notes:
            frames.append(_frame({**_fields(event), **notes}))
        elif (write := _WRITERS.get(type(event))) is not None:
            frames.append(write(event))
    return b"".join(frames)


def _stream(event: Stream) -> bytes:
    """Nearly all frames are of this kind, so they are formatted by hand, which is faster."""
    has_more = event.tokens or event.reasoning or event.tool_calls or event.token_ids or event.entropies
    more = _more(event) if has_more else b""
    text = orjson.dumps(event.text)
    return b'data: {"event": "stream", "index": %d, "text": %b%b}\n\n' % (event.index, text, more)


def _more(event: Stream) -> bytes:
    tokens = b', "tokens": ' + event.tokens.json if event.tokens else b""
    given = ((name, getattr(event, name)) for name in MORE)
    rest = (b', "%b": %b' % (name.encode(), orjson.dumps(value)) for name, value in given if value)
    return b"".join((tokens, *rest))


def _frame(data: Mapping[str, Any]) -> bytes:
    return f"data: {json.dumps(data, ensure_ascii=False)}\n\n".encode()


def _rows(frame: Any) -> tuple[str, tuple[tuple[str, bool], ...]]:
    """The name of an event, and its keys in their order, each with whether it is always there."""
    (name,) = get_args(frame.__annotations__["event"])
    keys = [key for key in frame.__annotations__ if key not in ("event", *ADDED)]
    return name, tuple((key, key in frame.__required_keys__) for key in keys)


def _fields(event: Any) -> dict[str, Any]:
    """An event as its frame has it: what is empty and need not be there is left out."""
    name, keys = _ROWS[type(event)]
    made: dict[str, Any] = {"event": name}
    for key, is_needed in keys:
        value = getattr(event, key)
        if is_needed or value not in EMPTY:
            made[key] = list(value) if isinstance(value, TokenList) else value
    return made


def _loading(event: Loading) -> bytes:
    """The engine's own event of this kind belongs to no request and is no frame."""
    return _frame({**_fields(event), "progress": round(event.progress, 3)}) if event.id else b""


def _done(event: Done) -> bytes:
    return _frame({**_fields(event), **compared(event)})


EMPTY = (None, "", (), NO_TOKENS)
ADDED = frozenset(Noted.__annotations__ | Compared.__annotations__)  # keys that are no fields of the events
_ROWS: dict[type[Any], tuple[str, tuple[tuple[str, bool], ...]]] = {
    kind: _rows(frame)
    for kind, frame in {
        Loading: LoadingEvent,
        Queued: QueuedEvent,
        Start: StartEvent,
        Prompt: PromptEvent,
        PromptLogprobs: PromptLogprobsEvent,
        Progress: ProgressEvent,
        Stop: StopEvent,
        Then: ThenEvent,
        Extend: ExtendEvent,
        Done: DoneEvent,
        Error: ErrorEvent,
    }.items()
}
_WRITERS: dict[type[Any], Callable[[Any], bytes]] = {
    **dict.fromkeys(_ROWS, lambda event: _frame(_fields(event))),
    Stream: _stream,
    Loading: _loading,
    Done: _done,
}
