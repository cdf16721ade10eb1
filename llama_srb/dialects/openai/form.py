"""OpenAI's completions: reads a body as a request and the form of its answer. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from llama_srb.dialects.common.infill import can_infill, infill_prompt
from llama_srb.request.fields import CompletionRequest, Limit, limit_of
from llama_srb.request.parse import Defaults, request_from
from llama_srb.request.values import MAX_PROMPTS, RequestError, wrong

N, MAX_TOKENS = 1, 16  # OpenAI's defaults
REPORTS = frozenset({"timings_per_token", "return_progress", "verbose"})  # of llama-server
READ_HERE = frozenset({"stream", "stream_options", "model", "user", "suffix"}) | REPORTS
NO_INFILL = "suffix is not used: the model has no infill tokens"


@dataclass(frozen=True, slots=True)
class Form:
    """The form of the answer.

    limit: text-generation-webui's clients want a longer prompt to be truncated; without it, it is refused.
    has_timings, has_progress, is_verbose: what llama-server's clients ask for; has_running_usage: vLLM's.
    """

    stream: bool = False
    include_usage: bool = False
    limit: Limit | None = None
    has_running_usage: bool = False
    has_timings: bool = False
    has_progress: bool = False
    is_verbose: bool | None = None

    @property
    def reports(self) -> bool:
        """Whether the answer has any of them."""
        return self.has_running_usage or self.is_of_llama_server

    @property
    def is_of_llama_server(self) -> bool:
        """Whether the body asks for what only llama-server's clients ask for."""
        return self.has_timings or self.has_progress or bool(self.is_verbose)

    def verbose_by_default(self, value: bool) -> Form:
        """With `verbose` as llama-server's -v has it, unless the body says more."""
        return replace(self, is_verbose=value) if self.is_verbose is None else self


def parse(
    body: Mapping[str, Any], defaults: Defaults, infill: Mapping[str, str] = {}
) -> tuple[CompletionRequest, Form]:
    """Reads a body with one prompt as a request and the form of its answer; RequestError if a field is wrong.

    infill: the model's infill tokens, if it has any.
    """
    form = form_of(body)
    if body.get("messages") is not None:
        raise RequestError("messages belongs to /v1/chat/completions or the event stream", param="messages")
    ours = replace(defaults, n=N, max_tokens=MAX_TOKENS, whole=not form.stream)
    body = _with_suffix(body, infill)
    request = request_from(body, ours, known=READ_HERE)
    refuse_prompt_logprobs(request, form)
    if body.get("suffix"):
        request = request.model_copy(update={"warnings": (*request.warnings, NO_INFILL)})
    return request, form


def refuse_prompt_logprobs(request: CompletionRequest, form: Form) -> None:
    """RequestError if they are wanted in a stream, whose chunks have no place for them, as in vLLM."""
    if form.stream and request.prompt_logprobs is not None:
        message = "prompt_logprobs is given with stream; it is possible in a body, or in the event stream"
        raise RequestError(message, param="prompt_logprobs")


def prompts(body: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """One body for each prompt, since OpenAI's clients may send a list of prompts."""
    many = body.get("prompt")
    if not isinstance(many, list) or not many or not isinstance(many[0], str | list):
        return [body]
    if len(many) > MAX_PROMPTS:
        raise RequestError(f"prompt has {len(many)} prompts; it may have {MAX_PROMPTS}", param="prompt")
    return [{**body, "prompt": one} for one in many]


def _with_suffix(body: Mapping[str, Any], infill: Mapping[str, str]) -> Mapping[str, Any]:
    """A body with a suffix gets an infill prompt instead, if the model has infill tokens."""
    prompt, suffix = body.get("prompt"), body.get("suffix")
    if not isinstance(suffix, str | None):
        raise wrong("suffix", suffix, "a text")
    if not suffix or not can_infill(infill) or not isinstance(prompt, str):
        return body
    return {**body, "prompt": infill_prompt(infill, prompt, suffix), "suffix": None}


def form_of(body: Mapping[str, Any]) -> Form:
    model, options = body.get("model"), body.get("stream_options")
    if model is not None and not isinstance(model, str):
        raise wrong("model", model, "a text")
    if options is not None and not isinstance(options, dict):
        raise wrong("stream_options", options, "an object")
    usage, running = (
        _switch(options or {}, name, f"stream_options.{name}")
        for name in ("include_usage", "continuous_usage_stats")
    )
    limit = limit_of(body, "truncation_length")
    return Form(
        stream=_switch(body, "stream", "stream"),
        include_usage=usage,
        has_running_usage=usage and running,
        limit=limit if limit.tokens else None,
        has_timings=_switch(body, "timings_per_token", "timings_per_token"),
        has_progress=_switch(body, "return_progress", "return_progress"),
        is_verbose=None if body.get("verbose") is None else _switch(body, "verbose", "verbose"),
    )


def _switch(fields: Mapping[str, Any], name: str, param: str) -> bool:
    value = fields.get(name)
    if value is not None and not isinstance(value, bool):
        raise wrong(param, value, "true or false")
    return bool(value)
