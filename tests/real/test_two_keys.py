"""One key attacks while another one works: `benchmarks/attacks.py --soak`, short and with small attacks.

With TWO_KEYS_SECONDS=900 TWO_KEYS_SCALE=1 it is the benchmark itself.
"""

from __future__ import annotations

import os

import pytest

from benchmarks.attacker import ATTACKER, MARKS, WRITER, Leak, client
from benchmarks.attacks import soak

SECONDS = float(os.environ.get("TWO_KEYS_SECONDS", "20"))
SCALE = float(os.environ.get("TWO_KEYS_SCALE", "0.05"))


async def test_one_keys_attacks_cost_another_key_no_request_and_show_it_nothing() -> None:
    said, wrong = await soak(SECONDS, SCALE)
    print("\n".join(said))
    assert wrong == [], said


async def test_a_leak_to_another_key_would_be_noticed() -> None:
    async with client("", WRITER) as writer:
        assert writer.checked(writer.prompt().encode())
        with pytest.raises(Leak):
            writer.checked(b"once " + MARKS[ATTACKER].encode())
