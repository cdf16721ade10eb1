"""Ollama: `body` reads requests, `generation` renders answers, `keep_alive` reads that field.

`info` answers all other paths. Pure.
"""

from llama_srb.dialects.ollama.generation import (
    REPLIES,
    TEXT_LINES,
    TURN_LINES,
    ChatAnswer,
    Generated,
    OllamaError,
    error_body,
)
from llama_srb.dialects.ollama.info import INFO_ENDPOINTS, PULLED, Pulled, pulled
from llama_srb.dialects.ollama.keep_alive import only_loads, stay_asked, stay_of, unloaded

__all__ = [
    "INFO_ENDPOINTS",
    "PULLED",
    "REPLIES",
    "TEXT_LINES",
    "TURN_LINES",
    "ChatAnswer",
    "Generated",
    "OllamaError",
    "Pulled",
    "error_body",
    "only_loads",
    "pulled",
    "stay_asked",
    "stay_of",
    "unloaded",
]
