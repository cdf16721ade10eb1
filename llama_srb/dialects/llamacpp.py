"""llama.cpp's server: /completion and /infill in their native form, and what clients ask beside them. Pure.

A frame has `index` and `content` at its top; one body is an object, or a list of n. Shapes:
tools/server/README.md and server-task.cpp of llama.cpp.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from llama_srb.dialects.common.fields import ids_of, switch, text_of
from llama_srb.dialects.common.reply import InfoEndpoint, Json, Reply, ServerInfo, as_json, token_json, told
from llama_srb.dialects.openai import INFILL, infill_prompt
from llama_srb.engine.events import Error, Stop, Stream
from llama_srb.request.fields import CHAT, Sampling
from llama_srb.request.parse import request_from
from llama_srb.request.values import RequestError, wrong

N, MAX_TOKENS = 1, -1  # llama-server's defaults
READ_HERE = frozenset({
    "stream", "model", "return_tokens", "response_fields", "input_prefix", "input_suffix", "input_extra",
})  # fmt: skip
KINDS = {  # of an error; others are the client's below 500, and the server's above
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    501: "not_supported_error",
    503: "unavailable_error",
}
STOP_TYPES = {"length": "limit", "timeout": "limit", "cancelled": "none", "error": "none"}
SNIPPET = "\n\n--- snippet ---\n\n"  # before a file, for a model that has no token for that


def error_body(status: int, message: str, *, param: str | None = None, code: str | None = None) -> Json:
    """An error as llama-server writes it."""
    other = "invalid_request_error" if status < 500 else "server_error"
    kind = "exceed_context_size_error" if code == "context_exceeded" else KINDS.get(status, other)
    return {"error": {"code": status, "message": message, "type": kind}}


class Completion(Reply):
    """Of /completion and /infill."""

    def __init__(self, body: Mapping[str, Any], about: ServerInfo, *, stream: bool) -> None:
        defaults = about.defaults_of(N, MAX_TOKENS, stream=stream)
        request = request_from({**body, "prompt": one_prompt(body.get("prompt"))}, defaults, known=READ_HERE)
        self._asked = request.logprobs is not None
        self._token = token_json if request.logprobs_mode == "raw" else _drawn_token
        self._paths = _paths(body)
        if body.get("return_tokens") and request.logprobs is None:
            request = request.model_copy(update={"logprobs": 0})  # only so does the engine tell tokens
        super().__init__(request, about, stream=stream)

    def piece(self, event: Stream) -> Iterator[Json]:
        text = self.texts[event.index]
        yield {
            "index": event.index,
            "content": event.text,
            "tokens": [token["id"] for token in event.tokens],
            "stop": False,
            "id_slot": event.index,
            "tokens_predicted": text.length,
            "tokens_evaluated": self.prompt_tokens,
            **self._logprobs(event.tokens),
        }

    def end(self, index: int, stop: Stop) -> Iterator[Json]:
        yield self._chosen(self._final(index, "", ()))

    def body(self) -> Any:
        finals = [
            self._chosen(self._final(i, one.text, one.tokens) | self._logprobs(one.tokens) | {"index": place})
            for place, i in enumerate(self.ordered)
            for one in [self.texts[i]]
        ]
        return finals if len(finals) > 1 else finals[0]

    def failure(self, error: Error) -> Json:
        return error_body(500, error.message, code=error.code)

    def _logprobs(self, tokens: Iterable[Mapping[str, Any]]) -> Json:
        made = [as_json(self._token(token)) for token in tokens] if self._asked else []
        return {"completion_probabilities": made} if made else {}

    def _chosen(self, final: Json) -> Json:
        """What response_fields names of it, each under its path."""
        return {path: value for path in self._paths for value in _at(path, final)} if self._paths else final

    def _final(self, index: int, content: str, tokens: Iterable[Mapping[str, Any]]) -> Json:
        text, prompt = self.texts[index], self.request.prompt
        assert text.stop is not None
        timed = {"timings": _timings(self.done.timings, text.length, self.prompt_tokens)} if self.done else {}
        return {
            "index": index,
            "content": content,
            "tokens": [token["id"] for token in tokens],
            "id_slot": index,
            "stop": True,
            "model": self.about.model,
            "tokens_predicted": text.length,
            "tokens_evaluated": self.prompt_tokens,
            "generation_settings": self._settings(index),
            "prompt": prompt if isinstance(prompt, str) else "",
            "has_new_line": text.has_new_line,
            "truncated": False,
            "stop_type": _stop_type(text.stop),
            "stopping_word": text.stop.stop_text,
            "tokens_cached": self.prompt_tokens + text.length,
            **timed,
            **self.warned,
        }

    def _settings(self, index: int) -> Json:
        request = self.request
        own = {"seed": request.seed_of(index, self.begun.seed)} if self.begun else {}
        mine = {"n_predict": request.max_tokens, "max_tokens": request.max_tokens, "stop": request.stop}
        return request.sampling.model_dump(mode="json") | mine | {"stream": self.stream} | own


def _stop_type(stop: Stop) -> str:
    return STOP_TYPES.get(stop.finish_reason) or ("word" if stop.stop_text else "eos")


def _timings(ms: Mapping[str, float], predicted: int, prompt: int) -> Json:
    """Of this sequence; rates are tokens per second."""
    made: Json = {}
    for name, n, took in (("prompt", prompt, "prompt_ms"), ("predicted", predicted, "decode_ms")):
        taken = ms.get(took, 0.0)
        made |= {f"{name}_n": n, f"{name}_ms": taken, f"{name}_per_token_ms": taken / n if n else 0.0}
        made[f"{name}_per_second"] = 1000 * n / taken if taken else 0.0
    return made


def _drawn_token(token: Mapping[str, Any]) -> Json:
    """The same by probabilities, as with post_sampling_probs."""
    return _drawn(token) | {"top_probs": list(map(_drawn, token.get("top", ())))}


def _drawn(token: Mapping[str, Any]) -> Json:
    one = token_json(token)
    return {name: one[name] for name in ("id", "token", "bytes")} | {"prob": math.exp(one["logprob"])}


def _paths(body: Mapping[str, Any]) -> tuple[str, ...]:
    """response_fields: content, timings/prompt_n, …"""
    paths = body.get("response_fields") or []
    if not isinstance(paths, list) or not all(isinstance(path, str) for path in paths):
        raise wrong("response_fields", paths, "a list of names of fields")
    return tuple(paths)


def _at(path: str, data: Any) -> list[Any]:
    """What stands there, if anything does."""
    for name in path.split("/"):
        if not isinstance(data, dict) or name not in data:
            return []
        data = data[name]
    return [data]


def one_prompt(prompt: object) -> object:
    """A list of one prompt is that prompt."""
    if isinstance(prompt, list) and prompt and isinstance(prompt[0], str | list):
        if len(prompt) > 1:
            raise RequestError(f"prompt is a list of {len(prompt)} prompts; it must be one", param="prompt")
        return prompt[0]
    return prompt


def complete(body: Mapping[str, Any], about: ServerInfo) -> Reply:
    """/completion."""
    return Completion(body, about, stream=switch(body, "stream", False))


def infill(body: Mapping[str, Any], about: ServerInfo) -> Reply:
    """/infill: what stands between prefix and suffix; other files before them."""
    if missing := [name for name in INFILL if not about.infill.get(name)]:
        raise RequestError(f"this model has no infill token for {' and '.join(missing)}", status=501)
    prefix, suffix = text_of(body, "input_prefix"), text_of(body, "input_suffix")
    prompt = _extra(body, about) + infill_prompt(about.infill, prefix, suffix) + text_of(body, "prompt", "")
    return Completion({**body, "prompt": prompt}, about, stream=switch(body, "stream", False))


def _extra(body: Mapping[str, Any], about: ServerInfo) -> str:
    files = body.get("input_extra") or []
    if not isinstance(files, list) or not all(isinstance(file, dict) for file in files):
        raise wrong("input_extra", files, "a list of {filename, text}")
    separator = about.infill.get("separator")
    heads = (f"{separator}{text_of(file, 'filename', 'tmp')}\n" if separator else SNIPPET for file in files)
    return "".join(head + text_of(file, "text") for head, file in zip(heads, files, strict=True))


# ----------------------------------------------------------------------------------------------------
# What generates nothing
# ----------------------------------------------------------------------------------------------------


def _tokenize(body: Json) -> Json:
    """llama-server's content, or vLLM's prompt on the same path, which brings the first token by itself."""
    if body.get("prompt") is not None:
        special = switch(body, "add_special_tokens", True)
        return {"text": text_of(body, "prompt"), "add_special": special}
    asked = {"text": text_of(body, "content", ""), "add_special": switch(body, "add_special", False)}
    return asked | ({"pieces": True} if switch(body, "with_pieces", False) else {})


def _tokens(body: Json, result: Mapping[str, Any], about: ServerInfo) -> Json:
    tokens = result["tokens"]
    if body.get("prompt") is not None:
        return {"count": len(tokens), "max_model_len": about.context, "tokens": tokens}
    if "pieces" not in result:
        return {"tokens": tokens}
    pieces = map(_piece, result["pieces"])
    return {"tokens": [{"id": id, "piece": piece} for id, piece in zip(tokens, pieces, strict=True)]}


def _piece(piece: list[int]) -> str | list[int]:
    """A token's text; its bytes where they are only a part of a character."""
    try:
        return bytes(piece).decode()
    except UnicodeDecodeError:
        return piece


