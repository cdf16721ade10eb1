"""The schema of the field `story`. Pure."""

from __future__ import annotations

from typing import Any

from llama_srb.http.route import Schema
from llama_srb.request.story.shape import MAX_ENTRIES, MAX_KEYS, MAX_SEARCH, MAX_TEXT
from llama_srb.request.values import INT32_MAX


def _object(properties: Schema, *required: str) -> Schema:
    keyword: dict[str, Any] = {"required": list(required)} if required else {}
    return {"type": "object", "properties": properties, **keyword, "additionalProperties": False}


_AMOUNT: Schema = {"type": "integer", "minimum": 0, "maximum": INT32_MAX}
_KEYS: Schema = {"type": ["string", "array"], "items": {"type": "string"}, "maxItems": MAX_KEYS}
_SEARCH: Schema = {"type": "integer", "minimum": 1, "maximum": MAX_SEARCH}
_TEXT: Schema = {"type": "string", "maxLength": MAX_TEXT}
NOTE: dict[str, Schema] = {"text": _TEXT, "depth": _AMOUNT}
ENTRY: dict[str, Schema] = {
    "keys": _KEYS,
    "also": _KEYS,
    "text": _TEXT,
    "name": _TEXT,
    "always": {"type": "boolean"},
    "order": {"type": "integer", "minimum": -INT32_MAX, "maximum": INT32_MAX},
    "search": _SEARCH,
    "budget": {**_AMOUNT, "minimum": 1},
    "meaning": {"type": "number", "minimum": 0, "maximum": 1},
}
FIELDS: dict[str, Schema] = {
    "memory": _TEXT,
    "note": _object(NOTE, "text"),
    "lore": {
        "type": "array",
        "items": _object(ENTRY, "text"),
        "maxItems": MAX_ENTRIES,
    },
    "summary": _TEXT,
    "budget": _AMOUNT,
    "search": _SEARCH,
    "separator": _TEXT,
}
STORY: Schema = _object(FIELDS) | {"type": ["object", "string"]}
