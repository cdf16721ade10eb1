"""Ollama: /api/generate, /api/chat and what its clients ask beside them. Pure.

Lines of JSON. With n > 1 a line has `index`; `done` is true only in the last line of all, since clients stop
reading there, and a sequence that ended before it says so by `done_reason`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

import orjson

from llama_srb.dialects.common.fields import switch, text_of
from llama_srb.dialects.common.reply import (
    InfoEndpoint,
    Json,
    Reply,
    ServerInfo,
    Text,
    as_json,
    token_json,
    told,
)
from llama_srb.dialects.openai import can_infill, infill_prompt
from llama_srb.engine.events import Error, Event, Stop, Stream
from llama_srb.request.fields import CompletionRequest, limit_of
from llama_srb.request.parse import request_from
from llama_srb.request.values import MAX_LOGPROBS, RequestError, whole, wrong

N, MAX_TOKENS = 1, -1  # Ollama's defaults
SAMPLING = {"top_p": 0.9, "min_p": 0.0, "repeat_penalty": 1.1}  # where they differ from llama.cpp's
VERSION = "0.12.0"  # of Ollama: what clients check before they use a field
READ_HERE = frozenset({
    "model", "name", "stream", "raw", "system", "keep_alive", "suffix", "format", "options", "logprobs",
    "top_logprobs", "think", "prompt", "messages", "truncate", "shift",
})  # fmt: skip
RUNNER = frozenset({  # options of Ollama's runner, which are settings of this server
    "num_ctx", "num_batch", "num_gpu", "main_gpu", "num_thread", "num_keep", "use_mmap", "use_mlock",
    "low_vram", "f16_kv", "numa", "vocab_only", "logits_all", "embedding_only", "penalize_newline",
    "draft_num_predict",
})  # fmt: skip


def error_body(status: int, message: str, *, param: str | None = None, code: str | None = None) -> Json:
    """An error as Ollama writes it."""
    return {"error": message}


class Lines(Reply):
    """Of /api/generate."""

    content_type = "application/x-ndjson"
    pause = b""  # a line must be JSON
    loading = ""  # what was done, where nothing was to be said

    def __init__(self, body: Mapping[str, Any], about: ServerInfo, beginning: Json) -> None:
        model, stream = model_of(body, about), switch(body, "stream", True)
        super().__init__(_request(body, about, beginning, stream), about, stream=stream)
        self.limit = (
            limit_of(body.get("options") or {}, "num_ctx") if switch(body, "truncate", True) else None
        )
        self._head = {"model": model, "created_at": _time(about.now)}

    def render(self, events: Iterable[Event]) -> bytes:
        """A line for all of these, where there is one text: SillyTavern reads one object at a time."""
        lines = [data for event in events for data in self._messages(event)]
        together = len(lines) > 1 and all("response" in line for line in lines) and len(self.texts) == 1
        return b"".join(map(self.frame, [_together(lines)] if together else lines))

    def said(self, text: str, thought: str, calls: list[Json]) -> Json:
        """What a piece of text, or all of it, is called."""
        return {"response": text} | ({"thinking": thought} if thought else {})

    def piece(self, event: Stream) -> Iterator[Json]:
        if event.text or event.reasoning or event.tokens:
            said = self.said(event.text, event.reasoning, [])
            yield self._line(event.index, said) | self._logprobs(event.tokens) | {"done": False}

    def end(self, index: int, stop: Stop) -> Iterator[Json]:
        if calls := _calls(self.texts[index]):  # a call is told when it is whole
            yield self._line(index, self.said("", "", calls)) | {"done": False}
        yield self._line(index, self.said("", "", [])) | self._end(stop)

    def failure(self, error: Error) -> Json:
        return {"error": error.message}

    def frame(self, data: Json) -> bytes:
        return orjson.dumps(data, option=orjson.OPT_APPEND_NEWLINE)

    def body(self) -> Any:
        """The first text as Ollama has it; of n > 1 all are in choices."""
        texts = [
            self.said(one.text, "".join(one.thoughts), _calls(one))
            | self._logprobs(one.tokens)
            | {"done_reason": _reason(one.stop)}
            for one in map(self.texts.__getitem__, self.ordered)
        ]
        choices = [{"index": i} | one for i, one in enumerate(texts)]
        many = {"choices": choices} if len(choices) > 1 else {}
        first = self.texts[0].stop
        assert first is not None
        loaded = {"done_reason": self.loading} if self.loading else {}
        return self._head | texts[0] | self._end(first) | loaded | many

    def _line(self, index: int, said: Json) -> Json:
        named = {"index": index} if len(self.texts) > 1 else {}
        return self._head | said | named

    def _logprobs(self, tokens: Any) -> Json:
        made = [as_json(token_json(token)) for token in tokens]
        return {"logprobs": made} if made else {}

    def _end(self, stop: Stop) -> Json:
        ended = {"done": self.done is not None, "done_reason": _reason(stop)}
        if self.done is None:
            return ended
        ns = {name: round(1e6 * value) for name, value in self.done.timings.items()}
        return ended | {
            "total_duration": sum(ns.values()),
            "load_duration": ns.get("queued_ms", 0),
            "prompt_eval_count": self.done.prompt_tokens,
            "prompt_eval_duration": ns.get("prompt_ms", 0),
            "eval_count": self.done.completion_tokens,
            "eval_duration": ns.get("decode_ms", 0),
            **self.warned,
        }


class Messages(Lines):
    """Of /api/chat."""

    def said(self, text: str, thought: str, calls: list[Json]) -> Json:
        message: Json = {"role": "assistant", "content": text}
        message |= {"thinking": thought} if thought else {}
        return {"message": message | ({"tool_calls": calls} if calls else {})}


def _together(lines: list[Json]) -> Json:
    """Lines of one text as one."""
    whole: Json = {}
    for line in lines:
        for name in line.keys() & {"response", "thinking", "logprobs"}:
            whole[name] = whole[name] + line[name] if name in whole else line[name]
    return lines[-1] | whole


def _calls(text: Text) -> list[Json]:
    """Calls of tools, their arguments as an object."""
    return [
        {"function": {"name": call["name"], "arguments": _object_of(call["arguments"])}}
        for _, call in sorted(text.calls.items())
    ]


def _object_of(text: str) -> Any:
    """JSON; a call that was cut short has none."""
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        return {}


def _reason(stop: Stop | None) -> str:
    return "stop" if stop is not None and stop.finish_reason == "stop" else "length"


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat().replace("+00:00", "Z")


def generate(body: Mapping[str, Any], about: ServerInfo) -> Reply:
    """/api/generate."""
    model = model_of(body, about)
    prompt, suffix = text_of(body, "prompt", ""), text_of(body, "suffix", "")
    if not prompt and not suffix:
        return _loaded(Lines, body, about)
    if suffix:
        if not can_infill(about.infill):
            raise RequestError(f"{model} does not support insert", param="suffix")
        prompt = infill_prompt(about.infill, prompt, suffix)
    elif about.chat_template and not switch(body, "raw", False):
        system = text_of(body, "system", "")
        messages = [{"role": "system", "content": system}] * bool(system) + [
            {"role": "user", "content": prompt}
        ]
        return Lines(body, about, {"messages": messages} | _think(body))
    return Lines(body, about, {"prompt": prompt})


def chat(body: Mapping[str, Any], about: ServerInfo) -> Reply:
    """/api/chat."""
    messages = body.get("messages")
    if not isinstance(messages, list):
        raise wrong("messages", messages, "a list of messages")
    if not messages:
        return _loaded(Messages, body, about)
    return Messages(body, about, {"messages": list(map(_message, messages))} | _think(body))


def _loaded(kind: type[Lines], body: Mapping[str, Any], about: ServerInfo) -> Lines:
    """Who has nothing to say wants the model to be loaded, or not to be: here it is as long as the server."""
    named = {name: body[name] for name in ("model", "name") if name in body}
    reply = kind({**named, "stream": False}, about, {"prompt": "", "max_tokens": 0})
    reply.loading = "unload" if body.get("keep_alive") in (0, "0", "0s") else "load"
    return reply


def _think(body: Mapping[str, Any]) -> Json:
    """think is true, false, or how much."""
    return {} if body.get("think") is None else {"enable_thinking": bool(body["think"])}


def _message(message: object) -> object:
    """A message with its calls as OpenAI has them: with an id, and arguments as text."""
    if isinstance(message, dict) and message.get("images"):
        raise RequestError("messages has images: there are only texts here", param="messages")
    if not isinstance(message, dict) or not isinstance(message.get("tool_calls"), list):
        return message
    return message | {"tool_calls": [_openai_call(i, call) for i, call in enumerate(message["tool_calls"])]}


def _openai_call(index: int, call: object) -> object:
    function = call.get("function") if isinstance(call, dict) else None
    if not isinstance(function, dict):
        raise wrong("messages", call, "a call: {function: {name, arguments}}")
    arguments = orjson.dumps(function.get("arguments", {})).decode()
    return {"id": f"call_{index}", "type": "function", "function": function | {"arguments": arguments}}


def _request(body: Mapping[str, Any], about: ServerInfo, beginning: Json, stream: bool) -> CompletionRequest:
    """options are sampling fields; format is a schema, or any JSON."""
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


def model_of(body: Mapping[str, Any], about: ServerInfo) -> str:
    """The asked model, if it is ours; Ollama's names have a tag behind a colon."""
    name = text_of(body, "model", text_of(body, "name", about.model))
    if name and name.split(":")[0] not in about.names:
        raise RequestError(f"model {name[:100]!r} not found, only {about.model}", param="model", status=404)
    return name or about.model


