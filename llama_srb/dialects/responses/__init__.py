"""OpenAI's responses: `body` reads requests (with `items` and `tools`), `stream` renders events. Pure."""

from llama_srb.dialects.responses.answer import EVENTS, Response
from llama_srb.dialects.responses.body import Asked, parse
from llama_srb.dialects.responses.stream import Body, Frames, Output, error_body

__all__ = ["EVENTS", "Asked", "Body", "Frames", "Output", "Response", "error_body", "parse"]
