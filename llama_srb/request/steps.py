"""The chain of samplers as a client writes it: `dry > top_k:40 > temperature:0.8`. Pure."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator
from typing import Any

from llama_srb.request.values import RequestError, shown, wrong

LLAMA_SAMPLERS = (  # llama.cpp's, in the order of its letters
    "penalties", "dry", "top_n_sigma", "top_k", "typ_p", "top_p", "min_p", "xtc", "temperature",
    "adaptive_p", "infill",
)  # fmt: skip
ADDED_SAMPLERS = (  # engine/sampling/added.cpp
    "encoder_repetition_penalty", "no_repeat_ngram", "top_a", "tfs", "epsilon_cutoff", "eta_cutoff",
    "smoothing",
)  # fmt: skip
SAMPLER_NAMES = LLAMA_SAMPLERS + ADDED_SAMPLERS
SAMPLER_CHARS = dict(zip("edskypmxtai", LLAMA_SAMPLERS, strict=True))  # llama.cpp: common_sampler_type_to_chr
SAMPLER_ALIASES = {
    "typical_p": "typ_p", "typical": "typ_p", "typ": "typ_p", "temp": "temperature", "nucleus": "top_p",
    "dynamic_temperature": "temperature", "repetition_penalty": "penalties", "presence_penalty": "penalties",
    "frequency_penalty": "penalties", "quadratic_sampling": "smoothing", "quadratic": "smoothing",
    "tail_free_sampling": "tfs", "tfs_z": "tfs",
}  # fmt: skip
SAMPLER_ALIASES = (
    {name.replace("_", gap): name for name in SAMPLER_NAMES for gap in ("_", "-", "")}
    | SAMPLER_ALIASES
)  # fmt: skip
FOREIGN_SAMPLERS = frozenset({"mirostat", "skew"})
"""Those of other servers that have no place among the steps here: they are dropped."""


STEP_FIELDS: dict[str, tuple[str, ...]] = {
    "penalties": ("repeat_penalty", "repeat_last_n", "frequency_penalty", "presence_penalty"),
    "dry": ("dry_multiplier", "dry_base", "dry_allowed_length", "dry_penalty_last_n"),
    "typ_p": ("typical_p",),
    "xtc": ("xtc_probability", "xtc_threshold"),
    "temperature": ("temperature", "dynatemp_range", "dynatemp_exponent"),
    "adaptive_p": ("adaptive_target", "adaptive_decay"),
    "infill": (),
    "no_repeat_ngram": ("no_repeat_ngram_size",),
    "smoothing": ("smoothing_factor", "smoothing_curve"),
}
STEP_FIELDS |= {name: (name,) for name in SAMPLER_NAMES if name not in STEP_FIELDS}
"""The fields that the values behind a step's name stand for, in their order."""
ONE_OF_SEVERAL = {"presence_penalty", "frequency_penalty", "dynamic_temperature"}
"""Names of a step that are those of one of its further fields, or of none: no value goes with them."""


def samplers(value: object) -> tuple[str, ...]:
    """A list of steps, or steps in one text, or llama.cpp's letters."""
    return tuple(step for _, step in placed(value))


def placed(value: object) -> list[tuple[int, str]]:
    """The steps, as name or name:value:value, with their places in what the client gave."""
    if (
        isinstance(value, str)
        and value
        and set(value) <= SAMPLER_CHARS.keys()
        and value not in SAMPLER_ALIASES
    ):
        return [(i, SAMPLER_CHARS[letter]) for i, letter in enumerate(value)]
    if isinstance(value, str):
        value = re.sub(r"\s*:\s*", ":", re.sub("[>;,]", " ", value)).split()
    if not isinstance(value, list | tuple):
        raise wrong("samplers", value, "a list of sampler names")
    return [(i, _step(i, item)) for i, item in enumerate(value) if str(item).strip() not in FOREIGN_SAMPLERS]


def _step(place: int, item: object) -> str:
    where = f"samplers[{place}]"
    written, *values = [part.strip() for part in item.split(":")] if isinstance(item, str) else [""]
    name = SAMPLER_ALIASES.get(written.lower())
    if name is None:
        raise wrong(where, item, "one of " + ", ".join(SAMPLER_NAMES), "samplers")
    fields = STEP_FIELDS[name]
    if len(values) > len(fields) or (values and written.lower() in ONE_OF_SEVERAL):
        form = ":".join((name, *(field.upper() for field in fields)))
        raise wrong(where, item, f"{form}, or fewer of these" if fields else form, "samplers")
    numbers = (_number(where, item, field, value) for field, value in zip(fields, values, strict=False))
    return ":".join((name, *numbers))


def _number(where: str, item: object, field: str, value: str) -> str:
    try:
        number = float(value)
    except ValueError:
        number = math.nan
    if not math.isfinite(number) or len(value) > 40:
        raise RequestError(f"{where} is {shown(item)}; its {field} must be a number", param="samplers")
    return str(int(number)) if number.is_integer() else repr(number)


def values_of(step: str) -> dict[str, int | float]:
    """The fields for which a step has values of its own."""
    name, *values = step.split(":")
    numbers = (float(value) if "." in value or "e" in value else int(value) for value in values)
    return dict(zip(STEP_FIELDS[name], numbers, strict=False))


def name_of(step: str) -> str:
    return step.partition(":")[0]


def without_values(steps: Iterable[str], fields: Iterable[str]) -> tuple[str, ...]:
    """The steps; of those that have a value for one of these fields only the names."""
    taken = {*fields}
    return tuple(name_of(step) if taken & values_of(step).keys() else step for step in steps)


def step_fields(steps: Iterable[str]) -> Iterator[str | dict[str, Any]]:
    """The engine's steps: names, and objects {name, FIELD: value} of those with values of their own."""
    for step in steps:
        own = values_of(step)
        yield {"name": name_of(step), **own} if own else step
