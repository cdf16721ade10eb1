"""Anthropic's messages: reads a body as a request. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from llama_srb.dialects.anthropic.answer import NO_THREADS
from llama_srb.dialects.anthropic.conversation import choice_of, messages_of, tools_of
from llama_srb.dialects.common.fields import text_of
from llama_srb.dialects.common.reply import Json, ServerInfo
from llama_srb.request.fields import CompletionRequest
from llama_srb.request.parse import request_from
from llama_srb.request.shapes import texts
from llama_srb.request.values import INT32_MAX, MAX_WARNINGS, RequestError, shown, whole, wrong

N, MAX_TOKENS = 1, -1  # without max_tokens, which Anthropic requires, a message ends by itself
CONVERTED = frozenset({
    "model", "stream", "system", "messages", "tools", "tool_choice", "stop_sequences", "thinking",
    "output_config", "output_format", "context_management",
})  # fmt: skip
NO_EFFECT = frozenset({  # they say for whom a request runs, at which price, and what Anthropic caches
    "metadata", "cache_control", "service_tier", "inference_geo", "speed", "betas", "user_profile_id",
    "workspace_id", "billing_policy", "diagnostics", "fallbacks", "fallback_credit_token",
})  # fmt: skip
ELSEWHERE = {  # what only Anthropic's servers do
    "thread": "stores no conversations: send all messages",
    "compaction": "writes no summaries of conversations",
    "mcp_servers": "calls no tools itself",
    "container": "runs no code",
}
THINKING = ("enabled", "adaptive", "between_tools", "disabled")
KEEPS_ALL = {"type": "clear_thinking_20251015", "keep": "all"}


def request_of(body: Mapping[str, Any], about: ServerInfo, *, stream: bool) -> CompletionRequest:
    """Reads a body; RequestError names a field that is wrong, or that this server cannot obey."""
    text_of(body, "model", "")
    for name, why in ELSEWHERE.items():
        if body.get(name) not in (None, []):
            code = NO_THREADS if name == "thread" else None
            raise RequestError(f"{name} is {shown(body[name])}; this server {why}", param=name, code=code)
    warnings = [*_unmet_warnings(body), *_edit_warnings(body.get("context_management"))]
    read = CONVERTED | NO_EFFECT | ELSEWHERE.keys()
    fields = {name: value for name, value in body.items() if name not in read}
    fields |= chat_of(body) | _thinking(body.get("thinking")) | _output(body)
    if body.get("stop_sequences") is not None:
        fields["stop"] = texts("stop_sequences")(body["stop_sequences"])
    request = request_from(fields, about.defaults_of(N, MAX_TOKENS, stream=stream).of_one())
    if request.n > 1:
        message = f"n is {request.n}; it must be 1: an answer is one message. /v1/chat/completions has n"
        raise RequestError(message, param="n")
    warned = (*request.warnings, *warnings)[:MAX_WARNINGS]
    return request.model_copy(update={"warnings": warned})


def chat_of(body: Mapping[str, Any]) -> Json:
    """The request fields of the conversation and its tools."""
    tools = tools_of(body.get("tools"))
    chat: Json = {"messages": messages_of(body.get("system"), body.get("messages"))}
    return chat | ({"tools": tools} if tools else {}) | choice_of(body.get("tool_choice"), tools)


def object_of(body: Mapping[str, Any], name: str) -> Json:
    value = body.get(name)
    if value is not None and not isinstance(value, dict):
        raise wrong(name, value, "an object")
    return value or {}


def _thinking(value: object) -> Json:
    """The request field of thinking; without it the model thinks if its template says so."""
    if value is None:
        return {}
    kind = value.get("type") if isinstance(value, dict) else None
    if not isinstance(value, dict) or kind not in THINKING:
        raise wrong("thinking", value, "an object whose type is " + " or ".join(THINKING))
    fields: Json = {"enable_thinking": kind != "disabled"}
    if (budget := value.get("budget_tokens")) is not None:
        fields["thinking_budget_tokens"] = whole("thinking.budget_tokens", budget, 0, INT32_MAX)
    return fields


def _unmet_warnings(body: Mapping[str, Any]) -> list[str]:
    """A limit of tokens that this server does not have, and thinking that it does not hide."""
    warnings = []
    if (budget := object_of(body, "output_config").get("task_budget")) is not None:
        name = "output_config.task_budget"
        warnings.append(f"{name} is {shown(budget)}, but there is no such limit here; it is not used")
    if object_of(body, "thinking").get("display") == "omitted":
        warnings.append("thinking.display is omitted, but this server shows all thinking")
    return warnings


def _edit_warnings(value: object) -> list[str]:
    """Edits of the conversation, which this server leaves as it is."""
    edits = value.get("edits") if isinstance(value, dict) else value
    if not isinstance(edits, list | None):
        raise wrong("context_management", value, "an object with a list of edits")
    return [
        f"context_management.edits[{i}] is {shown(edit)}, but this server edits no messages; it is not used"
        for i, edit in enumerate(edits or ())
        if edit != KEEPS_ALL
    ]


def _output(body: Mapping[str, Any]) -> Json:
    """The request fields of output_config: a JSON schema, and how much effort the template asks for."""
    config = object_of(body, "output_config")
    form, effort = config.get("format") or body.get("output_format"), config.get("effort")
    made: Json = {}
    if form is not None:
        schema = form.get("schema") if isinstance(form, dict) and form.get("type") == "json_schema" else None
        if not isinstance(schema, dict):
            raise wrong(
                "output_config.format", form, 'an object {type: "json_schema", schema}', "output_config"
            )
        made["json_schema"] = schema
    if effort is not None:
        if not isinstance(effort, str):
            raise wrong("output_config.effort", effort, "a text", "output_config")
        made["reasoning_effort"] = effort
    return made
