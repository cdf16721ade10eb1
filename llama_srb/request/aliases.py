"""Fields of other servers: which ones are converted to our fields, and which are ignored. No I/O here."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeAlias

from llama_srb.request import shapes
from llama_srb.request.shapes import tool_name
from llama_srb.request.steps import samplers
from llama_srb.request.values import RequestError, is_number, is_text, is_token, token_id, wrong

# Fields without a counterpart here → their neutral values. Other values are ignored with a warning.
UNSUPPORTED: dict[str, tuple[object, ...]] = {
    "bypass_eos": (False,),
    "add_bos_token": (True,),
    "add_special_tokens": (True,),
    "render_special": (False,),
    "spaces_between_special_tokens": (True,),
    "t_max_predict_ms": (-1, 0),
    "response_fields": ([],),
    "return_progress": (False,),
    "length_penalty": (1,),
    "use_beam_search": (False,),
    "early_stopping": (False,),
    "num_beams": (1,),
    "images": ([],),
    "template": ("",),
    "context": ([],),
}

# Fields without a counterpart, without which the text would be another one altogether → their neutral value,
# and why other values are refused.
REFUSED: dict[str, tuple[int, str]] = {
    "penalty_alpha": (
        0,
        "contrastive search is not done here: for each token it would compute k rows more, to compare the "
        "hidden states of the k likeliest tokens with those of the text, and undo all but one",
    ),
}

# Fields of other servers that do not affect the text: how a request runs, and for whom.
NON_SAMPLING_FIELDS = frozenset({
    "truncation_length", "max_context_length", "num_ctx", "n_ctx", "max_seq_len", "id_slot", "n_keep",
    "n_discard", "n_indent", "t_max_prompt_ms", "genkey", "priority", "request_id", "user",
    "trim_stop", "return_tokens", "timings_per_token", "sse_ping_interval", "keep_alive", "quiet", "api_type",
    "api_server", "auto_max_new_tokens", "replace_instruct_placeholders", "memory",
    "include_reasoning", "legacy_api", "max_tokens_second", "minimum_message_content_tokens",
})  # fmt: skip

Fields: TypeAlias = dict[str, Any]


def _convert_dynatemp(fields: Fields) -> None:
    """Converts a lowest and a highest temperature, as three other servers have them, to middle and range."""
    enabled = fields.pop("dynamic_temperature", True)
    for low_name, high_name in (
        ("dynatemp_low", "dynatemp_high"),
        ("min_temp", "max_temp"),
        ("dynatemp_min", "dynatemp_max"),
    ):
        low, high = fields.pop(low_name, None), fields.pop(high_name, None)
        for name, value in ((low_name, low), (high_name, high)):
            if value is not None and not (is_number(value) and 0 <= value <= 100):
                raise wrong(name, value, "a number between 0 and 100")
        if low is None or high is None or low == high or not enabled or fields.get("dynatemp_range"):
            continue
        if low > high:
            raise RequestError(f"{low_name} is {low}; it must be at most {high_name}, {high}", param=low_name)
        fields |= {"temperature": (low + high) / 2, "dynatemp_range": (high - low) / 2}
    if "temp_exponent" in fields:
        fields.setdefault("dynatemp_exponent", fields.pop("temp_exponent"))


def _ban(fields: Fields, name: str, banned: Iterable[object]) -> None:
    """Adds banned token ids to logit_bias, and banned texts to banned_strings."""
    items = list(banned)
    if not all(is_token(item) or is_text(item) for item in items):
        raise wrong(name, items, "a list of token ids or texts")
    ids = [(item, False) for item in items if not isinstance(item, str)]
    texts = [item for item in items if isinstance(item, str)]
    if ids:
        fields["logit_bias"] = (*_pairs(fields.get("logit_bias", ())), *ids)
    if texts:
        fields["banned_strings"] = [*_listed(fields.get("banned_strings", ())), *texts]


def _pairs(bias: object) -> tuple[object, ...]:
    pairs = shapes.logit_bias(bias)
    assert isinstance(pairs, tuple)
    return pairs


def _listed(value: object) -> list[object]:
    return list(value) if isinstance(value, list | tuple) else [value]


def _convert_bans(fields: Fields) -> None:
    """Converts banned_tokens (TabbyAPI: ids, koboldcpp: phrases) and custom_token_bans ("1,2" or [1, 2])."""
    if "banned_tokens" in fields:
        _ban(fields, "banned_tokens", _listed(fields.pop("banned_tokens")))
    if "custom_token_bans" in fields:
        bans = fields.pop("custom_token_bans")
        parts = (
            [part.strip() for part in bans.split(",") if part.strip()]
            if isinstance(bans, str)
            else _listed(bans)
        )
        ids = [token_id(part) for part in parts]
        if not all(map(is_token, ids)):
            raise wrong("custom_token_bans", bans, 'token ids: [1, 2] or "1,2"')
        _ban(fields, "custom_token_bans", ids)


# koboldcpp's numbers (gpttype_adapter.cpp); 2 includes min_p, and 5 the smoothing.
SAMPLER_ORDER: dict[int, tuple[str, ...]] = {
    0: ("top_k",), 1: ("top_a",), 2: ("top_p", "min_p"), 3: ("tfs",),
    4: ("typ_p", "epsilon_cutoff", "eta_cutoff"), 5: ("temperature", "smoothing"), 6: ("penalties",),
}  # fmt: skip


def _convert_sampler_order(fields: Fields) -> None:
    """Converts sampler_order (koboldcpp's numbers) and sampler_priority (text-generation-webui's names)."""
    order, priority = fields.pop("sampler_order", None), fields.pop("sampler_priority", None)
    if order is not None and "samplers" not in fields:
        if not isinstance(order, list) or not all(is_token(step) and step in SAMPLER_ORDER for step in order):
            raise wrong("sampler_order", order, "a list of numbers from 0 to 6")
        fields["samplers"] = (
            "encoder_repetition_penalty",
            "no_repeat_ngram",
            "dry",
            "top_n_sigma",
            *(name for step in order for name in SAMPLER_ORDER[step]),
            "xtc",
        )
    elif priority is not None and "samplers" not in fields:
        steps = priority.split() if isinstance(priority, str) else _listed(priority)
        fields["samplers"] = tuple(dict.fromkeys(samplers(steps)))


def _convert_no_logprobs(fields: Fields) -> None:
    """Removes n_probs 0 (llama.cpp) and logprobs false (koboldcpp), which mean none; logprobs 0 does not."""
    if fields.get("n_probs") == 0 and fields["n_probs"] is not False:
        del fields["n_probs"]
    if fields.get("logprobs") is False:
        del fields["logprobs"]


def _convert_formats(fields: Fields) -> None:
    """Converts response_format (OpenAI) and structured_outputs (vLLM) to our fields, such as json_schema."""
    form = fields.pop("response_format", None)
    if form is not None:
        kind = form.get("type") if isinstance(form, dict) else None
        if kind not in ("text", "json_object", "json_schema", "structural_tag"):
            wanted = 'an object whose type is "text", "json_object", "json_schema" or "structural_tag"'
            raise wrong("response_format", form, wanted)
        if kind == "structural_tag":
            _add_structure(fields, "response_format", kind, form)
        elif kind != "text":
            _add_structure(fields, "response_format", "json_schema", _schema_of(form))
    for name, value in _structured_outputs(fields.pop("structured_outputs", None)):
        _add_structure(fields, "structured_outputs", name, value)


def _schema_of(form: Fields) -> object:
    """The schema, from json_schema.schema (OpenAI) or from schema (llama.cpp)."""
    if form["type"] == "json_object" and form.get("schema") is None:
        return {"type": "object"}
    named = form.get("json_schema")
    schema = named.get("schema") if isinstance(named, dict) else form.get("schema")
    if schema is None:
        raise RequestError("response_format.json_schema.schema is missing", param="response_format")
    return schema


_OUTPUTS = {
    "json": "json_schema", "regex": "regex", "choice": "choice", "grammar": "grammar",
    "structural_tag": "structural_tag",
}  # fmt: skip


def _structured_outputs(given: object) -> list[tuple[str, object]]:
    if given is not None and not isinstance(given, dict):
        raise wrong("structured_outputs", given, "an object: " + ", ".join(_OUTPUTS))
    return [(ours, given[name]) for name, ours in _OUTPUTS.items() if given and given.get(name) is not None]


def _add_structure(fields: Fields, source: str, name: str, value: object) -> None:
    if fields.get(name) is not None:
        raise RequestError(f"only one of {source} and {name} may be given", param=source)
    fields[name] = value


def _convert_tool_choice(fields: Fields) -> None:
    """Converts a tool_choice that names a function: only this tool is kept, and the choice is `required`."""
    choice = fields.get("tool_choice")
    if not isinstance(choice, dict):
        return
    name, tools = tool_name(choice), fields.get("tools")
    named = [tool for tool in tools if tool_name(tool) == name] if isinstance(tools, list) and name else []
    if not named:
        raise wrong("tool_choice", choice, '"auto", "none", "required" or one of tools by its name')
    fields |= {"tools": named, "tool_choice": "required"}


def _convert_reasoning_effort(fields: Fields) -> None:
    """Converts OpenAI's field: `none` to enable_thinking false, others to a variable of the template."""
    effort, kwargs = fields.pop("reasoning_effort", None), fields.get("chat_template_kwargs", {})
    if effort is None:
        return
    if not isinstance(effort, str):
        raise wrong("reasoning_effort", effort, "a text")
    if effort == "none":
        fields.setdefault("enable_thinking", False)
    elif isinstance(kwargs, dict):
        fields["chat_template_kwargs"] = {"reasoning_effort": effort, **kwargs}


