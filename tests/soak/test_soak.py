"""A short soak test; scripts/long soak takes two minutes, soak.py itself any time."""

from __future__ import annotations

from dataclasses import replace

from tests.soak.soak import POOL, Left, more, soak
from tests.support.long import amount

IDLE = Left(
    processes=1, descriptors=17, threads=7, tasks=13, live_cells=0, memory=80 << 20, engine_memory=40 << 20
)


def test_what_is_left_over_is_told_but_not_the_threads_that_a_pool_makes_late() -> None:
    assert more(IDLE, replace(IDLE, threads=IDLE.threads + POOL, memory=2 * IDLE.memory)) == []
    for name in ("processes", "descriptors", "tasks", "live_cells"):
        found = more(IDLE, replace(IDLE, **{name: getattr(IDLE, name) + 1}))
        assert [one.partition(":")[0] for one in found] == [name]
    assert more(IDLE, replace(IDLE, threads=IDLE.threads + POOL + 1)) == [
        f"threads: 7 before, {8 + POOL} after"
    ]


async def test_mixed_traffic_with_faults_leaks_nothing() -> None:
    said, wrong = await soak(amount(20, 120), seed=7)
    print("\n".join(said))
    assert wrong == []
