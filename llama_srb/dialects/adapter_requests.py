"""vLLM's requests to load and unload an adapter while the server runs. Its answers are texts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from llama_srb.dialects.common.fields import switch, text_of
from llama_srb.request.values import RequestError, wrong

MAX_NAME = 200  # characters


@dataclass(frozen=True, slots=True)
class Load:
    """in_place: it replaces the adapter that has the name."""

    name: str
    path: str
    in_place: bool


def load_of(body: Mapping[str, Any]) -> Load:
    """Reads a body; fields of vLLM's own engine (lora_int_id, base_model_name, …) have no effect."""
    if not body.get("lora_name") or not body.get("lora_path"):
        missing = "lora_path" if body.get("lora_name") else "lora_name"
        raise RequestError("Both 'lora_name' and 'lora_path' must be provided.", param=missing)
    return Load(_name(body), text_of(body, "lora_path"), switch(body, "load_inplace", default=False))


def unload_of(body: Mapping[str, Any]) -> str:
    """Reads the name in a body."""
    if not body.get("lora_name"):
        raise RequestError("'lora_name' needs to be provided to unload a LoRA adapter.", param="lora_name")
    return _name(body)


def _name(body: Mapping[str, Any]) -> str:
    name = text_of(body, "lora_name")
    if len(name) > MAX_NAME or not name.isprintable():
        raise wrong("lora_name", name, f"a text of at most {MAX_NAME} characters, none of them a control one")
    return name


def already_loaded(name: str) -> RequestError:
    hint = "If you want to load the adapter in place, set 'load_inplace' to True."
    return RequestError(f"The lora adapter '{name}' has already been loaded. {hint}", param="lora_name")


def not_found(name: str) -> RequestError:
    return RequestError(f"The lora adapter '{name}' cannot be found.", param="lora_name", status=404)


def added(name: str) -> str:
    return f"Success: LoRA adapter '{name}' added successfully."


def removed(name: str) -> str:
    return f"Success: LoRA adapter '{name}' removed successfully."
