"""Parts that several of OpenAI's answers share: types, errors, tokens, chunks as frames. Pure."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NotRequired, TypeAlias, cast

import orjson
from typing_extensions import TypedDict

from llama_srb.dialects.common.reply import Text, bytes_of
from llama_srb.dialects.common.response_types import (
    NO_SIZE,
    Compared,
    Count,
    Noted,
    PromptSize,
    as_json,
    compared,
    size_in,
)
from llama_srb.dialects.common.token_names import Name, id_name, text_name
from llama_srb.dialects.openai.form import Form
from llama_srb.engine import events
from llama_srb.engine.events import Done, Event, Queued, Start, Stop, Stream
from llama_srb.request.fields import CompletionRequest

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


class ProcessedFields(TypedDict, total=False):
    """Log-probabilities after the samplers, with logprobs_mode both."""

    processed_logprob: float
    processed_top_logprobs: list[LikelyChatToken]


class ChatToken(LikelyChatToken, ProcessedFields):
    """A token with its alternatives."""

    top_logprobs: list[LikelyChatToken]


class PromptLogprob(TypedDict):
    """A token at a place of the prompt, or one that is likely there; rank: 1 is the likeliest one."""

    logprob: float
    rank: Count
    decoded_token: str


PromptLogprobs: TypeAlias = list[dict[str, PromptLogprob] | None]
"""One entry for each token of the prompt, by token id; null for the first one: nothing predicts it."""


class DrawnFields(TypedDict, total=False):
    """Fields of a choice, with return_token_ids and return_entropies: one entry for each token drawn."""

    token_ids: list[int]
    entropies: list[float]


class PromptFields(TypedDict, total=False):
    """Fields about the prompt's tokens, with return_token_ids and prompt_logprobs."""

    prompt_token_ids: list[int]
    prompt_logprobs: PromptLogprobs


NO_DRAWN: DrawnFields = {}
NO_IDS: DrawnFields = {"token_ids": []}  # vLLM's clients add up the lists of all chunks
NO_PROMPT: PromptFields = {}


class CachedTokens(TypedDict):
    cached_tokens: Count


class CompletionTokens(TypedDict, total=False):
    """reasoning_tokens: of a chat; the others: those that were guessed, where any were (draft)."""

    reasoning_tokens: Count
    accepted_prediction_tokens: Count
    rejected_prediction_tokens: Count


class Usage(TypedDict):
    """The tokens of all choices together; completion_tokens_details: of a chat, or with drafts."""

    prompt_tokens: Count
    completion_tokens: Count
    total_tokens: Count
    prompt_tokens_details: CachedTokens
    completion_tokens_details: NotRequired[CompletionTokens]


class Scores(TypedDict):
    """The scores of a choice, with best_of or rank_by."""

    logprob: float
    mean_logprob: float
    length: Count
    distinct_2: float
    certainty: NotRequired[float]


class EndFields(TypedDict, total=False):
    """The fields that the end of a text adds to its choice; scores and duplicate_of: of ranking and dedupe.

    stop_reason: the stop string or the token of stop_token_ids that has ended the text; null: neither.
    """

    stop_reason: str | int | None
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
    """Fields of the first chunk (warnings, recalled, in a chat prompt_token_ids) and of the last one."""

    ranking: tuple[Count, ...]
    usage: Usage | None
    prompt_token_ids: list[int]


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
    usage: Usage = {
        "prompt_tokens": done.prompt_tokens,
        "completion_tokens": done.completion_tokens,
        "total_tokens": done.prompt_tokens + done.completion_tokens,
        "prompt_tokens_details": {"cached_tokens": done.cached_tokens},
    }
    if guessed := round(done.timings.get("draft_n", 0)):
        right = round(done.timings["draft_n_accepted"])
        usage["completion_tokens_details"] = {
            "accepted_prediction_tokens": right,
            "rejected_prediction_tokens": guessed - right,
        }
    return usage


def chat_usage_of(done: Done) -> Usage:
    usage = usage_of(done)
    details: CompletionTokens = {"reasoning_tokens": done.reasoning_tokens}
    return {**usage, "completion_tokens_details": {**details, **usage.get("completion_tokens_details", {})}}


def names_of(request: CompletionRequest) -> Name:
    return id_name if request.return_tokens_as_token_ids else text_name


def chat_token(token: Mapping[str, Any], name: Name = text_name) -> ChatToken:
    """The engine's token with its alternatives, as chats have it."""

    def likely(one: Mapping[str, Any]) -> LikelyChatToken:
        return {"token": name(one), "logprob": one["logprob"], "bytes": bytes_of(one)}

    processed: ProcessedFields = {}
    if "processed_logprob" in token:
        processed["processed_logprob"] = token["processed_logprob"]
        processed["processed_top_logprobs"] = list(map(likely, token["processed_top"]))
    return {**likely(token), "top_logprobs": list(map(likely, token.get("top", ()))), **processed}


