"""OpenAI's responses: `body` reads requests (with `items` and `tools`), `stream` renders events. Pure.

`history` reads the items of earlier responses, which a request may name.
"""

from llama_srb.dialects.responses.answer import (
    EVENTS,
    DeletedResponse,
    InputItems,
    InputTokens,
    ResponseObject,
)
from llama_srb.dialects.responses.body import Asked, counted, parse
from llama_srb.dialects.responses.history import (
    NEVER,
    PREFIX,
    History,
    id_of,
    named_in,
    response_gone,
    whole_input,
)
from llama_srb.dialects.responses.stream import Body, Frames, Output, error_body

__all__ = [
    "EVENTS",
    "NEVER",
    "PREFIX",
    "Asked",
    "Body",
    "DeletedResponse",
    "Frames",
    "History",
    "InputItems",
    "InputTokens",
    "Output",
    "ResponseObject",
    "counted",
    "error_body",
    "id_of",
    "named_in",
    "parse",
    "response_gone",
    "whole_input",
]