def _convert_reasoning(fields: Fields) -> None:
    """Converts OpenRouter's reasoning: {max_tokens, effort, enabled}."""
    given = fields.get("reasoning")
    if not isinstance(given, dict):
        return
    del fields["reasoning"]
    for name, own in (
        ("max_tokens", "thinking_budget_tokens"),
        ("effort", "reasoning_effort"),
        ("enabled", "enable_thinking"),
    ):
        if given.get(name) is not None:
            fields.setdefault(own, given[name])


def _convert_last_message(fields: Fields) -> None:
    """Continues a last message of the assistant, as llama-server does, unless the body says otherwise."""
    messages = fields.get("messages")
    last = messages[-1] if isinstance(messages, list) and messages else None
    if not isinstance(last, dict) or last.get("role") != "assistant":
        return
    begun = last.get("content") and not last.get("tool_calls") and fields.get("continue") is None
    if begun and not fields.keys() & {"continue_final_message", "add_generation_prompt"}:
        fields["continue_final_message"] = True


def _convert_probs_mode(fields: Fields) -> None:
    """Converts llama.cpp's post_sampling_probs to logprobs_mode."""
    processed = fields.pop("post_sampling_probs", None)
    if processed is not None and not isinstance(processed, bool):
        raise wrong("post_sampling_probs", processed, "true or false")
    if processed:
        fields.setdefault("logprobs_mode", "processed")


