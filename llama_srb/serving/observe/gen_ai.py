"""A request and its result as attributes of a span, by OpenTelemetry's conventions for generative AI. Pure.

The names are those of the conventions' version VERSION.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

import orjson

from llama_srb.engine.events import Done
from llama_srb.request.fields import NO_SEEDS, CompletionRequest

Attributes: TypeAlias = dict[str, str | int | float | list[str]]

VERSION = "1.41.0"
SCHEMA_URL = f"https://opentelemetry.io/schemas/{VERSION}"
PROVIDER = "llama_srb"  # the conventions have no name for llama.cpp

OPERATION_NAME = "gen_ai.operation.name"
PROVIDER_NAME = "gen_ai.provider.name"
REQUEST_MODEL = "gen_ai.request.model"
REQUEST_CHOICE_COUNT = "gen_ai.request.choice.count"
REQUEST_MAX_TOKENS = "gen_ai.request.max_tokens"
REQUEST_STOP_SEQUENCES = "gen_ai.request.stop_sequences"
RESPONSE_ID = "gen_ai.response.id"
RESPONSE_MODEL = "gen_ai.response.model"
RESPONSE_FINISH_REASONS = "gen_ai.response.finish_reasons"
USAGE_INPUT_TOKENS = "gen_ai.usage.input_tokens"
USAGE_CACHE_READ_INPUT_TOKENS = "gen_ai.usage.cache_read.input_tokens"
USAGE_OUTPUT_TOKENS = "gen_ai.usage.output_tokens"
INPUT_MESSAGES = "gen_ai.input.messages"
OUTPUT_MESSAGES = "gen_ai.output.messages"
SAMPLING = {
    "temperature": ("gen_ai.request.temperature", float),
    "top_p": ("gen_ai.request.top_p", float),
    "top_k": ("gen_ai.request.top_k", float),
    "frequency_penalty": ("gen_ai.request.frequency_penalty", float),
    "presence_penalty": ("gen_ai.request.presence_penalty", float),
    "seed": ("gen_ai.request.seed", int),
}
EMBEDDINGS = "embeddings"
TEXTS = frozenset({REQUEST_STOP_SEQUENCES, INPUT_MESSAGES, OUTPUT_MESSAGES})
"""The attributes that may have a client's text or a model's."""


def of_operation(operation: str, model: str) -> Attributes:
    return {OPERATION_NAME: operation, PROVIDER_NAME: PROVIDER, REQUEST_MODEL: model, RESPONSE_MODEL: model}


def of_request(request: CompletionRequest, model: str) -> Attributes:
    """The attributes of a generation, without texts; of the settings only those that are given."""
    found = of_operation("text_completion" if request.messages is None else "chat", model)
    found[REQUEST_CHOICE_COUNT] = request.n
    if request.max_tokens >= 0:
        found[REQUEST_MAX_TOKENS] = request.max_tokens
    for field in SAMPLING.keys() & request.sampling.model_fields_set:
        name, kind = SAMPLING[field]
        value = getattr(request.sampling, field)
        if field != "seed" or value not in NO_SEEDS:
            found[name] = kind(value)
    return found


def texts_of_request(request: CompletionRequest, most: int) -> Attributes:
    """The texts of a request. most: characters of each."""
    given = request.prompt_fields()
    prompt = given.get("prompt", "")
    text = prompt if isinstance(prompt, str) else "".join(part["text"] for part in prompt)
    messages = [{"role": "user", "content": text}]
    if request.messages is not None:
        messages = orjson.loads(request.messages)
    found: Attributes = {INPUT_MESSAGES: _messages(_input(one, most) for one in messages)}
    if request.stop:
        found[REQUEST_STOP_SEQUENCES] = [text[:most] for text in request.stop]
    return found


def texts_of_result(texts: Iterable[str]) -> Attributes:
    return {OUTPUT_MESSAGES: _messages(_message("assistant", text) for text in texts)}


def of_result(done: Iterable[Done]) -> Attributes:
    """What the generations of one request have cost together."""
    all_of = list(done)
    return {
        USAGE_INPUT_TOKENS: sum(one.prompt_tokens for one in all_of),
        USAGE_CACHE_READ_INPUT_TOKENS: sum(one.cached_tokens for one in all_of),
        USAGE_OUTPUT_TOKENS: sum(one.completion_tokens for one in all_of),
    }


def _input(message: Mapping[str, Any], most: int) -> dict[str, Any]:
    content = message.get("content") or ""
    text = content if isinstance(content, str) else orjson.dumps(content).decode()
    return _message(str(message.get("role", "user")), text[:most])


def _message(role: str, text: str) -> dict[str, Any]:
    return {"role": role, "parts": [{"type": "text", "content": text}]}


def _messages(messages: Iterable[dict[str, Any]]) -> str:
    return orjson.dumps(list(messages)).decode()
