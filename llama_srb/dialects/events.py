"""The event stream: start, (prompt,) stream, stop, done as server-sent events, one JSON object each. Pure.

The keys that stand first in each object, `event` before all, are stable; later versions may add more keys.
"""

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Annotated, Any, Literal, NotRequired, cast

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
            frames.append(_frame({**_start(event), **notes}))
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


def _start(event: Start) -> StartEvent:
    made: StartEvent = {
        "event": "start",
        "count": event.count,
        "id": event.id,
        "prompt_tokens": event.prompt_tokens,
        "cached_tokens": event.cached_tokens,
        "seed": event.seed,
    }
    if event.cut_tokens is not None:
        made["cut_tokens"] = event.cut_tokens
    if event.prompt_token_ids:
        made["prompt_token_ids"] = list(event.prompt_token_ids)
    return made


def _loading(event: Loading) -> bytes:
    """The engine's own event of this kind belongs to no request and is no frame."""
    made: LoadingEvent = {"event": "loading", "id": event.id, "progress": round(event.progress, 3)}
    return _frame(made) if event.id else b""


def _queued(event: Queued) -> QueuedEvent:
    return {"event": "queued", "position": event.position, "id": event.id}


def _prompt(event: Prompt) -> PromptEvent:
    made: PromptEvent = {"event": "prompt", "text": event.text}
    if event.tokens:
        made["tokens"] = [cast(Token, token) for token in event.tokens]
    return made


def _prompt_logprobs(event: PromptLogprobs) -> PromptLogprobsEvent:
    return {"event": "prompt_logprobs", "tokens": [cast(RankedToken, token) for token in event.tokens]}


def _progress(event: Progress) -> ProgressEvent:
    return {"event": "progress", "processed": event.processed, "total": event.total}


def _stop(event: Stop) -> StopEvent:
    made: StopEvent = {
        "event": "stop",
        "index": event.index,
        "length": event.length,
        "stop": event.stop,
        "finish_reason": event.finish_reason,
    }
    if event.stop_text:
        made["stop_text"] = event.stop_text
    if event.logprob is not None:
        made["logprob"] = event.logprob
    if event.mean_logprob is not None:
        made["mean_logprob"] = event.mean_logprob
    if event.distinct_2 is not None:
        made["distinct_2"] = event.distinct_2
    if event.certainty is not None:
        made["certainty"] = event.certainty
    if event.duplicate_of is not None:
        made["duplicate_of"] = event.duplicate_of
    if event.free_length is not None:
        made["free_length"] = event.free_length
    if event.stop_token is not None:
        made["stop_token"] = event.stop_token
    if event.end:
        made["end"] = event.end
    return made


def _then(event: Then) -> ThenEvent:
    made: ThenEvent = {
        "event": "then",
        "index": event.index,
        "length": event.length,
        "stop": event.stop,
        "finish_reason": event.finish_reason,
    }
    if event.stop_text:
        made["stop_text"] = event.stop_text
    if event.end:
        made["end"] = event.end
    return made


def _extend(event: Extend) -> ExtendEvent:
    return {"event": "extend", "first": event.first, "count": event.count}


def _done(event: Done) -> DoneEvent:
    made: DoneEvent = {
        "event": "done",
        "count": event.count,
        "prompt_tokens": event.prompt_tokens,
        "cached_tokens": event.cached_tokens,
        "completion_tokens": event.completion_tokens,
        "timings": dict(event.timings),
    }
    if event.ranking:
        made["ranking"] = event.ranking
    return {**made, **compared(event)}


def _error(event: Error) -> ErrorEvent:
    made: ErrorEvent = {"event": "error", "code": event.code, "message": event.message}
    if event.param:
        made["param"] = event.param
    return made


def _framed(fields: Callable[[Any], Mapping[str, Any]]) -> Callable[[Any], bytes]:
    return lambda event: _frame(fields(event))


_WRITERS: dict[type[Any], Callable[[Any], bytes]] = {
    Stream: _stream,
    Loading: _loading,
    Queued: _framed(_queued),
    Start: _framed(_start),
    Prompt: _framed(_prompt),
    PromptLogprobs: _framed(_prompt_logprobs),
    Progress: _framed(_progress),
    Stop: _framed(_stop),
    Then: _framed(_then),
    Extend: _framed(_extend),
    Done: _framed(_done),
    Error: _framed(_error),
}
