"""The schemas of adapters: the field `lora`, and the bodies that load and unload one. Pure data."""

from __future__ import annotations

from typing import Any

from llama_srb.dialects.adapter_requests import MAX_NAME
from llama_srb.http.route import Schema
from llama_srb.request.values import MAX_ADAPTER_ID, MAX_ADAPTER_SCALE, MAX_ADAPTERS

_NEITHER: Schema = {"not": {"anyOf": [{"required": ["id"]}, {"required": ["name"]}]}}
ADAPTERS: Schema = {
    "type": "array",
    "items": {
        "type": "object",
        "properties": {
            "id": {"type": "integer", "minimum": 0, "maximum": MAX_ADAPTER_ID},
            "name": {"type": "string"},
            "scale": {
                "type": ["number", "null"],
                "minimum": -MAX_ADAPTER_SCALE,
                "maximum": MAX_ADAPTER_SCALE,
                "default": 1,
            },
        },
        "not": {"anyOf": [{"required": ["id", "name"]}, _NEITHER]},
        "additionalProperties": False,
    },
    "maxItems": MAX_ADAPTERS,
}

_NAMES: dict[str, Any] = {
    "lora_name": {
        "type": "string",
        "minLength": 1,
        "maxLength": MAX_NAME,
        "description": "The adapter's name.",
    },
    "model": {"type": ["string", "null"], "description": "The model that the adapter is for."},
}
TO_UNLOAD: Schema = {"type": "object", "properties": _NAMES, "required": ["lora_name"]}
TO_LOAD: Schema = {
    "type": "object",
    "properties": _NAMES
    | {
        "lora_path": {
            "type": "string",
            "minLength": 1,
            "description": "A file in the folder --adapters-dir, where relative paths begin.",
        },
        "load_inplace": {
            "type": ["boolean", "null"],
            "default": False,
            "description": "true: it replaces the adapter with this name, if there is one.",
        },
    },
    "required": ["lora_name", "lora_path"],
}
