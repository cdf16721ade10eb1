"""Exact requests of writing tools, and functions that read answers as these tools do.

The tools are programs, not libraries: KoboldAI Lite 27eb1dc, Obsidian Loom, mikupad. Values are their
defaults; for mikupad the names are its own for each API, with values chosen here.
"""

from __future__ import annotations

import json
import re
from typing import Any

ONCE = "Once upon a time,"

KOBOLD_LITE: dict[str, Any] = {
    "n": 1, "max_context_length": 1024, "max_length": 8, "rep_pen": 1.05, "temperature": 0.75, "top_p": 0.92,
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


_MIKUPAD: dict[str, Any] = {
    "prompt": ONCE, "n_ctx": 8192, "n_predict": 6, "temperature": 0.7, "dynatemp_range": 0, "top_k": 40,
    "top_p": 0.95, "min_p": 0, "typical_p": 1, "tfs_z": 1, "repeat_penalty": 1.1, "repeat_last_n": 256,
    "mirostat": 0, "mirostat_tau": 5, "mirostat_eta": 0.1, "ignore_eos": False, "n_probs": 10, "stop": [],
    "stream": True,
}  # fmt: skip


def _renamed(**names: str) -> dict[str, Any]:
    return {names.get(name, name): value for name, value in _MIKUPAD.items()}


MIKUPAD: dict[str, dict[str, Any]] = {  # by path, one for each type of API
    "/completion": _MIKUPAD | {"cache_prompt": True, "post_sampling_probs": True},
    "/api/extra/generate/stream": _renamed(
        n_ctx="max_context_length", n_predict="max_length", n_probs="logprobs", repeat_penalty="rep_pen",
        repeat_last_n="rep_pen_range", tfs_z="tfs", typical_p="typical", stop="stop_sequence",
        ignore_eos="use_default_badwordsids",
    ),
    "/v1/completions": _renamed(
        n_ctx="max_context_length", n_predict="max_tokens", n_probs="logprobs",
        repeat_penalty="repetition_penalty", repeat_last_n="repetition_penalty_range", tfs_z="tfs",
        mirostat="mirostat_mode", ignore_eos="ban_eos_token",
    ),
}  # fmt: skip


def read_as_mikupad(data: bytes) -> tuple[str, list[int]]:
    """The text, and the number of candidates for each piece of it."""
    text, candidates = "", []
    for line in data.decode().splitlines():
        one = json.loads(line[6:]) if line.startswith("data: {") else {}
        choice = (one.get("choices") or [{}])[0]
        probabilities = (one.get("completion_probabilities") or [{}])[0].get("top_probs")
        told = probabilities or (choice.get("logprobs") or {}).get("top_logprobs", [{}])[0]
        text += choice.get("text") or one.get("content") or one.get("token") or ""
        candidates += [len(told)] if told else []
    return text, candidates


LITE_EVENT = re.compile(r"^event: (.*)\ndata: (.*)(\r?\n){2}")


def read_as_kobold_lite(data: bytes) -> tuple[str, str | None]:
    """The text and its finish reason: it reads events one by one from the beginning of its buffer."""
    rest, text, reason = data.decode(), "", None
    while found := LITE_EVENT.match(rest):
        rest = rest[found.end() :]
        if found[1] == "message":
            message = json.loads(found[2])
            text, reason = text + message["token"], message["finish_reason"] or reason
    assert rest == "", "nothing that the reader does not know"
    return text, reason
