"""Ollama's `keep_alive`: how long a model stays loaded after a request. Pure."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

from llama_srb.dialects.common.reply import Json, ServerInfo
from llama_srb.dialects.ollama.generation import Durations, time_of
from llama_srb.request.values import wrong

UNITS = {
    "ns": 1e-9,
    "us": 1e-6,
    "µs": 1e-6,
    "μs": 1e-6,
    "ms": 1e-3,
    "s": 1.0,
    "m": 60.0,
    "h": 3600.0,
    "": 1.0,
}
PART = r"(\d+\.?\d*|\.\d+)"
PARTS = re.compile(rf"{PART}(ns|us|µs|μs|ms|s|m|h)", re.ASCII)
DURATION = re.compile(rf"([+-]?)({PART}|(?:{PARTS.pattern})+)", re.ASCII)
NOTHING: Durations = {
    "total_duration": 0,
    "load_duration": 0,
    "prompt_eval_count": 0,
    "prompt_eval_duration": 0,
    "eval_count": 0,
    "eval_duration": 0,
}


def stay_asked(body: Mapping[str, Any]) -> float | None:
    """Seconds, infinity for a negative value; None if the field is absent."""
    value = body.get("keep_alive")
    if value is None:
        return None
    seconds = _seconds(value)
    if seconds is None:
        raise wrong("keep_alive", value, 'seconds, or a duration as "10m"; negative for ever')
    return math.inf if seconds < 0 else seconds


def _seconds(value: object) -> float | None:
    if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
        return float(value)
    match = DURATION.fullmatch(value) if isinstance(value, str) and len(value) < 100 else None
    if match is None:
        return None
    parts = [(one[1], one[2]) for one in PARTS.finditer(match[2])] or [(match[2], "")]
    return (-1 if match[1] == "-" else 1) * sum(float(count) * UNITS[unit] for count, unit in parts)


def stay_of(
    asked: float | None, unload_after: float | None, *, is_admin: bool
) -> tuple[float | None, str | None]:
    """How long the model stays, None for no change; and a warning if that is not what was asked for.

    A key without the scope admin only shortens the time that the operator has set.
    """
    if asked is None or is_admin:
        return asked, None
    if asked in (0.0, math.inf):
        return None, "keep_alive is not used: only a key with the scope admin unloads a model or keeps it"
    if unload_after is not None and asked > unload_after:
        warning = f"keep_alive is {asked:g} s; the model leaves after {unload_after:g} s (unload_after)"
        return unload_after, warning
    return asked, None


def only_loads(path: str, body: Mapping[str, Any]) -> bool:
    """Whether a request generates nothing: it loads its model, or with keep_alive 0 unloads it."""
    if path == "/api/chat":
        return body.get("messages") == []
    return path == "/api/generate" and all(body.get(name) in (None, "") for name in ("prompt", "suffix"))


def unloaded(path: str, about: ServerInfo) -> Json:
    """The answer to an unload, as ChatAnswer or Generated."""
    is_chat = path == "/api/chat"
    text: Json = {"message": {"role": "assistant", "content": ""}} if is_chat else {"response": ""}
    head = {"model": about.name, "created_at": time_of(about.now)}
    return {**head, **text, "done": True, "done_reason": "unload", **NOTHING}
