"""What stands between two texts: the prompt that asks for it, by the model's own tokens. Pure."""

from __future__ import annotations

from collections.abc import Mapping

INFILL = ("prefix", "suffix", "middle")  # tokens that it takes


def can_infill(tokens: Mapping[str, str]) -> bool:
    """Whether a model with these tokens can say what stands between two texts."""
    return all(tokens.get(name) for name in INFILL)


def infill_prompt(tokens: Mapping[str, str], prefix: str, suffix: str) -> str:
    """The prompt for what stands between two texts."""
    return tokens["prefix"] + prefix + tokens["suffix"] + suffix + tokens["middle"]
