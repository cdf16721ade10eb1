"""The models that a server serves by name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from llama_srb.client.reader import as_list, is_object, read_as


@dataclass(frozen=True, slots=True)
class Model:
    """One model, or one adapter of a model.

    status: unloaded, loading, loaded or failed; empty if the server does not say. parent: for an adapter, its
    model's id. size_bytes: of its files; 0 if unknown.
    """

    id: str
    status: str = ""
    aliases: tuple[str, ...] = ()
    parent: str | None = None
    size_bytes: int = 0


def models_from(answer: Any) -> list[Model]:
    """Reads the answer of /v1/models, where a status is an object."""
    return [_model(one) for one in as_list(answer["data"], is_object)]


def _model(data: Mapping[str, Any]) -> Model:
    return read_as(Model, {**data, "status": data.get("status", {}).get("value")})
