"""The schema of a search in a memory. Pure data."""

from __future__ import annotations

from llama_srb.http.route import Schema
from llama_srb.memory.records import MAX_FOUND
from llama_srb.memory.requests import DEFAULT_FOUND

MEMORY_SEARCH: Schema = {
    "type": "object",
    "properties": {
        "query": {
            "type": "string",
            "minLength": 1,
            "description": "The text whose nearest chunks are wanted.",
        },
        "k": {
            "type": ["integer", "null"],
            "minimum": 1,
            "maximum": MAX_FOUND,
            "default": DEFAULT_FOUND,
            "description": "The most chunks.",
        },
        "filter": {
            "type": ["object", "null"],
            "description": "Conditions for the chunks of which the k best are taken, as "
            '{"metadata": {"year": {"gte": 1900}}, "score": {"gt": 0.3}}.',
        },
        "post_filter": {
            "type": ["object", "null"],
            "description": "Conditions for these k, of which few may be left.",
        },
    },
    "required": ["query"],
}
