"""Parts that several of OpenAI's answers share: types, errors, tokens, chunks as frames. Pure."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NotRequired, TypeAlias

import orjson
from typing_extensions import TypedDict

from llama_srb.dialects.common.answers import (
    NO_SIZE,
    Compared,
    Count,
    Noted,
    PromptSize,
    compared,
    size_in,
)
from llama_srb.dialects.common.reply import OneText, Transcript
from llama_srb.dialects.openai.form import Form
from llama_srb.engine import events
from llama_srb.engine.events import Done, Event, Queued, Stop

END = b"data: [DONE]\n\n"

ErrorKind: TypeAlias = Literal["invalid_request_error", "server_error", "exceed_context_size_error"]
CODES = {"context_exceeded": "context_length_exceeded"}
"""OpenAI's names of the engine's codes, where they differ."""


class ErrorFields(PromptSize):
    """With the type exceed_context_size_error, which is llama-server's, also the sizes."""

    message: str
    type: ErrorKind
    param: str | None
    code: str | None


class Error(TypedDict):
    error: ErrorFields


class LikelyChatToken(TypedDict):
    token: str
    logprob: float
    bytes: list[Count]


class ChatToken(LikelyChatToken):
    """A token with its alternatives."""

    top_logprobs: list[LikelyChatToken]


class CachedTokens(TypedDict):
    cached_tokens: Count


class Usage(TypedDict):
    """The tokens of all choices together."""

    prompt_tokens: Count
    completion_tokens: Count
    total_tokens: Count
    prompt_tokens_details: CachedTokens


class Scores(TypedDict):
    """The scores of a choice, with best_of or rank_by."""

    logprob: float
    mean_logprob: float
    length: Count
    distinct_2: float
    certainty: NotRequired[float]


class RankingFields(TypedDict, total=False):
    """The fields that ranking and dedupe add to a choice."""

    scores: Scores
    duplicate_of: Count


class Head(TypedDict):
    """system_fingerprint: llama.cpp's commit, a hash of the model's files, a hash of the adapters."""

    id: str
    created: Count
    model: str
    system_fingerprint: str


class ComparedTexts(Compared, total=False):
    """by_prompt: the same for each of several prompts, in their order."""

    by_prompt: list[Compared]


class ChunkExtras(Noted, ComparedTexts, total=False):
    """Fields of the first chunk (warnings, recalled) and of the last one (the others)."""

    ranking: tuple[Count, ...]
    usage: Usage | None


NO_EXTRAS: ChunkExtras = {}


def error_body(
    message: str,
    *,
    is_clients: bool,
    param: str | None = None,
    code: str | None = None,
    size: PromptSize = NO_SIZE,
) -> Error:
    """An error in the form that OpenAI's clients read; is_clients: the client's request is wrong."""
    kind: ErrorKind = "invalid_request_error" if is_clients else "server_error"
    if size:
        kind = "exceed_context_size_error"
    fields: ErrorFields = {
        "message": message,
        "type": kind,
        "param": param,
        "code": CODES.get(code, code) if code else code,
        **size,
    }
    return {"error": fields}


def usage_of(done: Done) -> Usage:
    return {
        "prompt_tokens": done.prompt_tokens,
        "completion_tokens": done.completion_tokens,
        "total_tokens": done.prompt_tokens + done.completion_tokens,
        "prompt_tokens_details": {"cached_tokens": done.cached_tokens},
    }


def chat_token(token: Mapping[str, Any]) -> ChatToken:
    """The engine's token with its alternatives, as chats have it."""
    return {**_likely_token(token), "top_logprobs": list(map(_likely_token, token.get("top", ())))}


def _likely_token(token: Mapping[str, Any]) -> LikelyChatToken:
    text = token["text"]
    return {"token": text, "logprob": token["logprob"], "bytes": list(text.encode())}


