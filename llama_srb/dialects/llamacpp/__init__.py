"""llama.cpp's server: `completion` generates, `info` does not. Pure."""

from llama_srb.dialects.llamacpp.completion import REPLIES, TEXTS, LlamacppError, LlamacppText, error_body
from llama_srb.dialects.llamacpp.info import QUESTIONS, TEMPLATE, template_arguments

__all__ = [
    "QUESTIONS",
    "REPLIES",
    "TEMPLATE",
    "TEXTS",
    "LlamacppError",
    "LlamacppText",
    "error_body",
    "template_arguments",
]