def drawn_fields(event: Stream) -> DrawnFields:
    """The fields of a choice about the tokens of one event."""
    made: DrawnFields = {}
    if event.token_ids:
        made["token_ids"] = list(event.token_ids)
    if event.entropies:
        made["entropies"] = list(event.entropies)
    return made


def all_drawn(text: Text, request: CompletionRequest) -> DrawnFields:
    """The fields of a choice about all tokens of its text."""
    made: DrawnFields = {}
    if request.return_token_ids:
        made["token_ids"] = text.token_ids
    if request.return_entropies:
        made["entropies"] = text.entropies
    return made


class PromptTokens:
    """What an answer has of the prompt's tokens: their ids, and vLLM's prompt_logprobs."""

    def __init__(self) -> None:
        self._ids: tuple[int, ...] = ()
        self._logprobs: list[bytes] = []  # by event; JSON, since objects would take ten times the memory
        self._made: PromptFields | None = None

    def take(self, event: Event) -> None:
        match event:
            case Start():
                self._ids = event.prompt_token_ids
            case events.PromptLogprobs():
                self._logprobs.append(orjson.dumps(list(map(_by_id, event.tokens)))[1:-1])

    @property
    def ids(self) -> list[int]:
        """The ids; serialized now, since each choice may have them."""
        return as_json(list(self._ids))

    def fields(self, request: CompletionRequest) -> PromptFields:
        """What the request wants of them, made once for all choices."""
        if self._made is None:
            self._made = {"prompt_token_ids": self.ids} if request.return_token_ids else {}
            if request.prompt_logprobs is not None:
                whole = orjson.Fragment(b"[%b]" % b",".join(self._logprobs))
                self._made["prompt_logprobs"] = cast(PromptLogprobs, whole)
        return self._made


def _by_id(token: Mapping[str, Any]) -> dict[str, PromptLogprob] | None:
    """The token first, then the likeliest ones."""
    if token["logprob"] is None:
        return None
    ranked = [(token["rank"], token), *enumerate(token["top"], 1)]
    made: dict[str, PromptLogprob] = {}
    for rank, one in ranked:
        entry: PromptLogprob = {"logprob": one["logprob"], "rank": rank, "decoded_token": one["text"]}
        made.setdefault(str(one["id"]), entry)
    return made


def end_fields(stop: Stop | None) -> EndFields:
    """The fields that the end of a text adds to its choice."""
    fields: EndFields = {}
    if stop is None:
        return fields
    fields["stop_reason"] = stop.reason
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


@dataclass(frozen=True, slots=True)
class Origin:
    """What an answer says about where it is from.

    model: its name in the answer. created: seconds since 1970. fingerprint: makes system_fingerprint; it is
    called when the engine has begun.
    """

    model: str
    created: int
    fingerprint: Callable[[], str]

    def fields(self, kind: str) -> dict[str, Any]:
        """The fields that follow an answer's id; kind: its `object`."""
        return {
            "object": kind,
            "created": self.created,
            "model": self.model,
            "system_fingerprint": self.fingerprint(),
        }


class ChunkWriter:
    """Writes the chunks of one answer as frames.

    A frame begins with `head`, which is set when the answer's id is known, and ends with `tail`, which has
    the fields that add() has set.
    """

    def __init__(
        self,
        kind: str,
        prefix: str,
        form: Form,
        origin: Origin,
        usage_of: Callable[[Done], Usage] = usage_of,
    ) -> None:
        self._kind, self._prefix, self._origin = kind, prefix, origin  # prefix: stands before the id
        self._usage_of = usage_of
        self._wants_usage = form.include_usage
        self.head = self._added = self.tail = b""
        self.add({})

    def name(self, id: str) -> None:
        """Sets the id of the chunks that follow."""
        head = {"id": self._prefix + id, **self._origin.fields(self._kind)}
        self.head = b"data: " + orjson.dumps(head)[:-1]

    def add(self, fields: Mapping[str, Any]) -> None:
        """Sets more fields for the chunks that follow, in place of those of the last call."""
        self._added = b"," + orjson.dumps(fields)[1:-1] if fields else b""
        has_no_usage = self._wants_usage and "usage" not in fields
        self.tail = self._added + (b',"usage":null}\n\n' if has_no_usage else b"}\n\n")

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
            extras["usage"] = self._usage_of(done)
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
