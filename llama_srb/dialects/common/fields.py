"""Fields of a body that a dialect reads itself, one by one; RequestError names what is wrong. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from llama_srb.request.values import RequestError, is_tokens, wrong


def switch(body: Mapping[str, Any], name: str, default: bool) -> bool:
    """A field that is true or false; null is absent."""
    value = body.get(name)
    if value is not None and not isinstance(value, bool):
        raise wrong(name, value, "true or false")
    return default if value is None else value


def text_of(body: Mapping[str, Any], name: str, default: str | None = None) -> str:
    """A field that is a text."""
    value = body.get(name)
    if value is None and default is not None:
        return default
    if value is None:
        raise RequestError(f"{name} is missing", param=name)
    if not isinstance(value, str):
        raise wrong(name, value, "a text")
    return value


def ids_of(body: Mapping[str, Any], name: str = "tokens") -> dict[str, Any]:
    """Token ids as the engine's argument."""
    value = body.get(name)
    if not isinstance(value, list) or (value and not is_tokens(value)):
        raise wrong(name, value, "a list of token ids")
    return {"tokens": value}