CONVERSIONS: tuple[Callable[[Fields], None], ...] = (
    _convert_dynatemp, _convert_bans, _convert_sampler_order, _convert_no_logprobs, _convert_probs_mode,
    _convert_formats,
    _convert_tool_choice, _convert_reasoning, _convert_reasoning_effort, _convert_last_message,
)  # fmt: skip
# fmt: off
CONVERTED = {  # the fields that CONVERSIONS read → what they become, for the documentation
    "dynatemp_low": "with dynatemp_high: temperature is their middle, dynatemp_range half their difference",
    "dynatemp_high": "see dynatemp_low",
    "dynatemp_min": "with dynatemp_max: the same",
    "dynatemp_max": "see dynatemp_min",
    "min_temp": "with max_temp: the same",
    "max_temp": "see min_temp",
    "dynamic_temperature": "false: the pairs above are not used",
    "temp_exponent": "dynatemp_exponent",
    "banned_tokens": "token ids: logit_bias false; texts: banned_strings",
    "custom_token_bans": 'token ids, as [1, 2] or "1,2": logit_bias false',
    "sampler_order": "koboldcpp's numbers 0 to 6: samplers",
    "sampler_priority": "text-generation-webui's names: samplers",
    "post_sampling_probs": "true: logprobs_mode processed",
    "response_format": 'json_schema: {"type": "json_object"} becomes the schema of any object, '
    '{"type": "json_schema", "json_schema": {"schema": …}} the given schema, {"type": "text"} none; '
    '{"type": "structural_tag", …} is structural_tag',
    "reasoning_effort": "none: enable_thinking false; else in chat_template_kwargs",
    "reasoning": "of a chat, {max_tokens, effort, enabled}: thinking_budget_tokens, reasoning_effort, "
    "enable_thinking",
    "structured_outputs": "vLLM's json, regex, choice, grammar, structural_tag: json_schema, regex, choice, "
    "grammar, structural_tag",
    "preset": "the fields of this preset (/v1/presets); fields in the body replace them",
}
# fmt: on
