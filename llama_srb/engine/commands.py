"""Commands for the engine's stdin, one JSON object a line. No I/O here."""

from __future__ import annotations

from typing import Any

import orjson

from llama_srb.request.fields import CompletionRequest, Extension


def encode(op: str, id: str, client: str = "", priority: int = 0, **arguments: Any) -> bytes:
    """Encodes a command as a line.

    `op` and `id` come first, so that the engine can report an error in the rest under this id. `client` names
    the client for fair scheduling; commands of a higher `priority` wait for all others. TypeError for what
    JSON cannot hold: a lone surrogate, a 65-bit integer.
    """
    owner: dict[str, Any] = {"client": client} if client else {}
    if priority:
        owner["priority"] = priority
    return orjson.dumps({"op": op, "id": id, **owner, **arguments}, option=orjson.OPT_APPEND_NEWLINE)


def encode_generate(id: str, request: CompletionRequest, client: str = "", priority: int = 0) -> bytes:
    """The command that starts a request's n sequences."""
    op = "generate" if request.messages is None else "chat"
    return encode(op, id, client, priority, **request.engine_fields())


def encode_prefix(id: str, request: CompletionRequest, client: str = "", priority: int = 0) -> bytes:
    """The command that only computes a request's prompt. It replaces an earlier one of the same client."""
    return encode("prefix", id, client, priority, **request.beginning_fields())


def encode_pin(id: str, name: str, request: CompletionRequest) -> bytes:
    """The command that computes a request's prompt and keeps its cells, under a name."""
    return encode("pin", id, name=name, **request.beginning_fields())


def encode_extend(id: str, extension: Extension) -> bytes:
    """The command that gives a running request more sequences; an Extend event answers it."""
    return encode("extend", id, **extension.engine_fields())


def encode_cancel(id: str, index: int | None = None) -> bytes:
    """The command that ends a request, or only the sequence `index` of it."""
    return encode("cancel", id) if index is None else encode("cancel", id, index=index)


def encode_surplus(id: str) -> bytes:
    """The command that ends what still runs of a request, since its texts are enough."""
    return encode("cancel", id, reason="surplus")