def _content(body: Json, result: Mapping[str, Any], about: ServerInfo) -> Json:
    """content for llama-server's clients, prompt for vLLM's."""
    return {"content": result["text"], "prompt": result["text"]}


def template_arguments(body: Json) -> Json:
    """The fields of a chat, checked as for one."""
    fields = {name: value for name, value in body.items() if name in (*CHAT, "reasoning_effort")}
    if fields.get("messages") is None:
        raise RequestError("messages is missing", param="messages")
    made = request_from(fields).engine_fields()
    return {name: value for name, value in made.items() if name in CHAT}


def _prompt(body: Json, result: Mapping[str, Any], about: ServerInfo) -> Json:
    return {"prompt": result["prompt"]}


def _props(about: ServerInfo) -> Json:
    settings = Sampling().model_dump(mode="json")
    return {
        "default_generation_settings": {"params": settings, "n_ctx": about.context},
        "total_slots": about.parallel,
        "model_alias": about.model,
        "model_ftype": about.quantisation,
        "model_path": about.path,
        "modalities": {"vision": False, "video": False, "audio": False},
        "endpoint_slots": True,
        "endpoint_props": False,
        "endpoint_metrics": False,
        "chat_template": about.chat_template,
        "build_info": f"llama-srb {about.version}",
        "cpu_variant": about.cpu,
        "is_sleeping": False,
    }


def _slots(body: Json, result: Mapping[str, Any], about: ServerInfo) -> list[Json]:
    """A slot a place; which of them has which sequence is nowhere said, only how many are busy."""
    busy = result["sequences"]
    return [
        {"id": i, "n_ctx": about.context, "speculative": False, "is_processing": i < busy}
        for i in range(about.parallel)
    ]


TOKENIZE = InfoEndpoint(_tokens, "tokenize", _tokenize)
DETOKENIZE = InfoEndpoint(_content, "detokenize", ids_of)
TEMPLATE = InfoEndpoint(_prompt, "template", template_arguments)
QUESTIONS = {
    "/tokenize": TOKENIZE,
    "/v1/tokenize": TOKENIZE,
    "/detokenize": DETOKENIZE,
    "/v1/detokenize": DETOKENIZE,
    "/apply-template": TEMPLATE,
    "/props": told(_props),
    "/slots": InfoEndpoint(_slots, "status"),
}
REPLIES = {"/completion": complete, "/completions": complete, "/infill": infill}
