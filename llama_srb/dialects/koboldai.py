"""KoboldAI and KoboldCpp, and old text-generation-webui's blocking API, which has the same paths. Pure.

Frames are `event: message` and one line of data; n > 1 is n results. A genkey, which the client chooses,
names a generation for those who look on, and for who ends it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import orjson

from llama_srb.dialects.fields import ids_of, switch, text_of
from llama_srb.dialects.reply import About, Json, Question, Reply, token_json, told
from llama_srb.protocol import Error, Stop, Stream
from llama_srb.reading import request_from
from llama_srb.request import CompletionRequest, limit_of

N, MAX_TOKENS = 1, 1024  # koboldcpp's defaults
SAMPLING = {  # koboldcpp's, where they differ from llama.cpp's
    "temperature": 0.75, "top_k": 100, "top_p": 0.92, "min_p": 0.0, "repeat_last_n": 320,
    "xtc_threshold": 0.2, "dry_penalty_last_n": 320,
}  # fmt: skip
LOGPROBS = 5  # alternatives that `logprobs: true` means
VERSION = "1.104"  # of KoboldCpp: KoboldAI Lite offers what this version can do, up to adaptive-p
API_VERSION = "1.2.5"  # of KoboldAI's API: stop_sequence and use_default_badwordsids
READ_HERE = frozenset({"stream", "model", "memory", "genkey", "trim_stop", "quiet"})
KINDS = {401: "unauthorized", 503: "service_unavailable"}


def error_body(status: int, message: str, *, param: str | None = None, code: str | None = None) -> Json:
    """An error as koboldcpp writes it."""
    other = "bad_input" if status < 500 else "server_error"
    return {"detail": {"msg": message, "type": KINDS.get(status, other)}}


class Results(Reply):
    """Of /api/v1/generate and /api/extra/generate/stream."""

    pause = b""  # KoboldAI Lite's reader takes nothing but events

    def __init__(self, body: Mapping[str, Any], about: About, *, stream: bool) -> None:
        super().__init__(_request(body, about, stream), about, stream=stream)
        head = text_of(body, "memory", "")
        self.limit = limit_of(body, "max_context_length", "truncation_length", head=head)
        self.genkey = text_of(body, "genkey", "")
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
            "logprobs": logprobs(self, index),
            "prompt_tokens": self.prompt_tokens,
            "completion_tokens": text.length,
        }


def _finish_reason(stop: Stop) -> str:
    return "stop" if stop.finish_reason == "stop" else "length"


def _request(body: Mapping[str, Any], about: About, stream: bool) -> CompletionRequest:
    defaults = about.defaults_of(N, MAX_TOKENS, stream=stream, sampling=SAMPLING)
    memory, prompt = text_of(body, "memory", ""), body.get("prompt")
    whole = memory + prompt if isinstance(prompt, str) else prompt
    told = {"logprobs": LOGPROBS} if body.get("logprobs") is True else {}
    return request_from({**body, "prompt": whole, **told}, defaults, known=READ_HERE)


def logprobs(reply: Reply, index: int) -> Json | None:
    """The tokens of one sequence as koboldcpp tells them; None when they were not asked for."""
    tokens = list(map(token_json, reply.texts[index].tokens))
    if reply.request.logprobs is None:
        return None
    return {
        "content": tokens,
        "tokens": [token["token"] for token in tokens],
        "token_logprobs": [token["logprob"] for token in tokens],
        "top_logprobs": [
            {top["token"]: top["logprob"] for top in reversed(token["top_logprobs"])} for token in tokens
        ],
    }


def generate(body: Mapping[str, Any], about: About) -> Reply:
    """/api/v1/generate."""
    return Results(body, about, stream=False)


def stream(body: Mapping[str, Any], about: About) -> Reply:
    """/api/extra/generate/stream."""
    return Results(body, about, stream=True)


# ----------------------------------------------------------------------------------------------------
# For those who look on
# ----------------------------------------------------------------------------------------------------


def so_far(reply: Reply | None) -> Json:
    """/api/extra/generate/check: the texts until now."""
    texts = [text.text for text in reply.texts] if reply else [""]
    return {"results": [{"text": text} for text in texts]}


def last_logprobs(reply: Reply | None) -> Json:
    """/api/extra/last_logprobs: of the first sequence, all its tokens until now."""
    return {"logprobs": logprobs(reply, 0) if reply else None}


def performance(reply: Reply | None, running: int, about: About) -> Json:
    """/api/extra/perf: of the last generation; seconds."""
    done = reply.done if reply else None
    ms: Mapping[str, float] = done.timings if done else {}
    return {
        "last_process": ms.get("prompt_ms", 0.0) / 1000,
        "last_eval": ms.get("decode_ms", 0.0) / 1000,
        "last_token_count": done.completion_tokens if done else 0,
        "last_input_count": done.prompt_tokens if done else 0,
        "last_seed": reply.begun.seed if reply and reply.begun else -1,
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


def _version(about: About) -> Json:
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
    "/api/extra/tokencount": Question(
        lambda body, result, about: {"value": len(result["tokens"]), "ids": result["tokens"]},
        "tokenize",
        _special,
    ),
    "/api/extra/detokenize": Question(
        lambda body, result, about: {"result": result["text"], "success": True},
        "detokenize",
        lambda body: ids_of(body, "ids"),
    ),
    "/api/v1/token-count": Question(
        lambda body, result, about: {"results": [{"tokens": len(result["tokens"])}]},
        "tokenize",
        _special,
    ),
}
REPLIES = {"/api/v1/generate": generate, "/api/extra/generate/stream": stream}
