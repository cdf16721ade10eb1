"""Anthropic's messages: `body` and `conversation` read, `answer` and `generation` render. Pure."""

from llama_srb.dialects.anthropic.answer import (
    EVENTS,
    AnthropicError,
    AnthropicMessage,
    CountedTokens,
    counted,
    error_body,
    status_of,
)
from llama_srb.dialects.anthropic.generation import REPLIES, prompt_of

__all__ = [
    "EVENTS",
    "REPLIES",
    "AnthropicError",
    "AnthropicMessage",
    "CountedTokens",
    "counted",
    "error_body",
    "prompt_of",
    "status_of",
]
