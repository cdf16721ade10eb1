"""Ollama: reads a body as a request. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson

from llama_srb.dialects.common.fields import switch
from llama_srb.dialects.common.reply import Json, ServerInfo
from llama_srb.request.fields import CompletionRequest
from llama_srb.request.parse import request_from
from llama_srb.request.values import MAX_LOGPROBS, RequestError, whole, wrong

N, MAX_TOKENS = 1, -1  # Ollama's defaults
SAMPLING = {"top_p": 0.9, "min_p": 0.0, "repeat_penalty": 1.1}  # where they differ from llama.cpp's
READ_HERE = frozenset({
    "model", "name", "stream", "raw", "system", "keep_alive", "suffix", "format", "options", "logprobs",
    "top_logprobs", "think", "prompt", "messages", "truncate", "shift",
})  # fmt: skip
RUNNER = frozenset({  # options of Ollama's runner, which are settings of this server
    "num_ctx", "num_batch", "num_gpu", "main_gpu", "num_thread", "num_keep", "use_mmap", "use_mlock",
    "low_vram", "f16_kv", "numa", "vocab_only", "logits_all", "embedding_only", "penalize_newline",
    "draft_num_predict",
})  # fmt: skip


def think_of(body: Mapping[str, Any]) -> Json:
    """The request field for `think`, which is true, false or a level; any level counts as true."""
    return {} if body.get("think") is None else {"enable_thinking": bool(body["think"])}


def message_of(message: object) -> object:
    """A message with its tool calls in OpenAI's form: with an id, and the arguments as text."""
    if isinstance(message, dict) and message.get("images"):
        raise RequestError("messages has images; this server takes only text", param="messages")
    if not isinstance(message, dict) or not isinstance(message.get("tool_calls"), list):
        return message
    return message | {"tool_calls": [_openai_call(i, call) for i, call in enumerate(message["tool_calls"])]}


def _openai_call(index: int, call: object) -> object:
    function = call.get("function") if isinstance(call, dict) else None
    if not isinstance(function, dict):
        raise wrong("messages", call, "a call: {function: {name, arguments}}")
    arguments = orjson.dumps(function.get("arguments", {})).decode()
    return {"id": f"call_{index}", "type": "function", "function": function | {"arguments": arguments}}


def request_of(
    body: Mapping[str, Any], about: ServerInfo, beginning: Json, stream: bool
) -> CompletionRequest:
    """Reads options, which are sampling fields, and format, which is a JSON schema or "json".

    beginning: the fields of the prompt or the messages.
    """
    options = body.get("options") or {}
    if not isinstance(options, dict):
        raise wrong("options", options, "an object")
    fields = {name: value for name, value in options.items() if name not in RUNNER}
    if fields.get("num_predict") == -2:  # until the context is full
        fields["num_predict"] = -1
    fields |= {name: value for name, value in body.items() if name not in READ_HERE} | beginning
    fields |= _format(body.get("format")) | _logprobs(body)
    return request_from(fields, about.defaults_of(N, MAX_TOKENS, stream=stream, sampling=SAMPLING))


def _format(value: object) -> Json:
    if value in (None, ""):
        return {}
    if value == "json":
        return {"json_schema": {"type": "object"}}
    if not isinstance(value, dict):
        raise wrong("format", value, '"json" or a JSON schema')
    return {"json_schema": value}


def _logprobs(body: Mapping[str, Any]) -> Json:
    if not switch(body, "logprobs", False):
        return {}
    return {"logprobs": whole("top_logprobs", body.get("top_logprobs") or 0, 0, MAX_LOGPROBS)}
