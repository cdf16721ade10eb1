"""Fair scheduling between clients whose requests wait in the real engine."""

from __future__ import annotations

from tests.support.lines import Lines
from tests.support.rows import each_row


def test_the_client_with_the_fewest_sequences_is_admitted_next() -> None:
    long = {"op": "generate", "prompt": "x", "n": 2, "max_tokens": 100, "sampling": {"ignore_eos": True}}
    clients = ["ann", "ann", "ann", "ann", "bob", "ann", "cy", "bob"]
    with Lines("-np", "2") as engine:
        ids = engine.send(*(long | {"client": client} for client in clients))
        starts = sorted((one.start["line"], i) for i, one in enumerate(engine.answers(ids)))
    assert {clients[i] for _, i in starts[:4]} == {"ann", "bob", "cy"}
    assert [i for _, i in starts if clients[i] == "ann"] == [0, 1, 2, 3, 5], "each one's own in order"


COMMANDS = 20  # of one client, each of 16 texts


@each_row(("op", "field"), [("embed", "input"), ("score", "texts")])
def test_one_text_waits_for_no_more_than_a_share_of_another_clients(op: str, field: str) -> None:
    """The second client comes when the first command of the many has ended: nearly all others wait then."""
    text = "The cat sleeps. A dog runs by. " * 6
    with Lines("-t", "1", "-c", "8192", "-np", "32") as engine:
        many = engine.send(*[{"op": op, field: [text] * 16, "client": "ann"}] * COMMANDS)
        while engine.read()["event"] != "done":
            pass
        (one,) = engine.send({"op": op, field: [text], "client": "bob"})
        *all_of_ann, bob = engine.answers([*many, one])
    later = [answer for answer in all_of_ann if answer.done["line"] > bob.done["line"]]
    assert len(later) > COMMANDS * 0.7, "of the many"
    order = [answer.done["line"] for answer in all_of_ann]
    assert order == sorted(order), "each one's own in order"
