"""KoboldAI and KoboldCpp, and old text-generation-webui's blocking API, which has the same paths. Pure.

Frames are `event: message` and one line of data; n > 1 is n results. A genkey, which the client chooses,
names a generation for those who look on, and for who ends it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import orjson

from llama_srb.dialects.common.fields import ids_of, switch, text_of
from llama_srb.dialects.common.reply import InfoEndpoint, Json, Reply, ServerInfo, as_json, token_json, told
from llama_srb.engine.events import Again, Done, Error, Event, Extend, Start, Stop, Stream
from llama_srb.request.fields import CompletionRequest, limit_of
from llama_srb.request.parse import request_from
from llama_srb.request.values import wrong

N, MAX_TOKENS = 1, 1024  # koboldcpp's defaults
SAMPLING = {  # koboldcpp's, where they differ from llama.cpp's
    "temperature": 0.75, "top_k": 100, "top_p": 0.92, "min_p": 0.0, "repeat_last_n": 320,
    "xtc_threshold": 0.2, "dry_penalty_last_n": 320,
}  # fmt: skip
LOGPROBS = 5  # alternatives that `logprobs: true` means
VERSION = "1.104"  # of KoboldCpp: KoboldAI Lite offers what this version can do, up to adaptive-p
API_VERSION = "1.2.5"  # of KoboldAI's API: stop_sequence and use_default_badwordsids
READ_HERE = frozenset({"stream", "model", "memory", "genkey", "trim_stop", "quiet"})
MAX_GENKEY = 128  # characters
KINDS = {401: "unauthorized", 503: "service_unavailable"}


def error_body(status: int, message: str, *, param: str | None = None, code: str | None = None) -> Json:
    """An error as koboldcpp writes it."""
    other = "bad_input" if status < 500 else "server_error"
    return {"detail": {"msg": message, "type": KINDS.get(status, other)}}


class Results(Reply):
    """Of /api/v1/generate and /api/extra/generate/stream."""

    pause = b""  # KoboldAI Lite's reader takes nothing but events

    def __init__(self, body: Mapping[str, Any], about: ServerInfo, *, stream: bool) -> None:
        super().__init__(_request(body, about, stream), about, stream=stream)
        head = text_of(body, "memory", "")
        self.limit = limit_of(body, "max_context_length", "truncation_length", head=head)
        self.genkey = genkey_of(body)
        self._trim_stop = switch(body, "trim_stop", True)

    def piece(self, event: Stream) -> Iterator[Json]:
        yield self._message(event.index, event.text, None)

    def end(self, index: int, stop: Stop) -> Iterator[Json]:
        yield self._message(index, self._tail(stop), _finish_reason(stop))

    def _message(self, index: int, token: str, finish_reason: str | None) -> Json:
        named = {"index": index} if self.request.n > 1 else {}
        return {"token": token, "finish_reason": finish_reason} | named | (self.warned if self.done else {})

    def frame(self, data: Json) -> bytes:
        return b"event: message\ndata: %b\n\n" % orjson.dumps(data)

    def failure(self, error: Error) -> Json:
        return error_body(500, error.message)

    def _tail(self, stop: Stop) -> str:
        return "" if self._trim_stop else stop.stop_text

    def body(self) -> Any:
        return {"results": list(map(self._result, self.ordered))} | self.warned

    def _result(self, index: int) -> Json:
        text = self.texts[index]
        assert text.stop is not None
        return {
            "text": text.text + self._tail(text.stop),
            "finish_reason": _finish_reason(text.stop),
            "logprobs": None if self.request.logprobs is None else logprobs(text.tokens),
            "prompt_tokens": self.prompt_tokens,
            "completion_tokens": text.length,
        }


def _finish_reason(stop: Stop) -> str:
    return "stop" if stop.finish_reason == "stop" else "length"


def _request(body: Mapping[str, Any], about: ServerInfo, stream: bool) -> CompletionRequest:
    defaults = about.defaults_of(N, MAX_TOKENS, stream=stream, sampling=SAMPLING)
    memory, prompt = text_of(body, "memory", ""), body.get("prompt")
    whole = memory + prompt if isinstance(prompt, str) else prompt
    told = {"logprobs": LOGPROBS} if body.get("logprobs") is True else {}
    return request_from({**body, "prompt": whole, **told}, defaults, known=READ_HERE)


def logprobs(tokens: Iterable[Mapping[str, Any]]) -> Json:
    """The tokens of one sequence as koboldcpp tells them."""
    made: Json = {"content": [], "tokens": [], "token_logprobs": [], "top_logprobs": []}
    for token in tokens:
        made["content"].append(as_json(token_json(token)))
        made["tokens"].append(token["text"])
        made["token_logprobs"].append(token["logprob"])
        by_text = {other["text"]: other["logprob"] for other in reversed(token.get("top", ()))}
        made["top_logprobs"].append(as_json(by_text))
    return made


def genkey_of(body: Mapping[str, Any]) -> str:
    """Empty without one: that names the generation which was begun without one."""
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


# ----------------------------------------------------------------------------------------------------
# For those who look on
# ----------------------------------------------------------------------------------------------------


ALL, TOKENS, TEXTS, COUNTS = range(4)  # what is kept, always less
FORGOTTEN = {
    TOKENS: "the alternatives are forgotten",
    TEXTS: "the tokens are forgotten",
    COUNTS: "the texts and their tokens are forgotten",
}
PER_TEXT = 64  # bytes that one takes without a character
PER_TOKEN = 96  # the same of a token and of its alternatives, which are a line of JSON each


class Seen:
    """What check, last_logprobs and perf show of a generation, in as few bytes as that takes.

    The texts are UTF-8. Only the first one's tokens are shown; they are JSON, since as objects they would
    take six times as much.
    """

    def __init__(self, request: CompletionRequest) -> None:
        self.begun: Start | None = None
        self.done: Done | None = None
        self._texts = [bytearray() for _ in range(request.n)]
        self._has_tokens = request.logprobs is not None
        self._tokens: list[tuple[bytes, bytes]] = []  # each, and its alternatives
        self._said = 0  # bytes of all texts
        self._listed = 0  # bytes of the tokens
        self._keeps = ALL

    @property
    def size(self) -> int:
        """Bytes, near enough."""
        return len(self._texts) * (PER_TEXT if self._keeps < COUNTS else 8) + self._said + self._listed

    def take(self, events: Iterable[Event]) -> None:
        """Events, which follow those of the last call."""
        for event in events:
            match event:
                case Stream():
                    self._add(event)
                case Again():
                    self._clear(event.index)
                case Extend():
                    self._texts += [bytearray() for _ in range(event.first, event.count)]
                case Start():
                    self.begun = event
                case Done():
                    self.done = replace(event, ranking=())

    def _add(self, event: Stream) -> None:
        if self._keeps < COUNTS:
            text = event.text.encode()
            self._texts[event.index] += text
            self._said += len(text)
        if event.index == 0 and self._keeps < TEXTS:
            packed = list(map(self._packed, event.tokens))
            self._tokens += packed
            self._listed += sum(map(_size, packed))

    def _packed(self, token: Mapping[str, Any]) -> tuple[bytes, bytes]:
        one = {name: value for name, value in token.items() if name != "top"}
        return orjson.dumps(one), orjson.dumps(token.get("top", [])) if self._keeps == ALL else b"[]"

    def _clear(self, index: int) -> None:
        self._said -= len(self._texts[index])
        self._texts[index] = bytearray()
        if index == 0:
            self._tokens, self._listed = [], 0

    def shrink(self) -> bool:
        """Forgets for good the alternatives, then the tokens, then the texts; False when nothing is left."""
        if self._keeps == COUNTS:
            return False
        self._keeps += 1
        if self._keeps == TOKENS:
            self._tokens = [(one, b"[]") for one, _ in self._tokens]
            self._listed = sum(map(_size, self._tokens))
        if self._keeps == TEXTS:
            self._tokens, self._listed = [], 0
        if self._keeps == COUNTS:
            self._texts, self._said = [bytearray()] * len(self._texts), 0
        return True

    def so_far(self) -> Json:
        """The texts until now."""
        return {"results": [{"text": text.decode()} for text in self._texts]} | self._warned(COUNTS)

    def tokens(self) -> list[tuple[bytes, bytes]]:
        """Those of the first text until now, as JSON: each, and its alternatives."""
        return list(self._tokens)

    def logprobs(self, tokens: Iterable[tuple[bytes, bytes]]) -> Json:
        """The same as koboldcpp tells them; null when they were not asked for, or are forgotten."""
        told = (orjson.loads(one) | {"top": orjson.loads(top)} for one, top in tokens)
        kept = self._has_tokens and self._keeps < TEXTS
        warned = self._warned(TOKENS) if self._has_tokens else {}
        return {"logprobs": logprobs(told) if kept else None} | warned

    def _warned(self, since: int) -> Json:
        """Of what is forgotten."""
        if self._keeps < since:
            return {}
        return {"warnings": [f"{FORGOTTEN[self._keeps]}: this client's generations have said too much"]}


def _size(token: tuple[bytes, bytes]) -> int:
    return PER_TOKEN + len(token[0]) + len(token[1])


def so_far(seen: Seen | None) -> Json:
    """/api/extra/generate/check: the texts until now."""
    return seen.so_far() if seen else {"results": [{"text": ""}]}


def last_logprobs(seen: Seen | None, tokens: Iterable[tuple[bytes, bytes]]) -> bytes:
    """/api/extra/last_logprobs: of the first sequence, all its tokens until now."""
    return orjson.dumps(seen.logprobs(tokens) if seen else {"logprobs": None})


def performance(seen: Seen | None, running: int, about: ServerInfo) -> Json:
    """/api/extra/perf: of the last generation; seconds."""
    done = seen.done if seen else None
    ms: Mapping[str, float] = done.timings if done else {}
    return {
        "last_process": ms.get("prompt_ms", 0.0) / 1000,
        "last_eval": ms.get("decode_ms", 0.0) / 1000,
        "last_token_count": done.completion_tokens if done else 0,
        "last_input_count": done.prompt_tokens if done else 0,
        "last_seed": seen.begun.seed if seen and seen.begun else -1,
        "queue": running,
        "idle": int(running == 0),
        "uptime": about.uptime,
    }


def aborted(found: bool) -> Json:
    """/api/extra/abort."""
    return {"success": str(found).lower(), "done": "true"}


# ----------------------------------------------------------------------------------------------------
# What generates nothing
# ----------------------------------------------------------------------------------------------------


def _version(about: ServerInfo) -> Json:
    others = (
        "protected", "txt2img", "vision", "audio", "transcribe", "multiplayer", "websearch", "tts",
        "embeddings", "music", "savedata", "admin", "router", "guidance", "mcp",
    )  # fmt: skip
    can = {"jinja": bool(about.chat_template)}
    return {"result": "KoboldCpp", "version": VERSION} | dict.fromkeys(others, False) | can


def _special(body: Json) -> Json:
    return {"text": text_of(body, "prompt"), "add_special": switch(body, "special", True)}


QUESTIONS = {
    "/api/v1/model": told(lambda about: {"result": f"koboldcpp/{about.model}"}),
    "/api/v1/info/version": told(lambda about: {"result": API_VERSION}),
    "/api/v1/config/max_context_length": told(lambda about: {"value": about.context}),
    "/api/v1/config/max_length": told(lambda about: {"value": MAX_TOKENS}),
    "/api/v1/config/soft_prompts_list": told(lambda about: {"values": []}),
    "/api/v1/config/soft_prompt": told(lambda about: {"value": ""}),
    "/api/extra/version": told(_version),
    "/api/extra/true_max_context_length": told(lambda about: {"value": about.context}),
    "/api/extra/preloadstory": told(lambda about: {}),
    "/api/extra/tokencount": InfoEndpoint(
        lambda body, result, about: {"value": len(result["tokens"]), "ids": result["tokens"]},
        "tokenize",
        _special,
    ),
    "/api/extra/detokenize": InfoEndpoint(
        lambda body, result, about: {"result": result["text"], "success": True},
        "detokenize",
        lambda body: ids_of(body, "ids"),
    ),
    "/api/v1/token-count": InfoEndpoint(
        lambda body, result, about: {"results": [{"tokens": len(result["tokens"])}]},
        "tokenize",
        _special,
    ),
}
REPLIES = {"/api/v1/generate": generate, "/api/extra/generate/stream": stream}
