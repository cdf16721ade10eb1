"""OpenAI's responses: reads a body as a request, and what the answer repeats of it. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from llama_srb.dialects.openai.form import REPORTS, Form, form_of
from llama_srb.dialects.responses.answer import InputTokens
from llama_srb.dialects.responses.items import messages_of
from llama_srb.dialects.responses.tools import Tool, tools_of, whole_tool
from llama_srb.request.fields import CompletionRequest, Limit
from llama_srb.request.parse import Defaults, request_from
from llama_srb.request.values import INT32_MAX, MAX_WARNINGS, RequestError, shown, whole, wrong

Json: TypeAlias = dict[str, Any]

N, MAX_TOKENS = 1, -1  # OpenAI's defaults
MAX_TOP_LOGPROBS = 20  # OpenAI's limit
WITH_LOGPROBS = "message.output_text.logprobs"  # a value of include

TEXT, OBJECT = (str, "a text"), (dict, "an object")
LIST, SWITCH = (list, "a list"), (bool, "true or false")
KINDS: Mapping[str, tuple[type, str]] = {
    "instructions": TEXT, "text": OBJECT, "reasoning": OBJECT, "include": LIST, "metadata": OBJECT,
    "store": SWITCH, "background": SWITCH, "prompt_cache_key": TEXT, "safety_identifier": TEXT, "user": TEXT,
}  # fmt: skip
READ_HERE = frozenset({
    *KINDS, "input", "model", "stream", "stream_options", "tools", "tool_choice", "max_output_tokens",
    "max_tool_calls", "previous_response_id", "top_logprobs", "truncation", "service_tier",
    "prompt_cache_options", "prompt_cache_retention", "client_metadata", *REPORTS,
})  # fmt: skip
ELSEWHERE = {  # fields that need what is not here, or belong to other paths
    "conversation": "there are no conversations here: send previous_response_id, or the whole one as input",
    "prompt": "no prompts are stored here: send the text as instructions or input",
    "background": "no response goes on by itself here: read it on the request's own connection",
    "messages": "that belongs to /v1/chat/completions: here it is input",
}


@dataclass(frozen=True, slots=True)
class Asked:
    """A request as its answer needs it.

    limit: a longer prompt is truncated; None: it is refused. tools: by their names in the chat. store: the
    response is kept. repeated: fields of the answer that are those of the body.
    """

    form: Form
    limit: Limit | None
    tools: Mapping[str, Tool]
    store: bool
    repeated: Json

    @property
    def always_completes(self) -> bool:
        """llama-server's clients wait for response.completed, which also ends an answer that is cut off."""
        return self.form.has_timings or self.form.has_progress


def parse(
    body: Mapping[str, Any], defaults: Defaults, before: Sequence[Json] = (), *, keeps: bool = False
) -> tuple[CompletionRequest, Asked]:
    """Reads a body as a request and the form of its answer; RequestError if a field is wrong.

    before: the items of the responses that it goes on from. keeps: the server keeps it, if asked to.
    """
    form = form_of(body)
    _check(body)
    tools = tools_of(body.get("tools"))
    fields = {name: value for name, value in body.items() if name not in READ_HERE}
    fields |= {"messages": messages_of(body.get("instructions"), body.get("input"), before)}
    fields |= tools.chosen(body.get("tool_choice")) | _structure(body) | _reasoning(body) | _limits(body)
    request = request_from(fields, replace(defaults.of_one(), max_tokens=MAX_TOKENS, whole=not form.stream))
    if request.n != 1:
        message = f"n is {request.n}; it must be 1: a response is one answer, /v1/chat/completions gives n"
        raise RequestError(message, param="n")
    warnings = (*request.warnings, *tools.warnings)[:MAX_WARNINGS]
    store = keeps and body.get("store") is not False
    asked = Asked(form, _limit(body, form), tools.by_name, store, _repeated(body) | {"store": store})
    return request.model_copy(update={"warnings": warnings}), asked


