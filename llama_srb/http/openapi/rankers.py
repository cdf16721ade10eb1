"""The schemas of the fields `rank_by`, `finish`, `prune`, `end` and `repetition_detection`. Pure."""

from __future__ import annotations

from llama_srb.http.route import Schema
from llama_srb.request.finish import MAX_LOOP, MAX_PASSAGES, MAX_PRUNE_POINTS, SCORES
from llama_srb.request.rank_by import (
    MAX_FOLLOWING,
    MAX_PATTERN,
    MAX_QUERY,
    PLACE,
    RANKERS,
    REQUIRED,
    SIMILARITIES,
)
from llama_srb.request.values import INT32_MAX, MAX_INDEX

FIELDS: dict[str, Schema] = {
    "by": {"enum": [*SIMILARITIES, None]},
    "model": {"type": ["string", "null"], "minLength": 1},
    "regex": {"type": "string", "minLength": 1, "maxLength": MAX_PATTERN},
    "text": {"type": "string", "minLength": 1, "maxLength": MAX_FOLLOWING},
    "query": {"type": ["string", "null"], "minLength": 1, "maxLength": MAX_QUERY},
    "prompt": {"type": "string", "pattern": PLACE.replace("{", r"\{").replace("}", r"\}")},
    "answers": {
        "type": "array",
        "items": {"type": "string", "minLength": 1},
        "minItems": 2,
        "maxItems": 2,
        "uniqueItems": True,
    },
}
FINISH: Schema = {
    "type": ["object", "null"],
    "properties": {
        "first": {"type": ["integer", "null"], "minimum": 1, "maximum": MAX_INDEX},
        "vote_decided": {"type": ["boolean", "null"]},
    },
    "additionalProperties": False,
}
PRUNE: Schema = {
    "type": ["object", "null"],
    "properties": {
        "at": {
            "type": "array",
            "items": {"type": "integer", "minimum": 1, "maximum": INT32_MAX},
            "minItems": 1,
            "maxItems": MAX_PRUNE_POINTS,
        },
        "keep": {"type": "integer", "minimum": 1, "maximum": MAX_INDEX},
        "by": {"enum": [*SCORES, None]},
    },
    "required": ["at", "keep"],
    "additionalProperties": False,
}
END: Schema = {
    "type": ["object", "null"],
    "properties": {
        unit: {"type": ["integer", "null"], "minimum": 1, "maximum": MAX_PASSAGES}
        for unit in ("sentences", "paragraphs")
    },
    "additionalProperties": False,
}
REPETITION: Schema = {
    "type": ["object", "null"],
    "properties": {
        name: {"type": ["integer", "null"], "minimum": 0, "maximum": MAX_LOOP, **more}
        for name, more in (
            ("min_pattern_size", {}),
            ("max_pattern_size", {}),
            ("min_count", {"not": {"const": 1}}),
        )
    },
    "additionalProperties": False,
}


def _alone(name: str) -> Schema:
    """The schema of an object whose one key is a ranker's name."""
    fields: Schema = {"type": "object", "properties": {field: FIELDS[field] for field in RANKERS[name]}}
    fields |= {"additionalProperties": False}
    fields |= {"required": [*REQUIRED[name]]} if name in REQUIRED else {}
    return {"type": "object", "properties": {name: fields}, "required": [name], "additionalProperties": False}


RANKER: Schema = {
    "anyOf": [{"enum": [name for name in RANKERS if name not in REQUIRED]}, *map(_alone, RANKERS)]
}
RANKING: dict[str, Schema] = {
    "ranker": RANKER,
    "end of the rest": FINISH,
    "marks": PRUNE,
    "passages": END,
    "repetition": REPETITION,
}
"""By the types of fields."""
