"""Requests as writing tools send them, field by field, and readers that take answers as these tools do.

Of programs that cannot run here: SillyTavern, KoboldAI Lite, Obsidian Loom. Values are their defaults.
"""

from __future__ import annotations

import json
import re
from typing import Any

ONCE = "Once upon a time,"

SILLY_TAVERN: dict[str, Any] = {  # text completion, the fields of every type
    "prompt": ONCE, "model": "storyteller", "max_new_tokens": 8, "max_tokens": 8, "logprobs": None,
    "temperature": 0.7, "top_p": 0.5, "typical_p": 1, "typical": 1, "sampler_seed": 7, "min_p": 0,
    "repetition_penalty": 1.2, "frequency_penalty": 0, "presence_penalty": 0, "top_k": 40, "skew": 0,
    "min_length": 0, "minimum_message_content_tokens": 0, "min_tokens": 0, "num_beams": 1,
    "length_penalty": 1, "early_stopping": False, "add_bos_token": True, "smoothing_factor": 0,
    "smoothing_curve": 1, "dry_allowed_length": 2, "dry_multiplier": 0, "dry_base": 1.75,
    "dry_sequence_breakers": '["\\n", ":", "\\"", "*"]', "dry_penalty_last_n": 0, "max_tokens_second": 0,
    "stopping_strings": ["\nUser:"], "stop": ["\nUser:"], "truncation_length": 512, "ban_eos_token": False,
    "skip_special_tokens": True, "include_reasoning": True, "top_a": 0, "tfs": 1, "mirostat_mode": 0,
    "mirostat_tau": 5, "mirostat_eta": 0.1, "custom_token_bans": "", "banned_strings": [],
    "api_server": "http://127.0.0.1:9090/", "sampler_order": [6, 0, 1, 3, 4, 2, 5],
    "xtc_threshold": 0.1, "xtc_probability": 0, "nsigma": 0, "top_n_sigma": 0, "min_keep": 0,
    "adaptive_target": -0.01, "adaptive_decay": 0.9, "rep_pen": 1.2, "rep_pen_range": 0,
    "repetition_penalty_range": 0, "stream": True,
}  # fmt: skip
LLAMACPP: dict[str, Any] = {
    "api_type": "llamacpp", "n": 3, "n_predict": 8, "num_predict": 8, "repeat_penalty": 1.2, "tfs_z": 1,
    "repeat_last_n": 0, "n_probs": 0, "mirostat": 0, "ignore_eos": False, "cache_prompt": True, "seed": 7,
    "samplers": ["penalties", "dry", "top_n_sigma", "top_k", "typ_p", "tfs_z", "typical_p", "top_p", "min_p",
                 "xtc", "adaptive_p", "temperature"],
    "logit_bias": [[417, -1.5], [259, False]], "grammar": None, "json_schema": None,
}  # fmt: skip
OOBA: dict[str, Any] = {
    "api_type": "ooba", "encoder_repetition_penalty": 1, "no_repeat_ngram_size": 0, "penalty_alpha": 0,
    "temperature_last": True, "do_sample": True, "seed": 7, "guidance_scale": 1, "negative_prompt": "",
    "epsilon_cutoff": 0, "eta_cutoff": 0, "grammar_string": "", "dynamic_temperature": False,
    "dynatemp_low": 1, "dynatemp_high": 1, "dynatemp_exponent": 1,
    "sampler_priority": ["repetition_penalty", "presence_penalty", "frequency_penalty", "dry",
                         "dynamic_temperature", "top_p", "top_k", "typical_p", "epsilon_cutoff", "eta_cutoff",
                         "tfs", "top_a", "min_p", "mirostat", "quadratic_sampling", "temperature", "xtc",
                         "encoder_repetition_penalty", "no_repeat_ngram"],
}  # fmt: skip
TABBY: dict[str, Any] = {"api_type": "tabby", "n": 3, "speculative_ngram": False}
GENERIC = (
    "model", "prompt", "stream", "temperature", "top_p", "frequency_penalty", "presence_penalty", "stop",
    "seed", "logit_bias", "logprobs", "max_tokens", "n", "best_of",
)  # fmt: skip

KOBOLD_LITE: dict[str, Any] = {
    "n": 1, "max_context_length": 768, "max_length": 8, "rep_pen": 1.05, "temperature": 0.75, "top_p": 0.92,
    "top_k": 100, "top_a": 0, "typical": 1, "tfs": 1, "rep_pen_range": 360, "rep_pen_slope": 0.7,
    "sampler_order": [6, 0, 1, 3, 4, 2, 5], "memory": "A tale.\n", "trim_stop": True, "genkey": "KCPP7000",
    "min_p": 0, "dynatemp_range": 0, "dynatemp_exponent": 1, "smoothing_factor": 0, "nsigma": 0,
    "banned_tokens": [], "render_special": False, "logprobs": False, "replace_instruct_placeholders": True,
    "presence_penalty": 0, "logit_bias": {}, "stop_sequence": ["\nYou "], "use_default_badwordsids": False,
    "bypass_eos": False, "quiet": True, "prompt": ONCE,
}  # fmt: skip

LOOM: dict[str, Any] = {
    "model": "storyteller", "prompt": ONCE, "max_tokens": 8, "n": 5, "temperature": 1, "top_p": 1,
    "best_of": 5, "frequency_penalty": 0, "presence_penalty": 0,
}  # fmt: skip


def silly_tavern(kind: dict[str, Any], **fields: Any) -> dict[str, Any]:
    """The request of one of SillyTavern's types."""
    return SILLY_TAVERN | kind | fields


def _appended(fields: dict[str, Any], name: str) -> str:
    """What JavaScript's += appends: an absent field reads undefined."""
    value = fields.get(name, "undefined")
    return "null" if value is None else str(value)


def read_as_silly_tavern(data: bytes) -> list[str]:
    """The text and its swipes: the first choice of each frame, else content by a top-level index."""
    texts: dict[int, str] = {0: ""}
    for frame in data.decode().split("\n\n"):
        payload = "\n".join(line[6:] for line in frame.split("\n") if line.startswith("data: "))
        if payload == "[DONE]":
            break
        if not payload:
            continue
        one = json.loads(payload)
        choice = (one.get("choices") or [{}])[0]
        if index := choice.get("index", 0):
            texts[index] = texts.get(index, "") + _appended(choice, "text")
        elif index := one.get("index", 0):
            texts[index] = texts.get(index, "") + _appended(one, "content")
        else:
            texts[0] += choice.get("text") or one.get("content") or ""
    return [texts[index] for index in sorted(texts)]


LITE_EVENT = re.compile(r"^event: (.*)\ndata: (.*)(\r?\n){2}")


def read_as_kobold_lite(data: bytes) -> tuple[str, str | None]:
    """The text and why it ended: events one after the other from the beginning of the buffer."""
    rest, text, reason = data.decode(), "", None
    while found := LITE_EVENT.match(rest):
        rest = rest[found.end() :]
        if found[1] == "message":
            message = json.loads(found[2])
            text, reason = text + message["token"], message["finish_reason"] or reason
    assert rest == "", "nothing that the reader does not know"
    return text, reason
