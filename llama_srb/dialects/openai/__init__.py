"""OpenAI's completions: `form` reads bodies, `completions` and `several` render events. Pure.

`several` is for a request with several prompts.
"""

from llama_srb.dialects.openai.answer import Error, Origin, error_body
from llama_srb.dialects.openai.completions import CHUNKS, Body, Chunks, Completion
from llama_srb.dialects.openai.form import NO_INFILL, Form, parse, prompts
from llama_srb.dialects.openai.reports import asked, builder, renderer, unreported
from llama_srb.dialects.openai.several import BodyOfMany, ChunksOfMany

__all__ = [
    "CHUNKS",
    "NO_INFILL",
    "Body",
    "BodyOfMany",
    "Chunks",
    "ChunksOfMany",
    "Completion",
    "Error",
    "Form",
    "Origin",
    "asked",
    "builder",
    "error_body",
    "parse",
    "prompts",
    "renderer",
    "unreported",
]
