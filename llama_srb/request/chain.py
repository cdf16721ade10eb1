"""What the values in `samplers` mean beside the fields of the same names. Pure."""

from __future__ import annotations

from collections import Counter
from typing import Any

from llama_srb.request.fields import SAMPLING_ROWS, Row
from llama_srb.request.steps import STEP_FIELDS, name_of, placed, values_of
from llama_srb.request.values import MAX_WARNINGS, RequestError, shown


def settle_chain(given: dict[str, Any], warnings: list[str], prefix: str = "") -> None:
    """Makes fields of the values of steps that stand there once; others stay with their steps.

    given: a client's fields by canonical names. Values in the chain win: fields that are of no use are left
    out, with a warning.
    """
    chain = placed(given["samplers"])
    for place, step in chain:
        _check(place, step)
    counts = Counter(name_of(step) for _, step in chain)
    used = {field for _, step in chain if counts[name_of(step)] > 1 for field in _missing(step)}
    for place, step in chain:
        alone = counts[name_of(step)] == 1
        if not alone and name_of(step) == "adaptive_p" and values_of(step):
            message = (
                f"samplers[{place}] is {shown(step)}; adaptive_p draws the token: it may stand there once"
            )
            raise RequestError(message, param="samplers")
        for field, value in values_of(step).items():
            is_other = field in given and field not in used and not (alone and given[field] == value)
            if is_other and len(warnings) < MAX_WARNINGS:
                warnings.append(f"{prefix}{field} is not used, because samplers has {step}")
            if alone:
                given[field] = value
            elif field not in used:
                given.pop(field, None)
    given["samplers"] = tuple(name_of(step) if counts[name_of(step)] == 1 else step for _, step in chain)


def _missing(step: str) -> set[str]:
    """The fields that count for this step, since it has no value of its own for them."""
    return {*STEP_FIELDS[name_of(step)]} - values_of(step).keys()


def _check(place: int, step: str) -> None:
    for field, value in values_of(step).items():
        row = SAMPLING_ROWS[field]
        if not _is_within(row, value):
            message = f"samplers[{place}] is {shown(step)}; its {field} must be {row.wanted}"
            raise RequestError(message, param="samplers")


def _is_within(row: Row, value: float) -> bool:
    assert row.low is not None
    assert row.high is not None
    return row.low <= value <= row.high and (row.type == "float" or isinstance(value, int))