def ranking_fields(stop: Stop | None) -> RankingFields:
    """The fields that ranking and dedupe add to a choice."""
    fields: RankingFields = {}
    if stop is None:
        return fields
    logprob, mean, distinct_2 = stop.logprob, stop.mean_logprob, stop.distinct_2
    if logprob is not None and mean is not None and distinct_2 is not None:
        fields["scores"] = {
            "logprob": logprob,
            "mean_logprob": mean,
            "length": stop.length,
            "distinct_2": distinct_2,
        }
        if stop.certainty is not None:
            fields["scores"]["certainty"] = stop.certainty
    if stop.duplicate_of is not None:
        fields["duplicate_of"] = stop.duplicate_of
    return fields


def in_order(transcript: Transcript[OneText]) -> Iterator[tuple[int, OneText, Stop | None]]:
    """The choices of a body, best first if ranked: the position in the body, the text, the stop event.

    The stop event's duplicate_of is a position in the body, too.
    """
    places = {number: i for i, number in enumerate(transcript.ordered)}
    for number, i in places.items():
        text = transcript.texts[number]
        stop = text.stop
        if stop is not None and stop.duplicate_of is not None:
            stop = replace(stop, duplicate_of=places[stop.duplicate_of])
        yield i, text, stop


@dataclass(frozen=True, slots=True)
class Origin:
    """What an answer says about where it is from.

    model: its name in the answer. created: seconds since 1970. fingerprint: makes system_fingerprint; it is
    called when the engine has begun.
    """

    model: str
    created: int
    fingerprint: Callable[[], str]


class ChunkWriter:
    """Writes the chunks of one answer as frames.

    A frame begins with `head`, which is set when the answer's id is known, and ends with `tail`, which has
    the fields that add() has set.
    """

    def __init__(self, kind: str, prefix: str, form: Form, origin: Origin) -> None:
        self._prefix = prefix  # before the id
        self._about = {"object": kind, "created": origin.created, "model": origin.model}
        self._fingerprint = origin.fingerprint
        self._wants_usage = form.include_usage
        self.head = self._added = self.tail = b""
        self.add({})

    def name(self, id: str) -> None:
        """Sets the id of the chunks that follow."""
        head = {"id": self._prefix + id, **self._about, "system_fingerprint": self._fingerprint()}
        self.head = b"data: " + orjson.dumps(head)[:-1]

    def add(self, fields: Mapping[str, Any]) -> None:
        """Sets more fields for the chunks that follow, in place of those of the last call."""
        self._added = b"," + orjson.dumps(fields)[1:-1] if fields else b""
        self.tail = self._added + (b',"usage":null}\n\n' if self._wants_usage else b"}\n\n")

    def frame(self, choices: Sequence[Mapping[str, Any]], extras: ChunkExtras | Noted = NO_EXTRAS) -> bytes:
        """One chunk as a frame."""
        fields = orjson.dumps({"choices": choices, **extras})[1:-1]
        tail = self._added + b"}\n\n" if "usage" in extras else self.tail
        return b"%b,%b%b" % (self.head, fields, tail)

    def begin(self, notes: Noted, choices: Sequence[Mapping[str, Any]] = ()) -> bytes:
        """The first chunk with what there is to tell about the prompt; empty if there is nothing."""
        return self.frame(choices, notes) if notes else b""

    def end(self, done: Done, found: ComparedTexts | None = None) -> bytes:
        """The last chunk, if it has something to tell of all texts, and the end of the stream."""
        extras: ChunkExtras = {"ranking": done.ranking} if done.ranking else {}
        extras = {**extras, **(compared(done) if found is None else found)}
        if self._wants_usage:
            extras["usage"] = usage_of(done)
        return (self.frame((), extras) if extras else b"") + END

    def other(self, event: Event) -> bytes:
        """The frame of an event without a chunk: a comment while the request is queued, or an error."""
        match event:
            case Queued():
                return b": queued at position %d\n\n" % event.position
            case events.Error():
                error = error_body(
                    event.message,
                    is_clients=event.code == "invalid_request",
                    param=event.param,
                    code=event.code,
                    size=size_in(event),
                )
                return b"data: %b\n\n" % orjson.dumps(error)
        return b""