# ----------------------------------------------------------------------------------------------------
# What generates nothing
# ----------------------------------------------------------------------------------------------------


def _details(about: ServerInfo) -> Json:
    return {
        "parent_model": "",
        "format": "gguf",
        "family": about.architecture,
        "families": [about.architecture],
        "parameter_size": _short(about.parameters),
        "quantization_level": about.quantisation,
    }


def _short(count: int) -> str:
    """4458752 as 4.46M."""
    for size, letter in ((10**9, "B"), (10**6, "M"), (10**3, "K")):
        if count >= size:
            return f"{count / size:.3g}{letter}"
    return str(count)


def _entry(about: ServerInfo) -> Json:
    """digest stands for the file without reading it."""
    name = f"{about.model}:latest"
    file = f"{about.path}|{about.size_bytes}|{about.modified}"
    return {
        "name": name,
        "model": name,
        "modified_at": _time(about.modified),
        "size": about.size_bytes,
        "digest": hashlib.sha256(file.encode()).hexdigest(),
        "details": _details(about),
    }


def _tags(about: ServerInfo) -> Json:
    return {"models": [_entry(about)]}


def _running(about: ServerInfo) -> Json:
    """Loaded it stays, so it expires in a day from now, whenever one asks."""
    more = {"expires_at": _time(about.now + 86400), "size_vram": 0, "context_length": about.context}
    return {"models": [_entry(about) | more]}


def _show(body: Json, result: Mapping[str, Any], about: ServerInfo) -> Json:
    model_of({"model": body.get("model") or body.get("name")}, about)
    return {
        "modelfile": f"FROM {about.model}",
        "parameters": "",
        "template": about.chat_template or "{{ .Prompt }}",
        "details": _details(about),
        "model_info": {
            "general.architecture": about.architecture,
            "general.parameter_count": about.parameters,
            f"{about.architecture}.context_length": about.context,
        },
        "capabilities": ["completion", *(["insert"] if can_infill(about.infill) else []), *_chats(about)],
        "modified_at": _time(about.modified),
    }


def _chats(about: ServerInfo) -> list[str]:
    """Whether the model's template knows tools is told by what it looks at."""
    return ["tools"] if "tools" in about.chat_template else []


QUESTIONS = {
    "/api/tags": told(_tags),
    "/api/ps": told(_running),
    "/api/show": InfoEndpoint(_show),
    "/api/version": told(lambda about: {"version": VERSION}),
}
REPLIES = {"/api/generate": generate, "/api/chat": chat}
