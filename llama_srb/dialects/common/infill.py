"""Infill: the prompt for the text between a prefix and a suffix, with the model's infill tokens. Pure."""

from __future__ import annotations

from collections.abc import Mapping

INFILL = ("prefix", "suffix", "middle")  # names of the special tokens that infill needs


def can_infill(tokens: Mapping[str, str]) -> bool:
    """Whether a model with these special tokens can infill."""
    return all(tokens.get(name) for name in INFILL)


def infill_prompt(tokens: Mapping[str, str], prefix: str, suffix: str) -> str:
    """The prompt for the text between prefix and suffix."""
    return tokens["prefix"] + prefix + tokens["suffix"] + suffix + tokens["middle"]
