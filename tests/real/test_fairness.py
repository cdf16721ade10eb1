"""Fair scheduling between clients whose requests wait in the real engine."""

from __future__ import annotations

from tests.support.lines import Lines


def test_the_client_with_the_fewest_sequences_is_admitted_next() -> None:
    long = {"op": "generate", "prompt": "x", "n": 2, "max_tokens": 100, "sampling": {"ignore_eos": True}}
    clients = ["ann", "ann", "ann", "ann", "bob", "ann", "cy", "bob"]
    with Lines("-np", "2") as engine:
        ids = engine.send(*(long | {"client": client} for client in clients))
        starts = sorted((one.start["line"], i) for i, one in enumerate(engine.answers(ids)))
    assert {clients[i] for _, i in starts[:4]} == {"ann", "bob", "cy"}
    assert [i for _, i in starts if clients[i] == "ann"] == [0, 1, 2, 3, 5], "each one's own in order"
