"""TabbyAPI's requests about adapters and sampler overrides, and their answers. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from typing_extensions import TypedDict

from llama_srb.dialects.common.response_types import Warned
from llama_srb.request.overrides import Overrides
from llama_srb.request.values import MAX_ADAPTER_SCALE, MAX_ADAPTERS, RequestError, is_number, wrong

NO_TEMPLATES = (
    "the chat template is the model's own, or that of llama.cpp's flags --chat-template and "
    "--chat-template-file; it is not switched while the server runs"
)


@dataclass(frozen=True, slots=True)
class LoraToLoad:
    """An adapter of the folder for adapters, by its file's name, which may lack .gguf."""

    name: str
    scale: float


class LorasLoaded(Warned):
    """Names; warnings say why one has failed."""

    success: list[str]
    failure: list[str]


class OverrideList(TypedDict):
    """selected_preset: the preset that was switched to. overrides: by field, {override, force, additive}."""

    selected_preset: str | None
    overrides: dict[str, Any]
    presets: list[str]


def loras_of(body: Mapping[str, Any]) -> list[LoraToLoad]:
    """Reads the body of /v1/lora/load."""
    given = body.get("loras")
    if not isinstance(given, list) or not 0 < len(given) <= MAX_ADAPTERS:
        raise wrong("loras", given, f"a list of 1 to {MAX_ADAPTERS} objects, {{name, scaling}}")
    return [_lora(f"loras[{i}]", one) for i, one in enumerate(given)]


def _lora(place: str, given: object) -> LoraToLoad:
    if not isinstance(given, dict) or not isinstance(given.get("name"), str):
        raise wrong(place, given, "an object with a name, and scaling or none", param="loras")
    scale = 1.0 if given.get("scaling") is None else given["scaling"]
    if not is_number(scale) or abs(scale) > MAX_ADAPTER_SCALE:
        wanted = f"a number between {-MAX_ADAPTER_SCALE} and {MAX_ADAPTER_SCALE}"
        raise wrong(f"{place}.scaling", scale, wanted, param="loras")
    return LoraToLoad(given["name"], float(scale))


def switched_of(
    body: Mapping[str, Any], presets: Mapping[str, Mapping[str, Any]]
) -> tuple[str | None, Mapping[str, Any]]:
    """Reads the body of /v1/sampling/override/switch: a preset's name, and the overrides as they are written.

    A preset's fields are defaults, which clients override.
    """
    name, given = body.get("preset"), body.get("overrides")
    if name:
        if not isinstance(name, str) or name not in presets:
            raise wrong("preset", name, "one of " + (", ".join(sorted(presets)) or "none: there are none"))
        return name, {field: {"override": value} for field, value in presets[name].items()}
    if not given:
        raise RequestError("preset or overrides is missing", param="preset")
    if not isinstance(given, dict):
        raise wrong("overrides", given, "an object: {field: {override, force, additive}}")
    return None, {field: _as_default(value) for field, value in given.items()}


def _as_default(value: object) -> object:
    """TabbyAPI's form of a value; one that is not in this form is a default, as force is false there."""
    return value if isinstance(value, dict) and "override" in value else {"override": value}


def listed(preset: str | None, held: Overrides, presets: Mapping[str, object]) -> OverrideList:
    """The answer of /v1/sampling/override/list."""
    kinds = (held.defaults, False, False), (held.added, False, True), (held.forced, True, False)
    overrides = {
        name: {"override": value, "force": force, "additive": additive}
        for fields, force, additive in kinds
        for name, value in fields.items()
    }
    return {"selected_preset": preset, "overrides": overrides, "presets": sorted(presets)}
