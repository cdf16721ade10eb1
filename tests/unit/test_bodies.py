"""Large bodies have slots, of which one client leaves some to the others."""

from __future__ import annotations

import contextlib

from llama_srb.serving.bodies import LargeBodies


def test_a_client_leaves_some_slots_to_the_others() -> None:
    bodies = LargeBodies(1 << 30, count=8, share=2)
    with contextlib.ExitStack() as held:
        taken = [bodies.take("alice") for _ in range(8)]
        assert [one is not None for one in taken] == [True] * 6 + [False] * 2
        for slot in filter(None, taken):
            held.enter_context(slot)
        others = [bodies.take(name) for name in ("bob", "carol", "dave")]
        assert [one is not None for one in others] == [True, True, False]
    assert bodies.take("alice") is not None
