"""Ollama: `body` reads, `generation` renders, `info` generates nothing. Pure."""

from llama_srb.dialects.ollama.body import model_of
from llama_srb.dialects.ollama.generation import (
    REPLIES,
    TEXT_LINES,
    TURN_LINES,
    ChatAnswer,
    Generated,
    OllamaError,
    error_body,
)
from llama_srb.dialects.ollama.info import QUESTIONS

__all__ = [
    "QUESTIONS",
    "REPLIES",
    "TEXT_LINES",
    "TURN_LINES",
    "ChatAnswer",
    "Generated",
    "OllamaError",
    "error_body",
    "model_of",
]
