"""The schema of the field `rank_by`, from the rankers of request/rank_by.py. Pure."""

from __future__ import annotations

from llama_srb.http.foreign import Schema
from llama_srb.request.rank_by import MAX_PATTERN, RANKERS, REQUIRED, SIMILARITIES

FIELDS: dict[str, Schema] = {
    "by": {"enum": [*SIMILARITIES, None]},
    "model": {"type": ["string", "null"], "minLength": 1},
    "regex": {"type": "string", "minLength": 1, "maxLength": MAX_PATTERN},
}


def _alone(name: str) -> Schema:
    """The schema of an object whose one key is a ranker's name."""
    fields: Schema = {"type": "object", "properties": {field: FIELDS[field] for field in RANKERS[name]}}
    fields |= {"additionalProperties": False}
    fields |= {"required": [REQUIRED[name]]} if name in REQUIRED else {}
    return {"type": "object", "properties": {name: fields}, "required": [name], "additionalProperties": False}


RANKER: Schema = {
    "anyOf": [{"enum": [name for name in RANKERS if name not in REQUIRED]}, *map(_alone, RANKERS)]
}
