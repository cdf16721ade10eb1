"""The schema of a search in a memory. Pure data."""

from __future__ import annotations

from llama_srb.http.route import Schema
from llama_srb.memory.records import MAX_FOUND
from llama_srb.memory.requests import DEFAULT_FOUND
from llama_srb.request.values import MAX_AROUND, SEARCHES

MEMORY_SEARCH: Schema = {
    "type": "object",
    "properties": {
        "query": {
            "type": "string",
            "minLength": 1,
            "description": "The text whose nearest chunks are wanted.",
        },
        "search": {
            "type": ["string", "null"],
            "enum": [*SEARCHES, None],
            "description": "words: BM25 of the query's words; meaning: the cosine of the vectors; hybrid: "
            "the ranks of both. Default: the memory's own, which /v1/memories says.",
        },
        "k": {
            "type": ["integer", "null"],
            "minimum": 1,
            "maximum": MAX_FOUND,
            "default": DEFAULT_FOUND,
            "description": "The most chunks.",
        },
        "around": {
            "type": ["integer", "null"],
            "minimum": 0,
            "maximum": MAX_AROUND,
            "default": 0,
            "description": "How many chunks before and behind each one its text has, too, without repeating.",
        },
        "headings": {
            "type": ["boolean", "null"],
            "default": False,
            "description": "true: each text has the headings above it in front, a line each.",
        },
        "highlights": {
            "type": ["boolean", "null"],
            "default": False,
            "description": "true: each chunk says where the words of the query are in its text.",
        },
        "per_document": {
            "type": ["integer", "null"],
            "minimum": 1,
            "maximum": MAX_FOUND,
            "description": "The most chunks of one document.",
        },
        "diversity": {
            "type": ["number", "null"],
            "minimum": 0,
            "maximum": 1,
            "default": 0,
            "description": "How much it counts that a chunk is unlike those before it (maximal marginal "
            "relevance).",
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
