"""The schema of a new batch. Pure data."""

from __future__ import annotations

from llama_srb.batch.lines import ENDPOINTS
from llama_srb.http.route import Schema
from llama_srb.serving.batches.asked import HOUR, KEPT, MAX_KEY, MAX_PAIRS, MAX_VALUE, WINDOW

BATCH: Schema = {
    "type": "object",
    "properties": {
        "input_file_id": {"type": "string", "description": "A file with the purpose batch."},
        "endpoint": {"enum": list(ENDPOINTS), "description": "The one path that its lines ask."},
        "completion_window": {
            "type": "string",
            "pattern": f"^{WINDOW.pattern}$",
            "description": "After this time, at most 30d, lines without an answer fail: 24h, 30m, 7d.",
        },
        "metadata": {
            "type": ["object", "null"],
            "maxProperties": MAX_PAIRS,
            "propertyNames": {"maxLength": MAX_KEY},
            "additionalProperties": {"type": "string", "maxLength": MAX_VALUE},
        },
        "output_expires_after": {
            "type": ["object", "null"],
            "properties": {
                "anchor": {"const": "created_at"},
                "seconds": {"type": "integer", "minimum": HOUR, "maximum": KEPT},
            },
            "required": ["anchor", "seconds"],
            "description": f"When the outputs are deleted; {KEPT} seconds after the end if it is absent.",
        },
    },
    "required": ["input_file_id", "endpoint", "completion_window"],
}