def counted(tokens: int) -> InputTokens:
    """The answer of /v1/responses/input_tokens."""
    return {"object": "response.input_tokens", "input_tokens": tokens}


def _check(body: Mapping[str, Any]) -> None:
    for name, (kind, wanted) in KINDS.items():
        if body.get(name) is not None and not isinstance(body[name], kind):
            raise wrong(name, body[name], wanted)
    for name, instead in ELSEWHERE.items():
        if body.get(name) not in (None, False):
            raise RequestError(f"{name} is {shown(body[name])}, but {instead}", param=name)


def _structure(body: Mapping[str, Any]) -> Json:
    """The JSON schema that the text must fit, from text.format."""
    form = (body.get("text") or {}).get("format")
    if form is None:
        return {}
    kind = form.get("type") if isinstance(form, dict) else None
    if kind not in ("text", "json_object", "json_schema"):
        wanted = 'an object whose type is "text", "json_object" or "json_schema"'
        raise wrong("text.format", form, wanted)
    if kind == "text":
        return {}
    if body.get("json_schema") is not None:
        raise RequestError("only one of text.format and json_schema may be given", param="text.format")
    schema = form.get("schema") if kind == "json_schema" else {"type": "object"}
    if not isinstance(schema, dict):
        raise wrong("text.format.schema", schema, "a JSON schema")
    return {"json_schema": schema}


def _reasoning(body: Mapping[str, Any]) -> Json:
    given = body.get("reasoning") or {}
    for name in ("effort", "summary"):
        if not isinstance(given.get(name), str | None):
            raise wrong(f"reasoning.{name}", given[name], "a text")
    made = {} if given.get("effort") is None else {"reasoning_effort": given["effort"]}
    if (most := given.get("max_tokens")) is not None:
        made["thinking_budget_tokens"] = whole("reasoning.max_tokens", most, 0, INT32_MAX)
    return made


def _limits(body: Mapping[str, Any]) -> Json:
    """The limit of tokens, and the number of alternatives to each token."""
    made: Json = {}
    if (most := body.get("max_output_tokens")) is not None:
        made["max_tokens"] = whole("max_output_tokens", most, 1, INT32_MAX)
    top = whole("top_logprobs", body.get("top_logprobs") or 0, 0, MAX_TOP_LOGPROBS)
    if top or WITH_LOGPROBS in (body.get("include") or ()):
        made["logprobs"] = top
    return made


def _limit(body: Mapping[str, Any], form: Form) -> Limit | None:
    truncation = body.get("truncation")
    if truncation not in (None, "auto", "disabled"):
        raise wrong("truncation", truncation, '"auto" or "disabled"')
    return Limit("truncation") if truncation == "auto" else form.limit


def _repeated(body: Mapping[str, Any]) -> Json:
    reasoning = body.get("reasoning") or {}
    return {
        "background": False,
        "instructions": body.get("instructions"),
        "max_output_tokens": body.get("max_output_tokens"),
        "max_tool_calls": None,
        "metadata": body.get("metadata") or {},
        "parallel_tool_calls": body.get("parallel_tool_calls") is not False,
        "previous_response_id": body.get("previous_response_id"),
        "prompt_cache_key": body.get("prompt_cache_key"),
        "reasoning": {"effort": reasoning.get("effort"), "summary": reasoning.get("summary")},
        "safety_identifier": body.get("safety_identifier"),
        "service_tier": "default",
        "text": _text(body.get("text") or {}),
        "tool_choice": body.get("tool_choice") or "auto",
        "tools": [*map(whole_tool, body.get("tools") or ())],
        "top_logprobs": body.get("top_logprobs") or 0,
        "truncation": body.get("truncation") or "disabled",
        "user": body.get("user"),
    }


def _text(given: Json) -> Json:
    """The field text with a whole format: of a schema the answer has what the request left out, too."""
    form = given.get("format") or {"type": "text"}
    if form.get("type") == "json_schema":
        form = {"name": "", "description": None, **form, "strict": form.get("strict") is not False}
    return {**given, "format": form}
