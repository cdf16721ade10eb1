"""Mistral's `/v1/fim/completions`: the text between a prompt and a suffix, answered as a chat is. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from llama_srb.dialects.common.fields import text_of
from llama_srb.dialects.common.infill import can_infill, infill_prompt
from llama_srb.dialects.openai import Form
from llama_srb.dialects.openai.form import form_of
from llama_srb.request.fields import CompletionRequest
from llama_srb.request.parse import Defaults, request_from
from llama_srb.request.values import RequestError

N, MAX_TOKENS = 1, -1  # Mistral's defaults
READ_HERE = frozenset({
    "stream", "stream_options", "model", "user", "suffix", "random_seed", "metadata", "prompt_cache_key",
})  # fmt: skip


def parse(
    body: Mapping[str, Any], defaults: Defaults, infill: Mapping[str, str]
) -> tuple[CompletionRequest, Form]:
    """Reads a body as a request and the form of its answer; RequestError if a field is wrong.

    infill: the model's infill tokens, which a suffix needs.
    """
    form = form_of(body)
    prompt, suffix = text_of(body, "prompt"), text_of(body, "suffix", "")
    if suffix and not can_infill(infill):
        raise RequestError("suffix needs a model with infill tokens, and this one has none", param="suffix")
    fields = {"seed": body.get("random_seed"), **body}
    fields["prompt"] = infill_prompt(infill, prompt, suffix) if suffix else prompt
    ours = replace(defaults, n=N, max_tokens=MAX_TOKENS, whole=not form.stream)
    return request_from(fields, ours, known=READ_HERE), form
