"""Readers of single fields of a body, for dialects; RequestError if the value is wrong. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from llama_srb.request.values import RequestError, is_tokens, wrong


def switch(body: Mapping[str, Any], name: str, default: bool) -> bool:
    """Reads a field that is true or false; null counts as absent."""
    value = body.get(name)
    if value is not None and not isinstance(value, bool):
        raise wrong(name, value, "true or false")
    return default if value is None else value


def text_of(body: Mapping[str, Any], name: str, default: str | None = None) -> str:
    """Reads a field that is a text; without a default the field is required."""
    value = body.get(name)
    if value is None and default is not None:
        return default
    if value is None:
        raise RequestError(f"{name} is missing", param=name)
    if not isinstance(value, str):
        raise wrong(name, value, "a text")
    return value


def ids_of(body: Mapping[str, Any], name: str = "tokens") -> dict[str, Any]:
    """Reads a list of token ids; returns it as an argument of an engine command."""
    value = body.get(name)
    if not isinstance(value, list) or (value and not is_tokens(value)):
        raise wrong(name, value, "a list of token ids")
    return {"tokens": value}
