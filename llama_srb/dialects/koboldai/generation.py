"""KoboldAI and KoboldCpp: generations. Old text-generation-webui's blocking API has the same paths. Pure.

Frames are `event: message` and one line of data; with n > 1 a body has n results. The client chooses a
genkey, by which it polls or aborts the generation.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NotRequired

import orjson
from typing_extensions import TypedDict

from llama_srb.dialects.common.fields import switch, text_of
from llama_srb.dialects.common.reply import Reply, ServerInfo, TokenLogprob, token_json
from llama_srb.dialects.common.response_types import (
    NO_SIZE,
    Count,
    Finish,
    Frames,
    PromptSize,
    Told,
    as_json,
    finish_of,
)
from llama_srb.dialects.common.token_names import by_name, key_name
from llama_srb.engine.events import Error, Stop, Stream
from llama_srb.request.fields import CompletionRequest, limit_of
from llama_srb.request.parse import request_from
from llama_srb.request.values import wrong

N, MAX_TOKENS = 1, 1024  # koboldcpp's defaults
SAMPLING = {  # koboldcpp's defaults that differ from llama.cpp's
    "temperature": 0.75, "top_k": 100, "top_p": 0.92, "min_p": 0.0, "repeat_last_n": 320,
    "xtc_threshold": 0.2, "dry_penalty_last_n": 320,
}  # fmt: skip
LOGPROBS = 5  # alternatives of each token with `logprobs: true`
READ_HERE = frozenset({"stream", "model", "memory", "genkey", "trim_stop", "quiet"})
MAX_GENKEY = 128  # characters
KINDS = {401: "unauthorized", 503: "service_unavailable"}


# ----------------------------------------------------------------------------------------------------
# Answers
# ----------------------------------------------------------------------------------------------------


class KoboldErrorFields(TypedDict):
    msg: str
    type: str


class KoboldError(TypedDict):
    detail: KoboldErrorFields


class KoboldLogprobs(TypedDict):
    """The tokens of one sequence; each list has one entry for each token."""

    content: list[TokenLogprob]
    tokens: list[str]
    token_logprobs: list[float | None]
    top_logprobs: list[dict[str, float]]


class KoboldResult(TypedDict):
    text: str
    finish_reason: Finish
    logprobs: KoboldLogprobs | None
    prompt_tokens: Count
    completion_tokens: Count


class KoboldResults(Told):
    results: list[KoboldResult]


class KoboldPiece(Told):
    """New text of one sequence. index: only with n > 1."""

    token: str
    finish_reason: Finish | None
    index: NotRequired[Count]


MESSAGES = Frames(
    KoboldPiece | KoboldError, "Frames `event: message` and `data: <KoboldPiece>`, each of one sequence."
)

# ----------------------------------------------------------------------------------------------------
# Answers from events
# ----------------------------------------------------------------------------------------------------


def error_body(
    status: int,
    message: str,
    *,
    param: str | None = None,
    code: str | None = None,
    size: PromptSize = NO_SIZE,
) -> KoboldError:
    """An error as koboldcpp writes it."""
    other = "bad_input" if status < 500 else "server_error"
    return {"detail": {"msg": message, "type": KINDS.get(status, other)}}


class Results(Reply):
    """The answer of /api/v1/generate and /api/extra/generate/stream."""

    pause = b""  # KoboldAI Lite reads only events, no comments

    def __init__(self, body: Mapping[str, Any], about: ServerInfo, *, stream: bool) -> None:
        super().__init__(_request(body, about, stream), about, stream=stream)
        self.limit = limit_of(body, "max_context_length", "truncation_length")
        self.genkey = genkey_of(body)
        self._trim_stop = switch(body, "trim_stop", True)

    def piece(self, event: Stream) -> Iterator[KoboldPiece]:
        yield self._message(event.index, event.text, None)

    def end(self, index: int, stop: Stop) -> Iterator[KoboldPiece]:
        yield self._message(index, self._tail(stop), finish_of(stop))

    def _message(self, index: int, token: str, finish_reason: Finish | None) -> KoboldPiece:
        message: KoboldPiece = {"token": token, "finish_reason": finish_reason}
        if self.request.n > 1:
            message["index"] = index
        return {**message, **self.told} if self.done else message

    def frame(self, data: Mapping[str, Any]) -> bytes:
        return b"event: message\ndata: %b\n\n" % orjson.dumps(data)

    def failure(self, error: Error) -> KoboldError:
        return error_body(500, error.message)

    def _tail(self, stop: Stop) -> str:
        return "" if self._trim_stop else stop.stop_text

    def body(self) -> KoboldResults:
        return {"results": list(map(self._result, self.ordered)), **self.told}

    def _result(self, index: int) -> KoboldResult:
        text = self.texts[index]
        assert text.stop is not None
        return {
            "text": text.text + self._tail(text.stop),
            "finish_reason": finish_of(text.stop),
            "logprobs": None if self.request.logprobs is None else logprobs(text.tokens),
            "prompt_tokens": self.prompt_tokens,
            "completion_tokens": text.length,
        }


def _request(body: Mapping[str, Any], about: ServerInfo, stream: bool) -> CompletionRequest:
    defaults = about.defaults_of(N, MAX_TOKENS, stream=stream, sampling=SAMPLING)
    count = {"logprobs": LOGPROBS} if body.get("logprobs") is True else {}
    return request_from({**body, **_story(body), **count}, defaults, known=READ_HERE)


def _story(body: Mapping[str, Any]) -> dict[str, Any]:
    """KoboldCpp's memory as a story's: it stands directly before the prompt."""
    memory, story = text_of(body, "memory", ""), body.get("story") or {}
    if not memory or not isinstance(body.get("prompt"), str) or not isinstance(story, dict):
        return {}
    return {"story": {"separator": "", **story, "memory": memory}}


def logprobs(tokens: Iterable[Mapping[str, Any]]) -> KoboldLogprobs:
    """The tokens of one sequence in koboldcpp's form."""
    made: KoboldLogprobs = {"content": [], "tokens": [], "token_logprobs": [], "top_logprobs": []}
    for token in tokens:
        made["content"].append(as_json(token_json(token)))
        made["tokens"].append(key_name(token))
        made["token_logprobs"].append(token["logprob"])
        found = by_name(token.get("top", ()))
        made["top_logprobs"].append(as_json(dict(reversed(found.items()))))
    return made


def genkey_of(body: Mapping[str, Any]) -> str:
    """The body's genkey; without one the empty text, which is a key like any other."""
    genkey = text_of(body, "genkey", "")
    if len(genkey) > MAX_GENKEY:
        raise wrong("genkey", genkey, f"a text of at most {MAX_GENKEY} characters")
    return genkey


def generate(body: Mapping[str, Any], about: ServerInfo) -> Reply:
    """/api/v1/generate."""
    return Results(body, about, stream=False)


def stream(body: Mapping[str, Any], about: ServerInfo) -> Reply:
    """/api/extra/generate/stream."""
    return Results(body, about, stream=True)


REPLIES = {
    "/api/v1/generate": generate,
    "/api/latest/generate": generate,
    "/api/extra/generate/stream": stream,
}
