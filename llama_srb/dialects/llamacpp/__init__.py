"""llama.cpp's server: `completion` renders generations, `info` and `router` answer all other paths. Pure."""

from llama_srb.dialects.llamacpp.completion import REPLIES, TEXTS, LlamacppError, LlamacppText, error_body
from llama_srb.dialects.llamacpp.info import INFO_ENDPOINTS, TEMPLATE
from llama_srb.dialects.llamacpp.router import MODEL_EVENTS, ModelEvent, Seen, Success, changes

__all__ = [
    "INFO_ENDPOINTS",
    "MODEL_EVENTS",
    "REPLIES",
    "TEMPLATE",
    "TEXTS",
    "LlamacppError",
    "LlamacppText",
    "ModelEvent",
    "Seen",
    "Success",
    "changes",
    "error_body",
]
