"""A short soak test; soak.py itself runs for any time."""

from __future__ import annotations

from tests.soak.soak import soak


async def test_two_minutes_of_mixed_traffic_with_faults_leak_nothing() -> None:
    said, wrong = await soak(120, seed=7)
    print("\n".join(said))
    assert wrong == []
