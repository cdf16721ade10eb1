"""The schema of the fields that name a sequence: `continue` and `fork`. Pure."""

from __future__ import annotations

from typing import Any

from llama_srb.request.values import INT32_MAX, MAX_INDEX


def named_sequence(*needed: str) -> dict[str, Any]:
    """The schema of a sequence's name; needed: its required properties, of which id may be left out."""
    about_at = "Only this many of its first tokens."
    about_exact = "As its tokens were drawn, those without a text included."
    properties: dict[str, dict[str, Any]] = {
        "id": {"type": "string", "minLength": 1, "description": "The request's id, with or without `cmpl-`."},
        "index": {"type": "integer", "minimum": 0, "maximum": MAX_INDEX},
        "at": {"type": ["integer", "null"], "minimum": 0, "maximum": INT32_MAX, "description": about_at},
        "exact": {"type": ["boolean", "null"], "description": about_exact},
    }
    optional = ("at", "exact") if "id" in needed else ("at",)
    return {
        "type": "object",
        "properties": {name: properties[name] for name in (*needed, *optional)},
        "required": list(needed),
        "additionalProperties": False,
    }
