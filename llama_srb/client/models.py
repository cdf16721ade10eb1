"""The models that a server serves by name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


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
    """Reads the answer of /v1/models; LookupError, TypeError or ValueError if it is none."""
    return [_model(one) for one in answer["data"]]


def _model(data: Mapping[str, Any]) -> Model:
    id, aliases, parent = data["id"], data.get("aliases", ()), data.get("parent")
    status, size = data.get("status", {}).get("value", ""), data.get("size_bytes", 0)
    texts = (id, status, *aliases, *([] if parent is None else [parent]))
    if not all(isinstance(text, str) for text in texts) or type(size) is not int:
        raise TypeError("no model")
    return Model(id, status, tuple(aliases), parent, size)
