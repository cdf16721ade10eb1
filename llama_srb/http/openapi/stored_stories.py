"""The schema of a story that the server keeps. Pure data."""

from __future__ import annotations

from llama_srb.http.route import Schema
from llama_srb.serving.story_store import MAX_KIND, MAX_NAME

STORED_STORY: Schema = {
    "type": "object",
    "description": "A story of the studio. The server reads these fields, and keeps the others as they are.",
    "properties": {
        "name": {"type": "string", "maxLength": MAX_NAME},
        "kind": {"type": "string", "maxLength": MAX_KIND, "description": "story or chat."},
        "root": {"type": "string", "description": "The id of the first node."},
        "nodes": {"type": "object", "description": "The pieces of text by id, each with its children's ids."},
    },
    "required": ["name", "root", "nodes"],
    "additionalProperties": True,
}
