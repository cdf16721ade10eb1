"""Ollama: `body` reads requests, `generation` renders answers, `info` answers all other paths. Pure."""

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
    "pulled",
]
