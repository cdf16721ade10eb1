"""What answers of OpenAI's completions and chats have in common: parts, errors, chunks as frames. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal, TypeAlias

import orjson
from typing_extensions import TypedDict

from llama_srb.dialects.common.answers import Count, Finish, Warned
from llama_srb.dialects.common.reply import OneText, Transcript
from llama_srb.dialects.openai.form import Form
from llama_srb.engine import events
from llama_srb.engine.events import Done, Event, Queued, Stop

END = b"data: [DONE]\n\n"
UNFINISHED: Literal["length"] = "length"
"""finish_reason of all that did not end by itself: OpenAI's clients know no "cancelled"."""

ErrorKind: TypeAlias = Literal["invalid_request_error", "server_error"]


class ErrorFields(TypedDict):
    message: str
    type: ErrorKind
    param: str | None
    code: str | None


class Error(TypedDict):
    error: ErrorFields


class CachedTokens(TypedDict):
    cached_tokens: Count


class Usage(TypedDict):
    """Of all choices."""

    prompt_tokens: Count
    completion_tokens: Count
    total_tokens: Count
    prompt_tokens_details: CachedTokens


class Scores(TypedDict):
    """Of a choice, with best_of or rank_by."""

    logprob: float
    mean_logprob: float
    length: Count
    distinct_2: float


class Marks(TypedDict, total=False):
    """What ranking and dedupe say of a choice."""

    scores: Scores
    duplicate_of: Count


class Head(TypedDict):
    id: str
    created: Count
    model: str


class ChunkEnds(Warned, total=False):
    """What few chunks have: warnings the first one, usage and ranking the last one."""

    ranking: tuple[Count, ...]
    usage: Usage | None


NO_ENDS: ChunkEnds = {}


def error_body(message: str, *, kind: ErrorKind, param: str | None, code: str | None) -> Error:
    """An error in the form that OpenAI's clients read."""
    return {"error": {"message": message, "type": kind, "param": param, "code": code}}


def usage_of(done: Done) -> Usage:
    return {
        "prompt_tokens": done.prompt_tokens,
        "completion_tokens": done.completion_tokens,
        "total_tokens": done.prompt_tokens + done.completion_tokens,
        "prompt_tokens_details": {"cached_tokens": done.cached_tokens},
    }


def finish_of(stop: Stop | None) -> Finish:
    return "stop" if stop is not None and stop.finish_reason == "stop" else UNFINISHED


def marks_of(stop: Stop | None) -> Marks:
    """What ranking and dedupe say of a choice."""
    marks: Marks = {}
    if stop is None:
        return marks
    logprob, mean, distinct_2 = stop.logprob, stop.mean_logprob, stop.distinct_2
    if logprob is not None and mean is not None and distinct_2 is not None:
        marks["scores"] = {
            "logprob": logprob,
            "mean_logprob": mean,
            "length": stop.length,
            "distinct_2": distinct_2,
        }
    if stop.duplicate_of is not None:
        marks["duplicate_of"] = stop.duplicate_of
    return marks


def in_order(transcript: Transcript[OneText]) -> Iterator[tuple[int, OneText, Stop | None]]:
    """The choices of a body: place, text, and the stop event, whose duplicate_of is a place, too."""
    places = {number: i for i, number in enumerate(transcript.ordered)}
    for number, i in places.items():
        text = transcript.texts[number]
        stop = text.stop
        if stop is not None and stop.duplicate_of is not None:
            stop = replace(stop, duplicate_of=places[stop.duplicate_of])
        yield i, text, stop


class ChunkWriter:
    """Chunks of one answer as frames.

    Frames begin with `head`, which is known with the answer's id, and end with `tail`. created is in seconds
    since 1970.
    """

    def __init__(self, kind: str, prefix: str, form: Form, *, model: str, created: int) -> None:
        self._prefix = prefix  # of the id
        self._about = {"object": kind, "created": created, "model": model}
        self._wants_usage = form.include_usage
        self.head = b""
        self.tail = b',"usage":null}\n\n' if form.include_usage else b"}\n\n"

    def name(self, id: str) -> None:
        """From now on chunks have this id."""
        self.head = b"data: " + orjson.dumps({"id": self._prefix + id, **self._about})[:-1]

    def frame(self, choices: Sequence[Mapping[str, Any]], ends: ChunkEnds = NO_ENDS) -> bytes:
        """One chunk."""
        fields = orjson.dumps({"choices": choices, **ends})[1:-1]
        return b"%b,%b%b" % (self.head, fields, b"}\n\n" if "usage" in ends else self.tail)

    def begin(self, warnings: tuple[str, ...], choices: Sequence[Mapping[str, Any]] = ()) -> bytes:
        """The first chunk, where there is something to warn of."""
        return self.frame(choices, {"warnings": warnings}) if warnings else b""

    def end(self, done: Done) -> bytes:
        """The last chunk, where there is something to tell, and the end of the stream."""
        ends: ChunkEnds = {"ranking": done.ranking} if done.ranking else {}
        if self._wants_usage:
            ends["usage"] = usage_of(done)
        return (self.frame((), ends) if ends else b"") + END

    def other(self, event: Event) -> bytes:
        """What is no chunk: a comment while the request waits, an error."""
        match event:
            case Queued():
                return b": queued at position %d\n\n" % event.position
            case events.Error():
                kind: ErrorKind = (
                    "invalid_request_error" if event.code == "invalid_request" else "server_error"
                )
                error = error_body(event.message, kind=kind, param=event.param, code=event.code)
                return b"data: %b\n\n" % orjson.dumps(error)
        return b""
