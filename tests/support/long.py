"""How much of a test runs in the gate, and how much by scripts/long, which sets LONG=1."""

from __future__ import annotations

import os
from typing import TypeVar

Amount = TypeVar("Amount")

IS_LONG = os.environ.get("LONG") == "1"


def amount(gate: Amount, long: Amount) -> Amount:
    """A number of seeds, examples or seconds, or rows: the fewer, but in scripts/long."""
    return long if IS_LONG else gate
