"""OpenAI's responses: `body` reads requests (with `items` and `tools`), `stream` renders events. Pure."""

from llama_srb.dialects.responses.answer import EVENTS, InputTokens, ResponseObject
from llama_srb.dialects.responses.body import Asked, counted, parse, prompt_of
from llama_srb.dialects.responses.stream import Body, Frames, Output, error_body

__all__ = [
    "EVENTS",
    "Asked",
    "Body",
    "Frames",
    "InputTokens",
    "Output",
    "ResponseObject",
    "counted",
    "error_body",
    "parse",
    "prompt_of",
]
