"""llama.cpp's server: `completion` renders generations, `info` answers all other paths. Pure."""

from llama_srb.dialects.llamacpp.completion import REPLIES, TEXTS, LlamacppError, LlamacppText, error_body
from llama_srb.dialects.llamacpp.info import INFO_ENDPOINTS, TEMPLATE, template_arguments

__all__ = [
    "INFO_ENDPOINTS",
    "REPLIES",
    "TEMPLATE",
    "TEXTS",
    "LlamacppError",
    "LlamacppText",
    "error_body",
    "template_arguments",
]
