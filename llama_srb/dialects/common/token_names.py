"""What stands for a token in logprobs. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeAlias

from llama_srb.dialects.common.reply import bytes_of

Name: TypeAlias = Callable[[Mapping[str, Any]], str]


def text_name(token: Mapping[str, Any]) -> str:
    text: str = token["text"]
    return text


def id_name(token: Mapping[str, Any]) -> str:
    return f"token_id:{token['id']}"


def bytes_name(token: Mapping[str, Any]) -> str:
    """OpenAI's name of a token that is no text."""
    return "bytes:" + "".join(f"\\x{byte:02x}" for byte in bytes_of(token))


def key_name(token: Mapping[str, Any]) -> str:
    """A token's text, if it is one."""
    return bytes_name(token) if "bytes" in token else text_name(token)


def by_name(others: Iterable[Mapping[str, Any]], name: Name = key_name) -> dict[str, float]:
    """Logprobs by name, the most probable first; a token whose name is taken has another one."""
    made: dict[str, float] = {}
    for other in others:
        own = next(one for one in (name(other), bytes_name(other), id_name(other)) if one not in made)
        made[own] = other["logprob"]
    return made
