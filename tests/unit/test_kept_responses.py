"""Laws of the responses that a server keeps, over histories of several clients."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass

import pytest

from llama_srb.dialects.responses import History
from llama_srb.request.values import RequestError
from llama_srb.serving.kept_responses import OVERHEAD, SHARE, KeptResponse, KeptResponses
from tests.support.long import amount

MOST, SIZE, AGE = 6, 40 * OVERHEAD, 50.0
CLIENTS = "abcdefgh"


@dataclass
class Clock:
    now: float = 0.0

    def __call__(self) -> float:
        return self.now


def response(id: str, before: str | None = None, size: int = 0) -> KeptResponse:
    said = b'[{"type":"message","role":"user","content":"%b"}]' % id.encode()
    return KeptResponse(id, before, said, b"[]", b'{"a":"%b"}' % (b"x" * size))


@pytest.mark.parametrize("seed", range(amount(20, 400)))
def test_what_is_kept_is_bounded_and_is_what_its_client_used_last(seed: int) -> None:
    """Beside the real one: of each client the ids in the order of their last use, and the times."""
    dice, clock = random.Random(seed), Clock()
    kept = KeptResponses(MOST, SIZE, AGE, clock)
    used: dict[str, dict[str, float]] = {client: {} for client in CLIENTS}
    sizes: dict[str, int] = {}
    for i in range(300):
        clock.now += dice.choice((0, 0.5, 5))
        client = dice.choice(CLIENTS[: dice.choice((1, 3, 8))])
        own = used[client]
        if dice.random() < 0.2 and own:
            id = dice.choice([*own])
            assert kept.remove(client, id) == (clock.now - own.pop(id) <= AGE)
        elif dice.random() < 0.3 and own:
            id = dice.choice([*own])
            found = kept.find(client, id)
            assert (found is not None) == (clock.now - own[id] <= AGE)
            if found:
                del own[id]
                own[id] = clock.now
        else:
            before = kept.sizes
            one = response(f"{i}", size=OVERHEAD * dice.choice((0, 1, 3, 8, 20)))
            kept.keep(client, one)
            own[one.id], sizes[one.id] = clock.now, one.size
            for other in CLIENTS:  # nobody loses anything to a client that has more than its equal part
                if other != client and kept.sizes[other] < before[other]:
                    assert before[other] >= SIZE // len({*before, client})
        kept.forget_old()
        for other in CLIENTS:
            used[other] = {id: at for id, at in used[other].items() if clock.now - at <= AGE}
            left = [id for id in used[other] if kept.has(other, id)]
            assert left == [*used[other]][len(used[other]) - len(left) :], "the others were used before"
            assert len(left) <= MOST
            used[other] = {id: used[other][id] for id in left}
        told = Counter({other: sum(sizes[id] for id in ids) for other, ids in used.items() if ids})
        assert kept.sizes == told
        assert told.total() <= SIZE
        assert max(told.values(), default=0) <= SIZE // SHARE
        assert len(kept) == sum(map(len, used.values()))


def test_a_chain_of_thousands_is_read_in_order_or_not_at_all() -> None:
    kept = KeptResponses(10_000, 1 << 30, None)
    for i in range(4000):
        kept.keep("a", response(str(i), str(i - 1) if i else None))
    chain = kept.chain("a", "3999")
    assert chain is not None
    assert [one.id for one in chain] == [str(i) for i in range(4000)]
    history = History(lambda id: kept.find("a", id), 1 << 30)
    assert [item["content"] for item in history.before(chain, "resp_3999")] == [str(i) for i in range(4000)]
    assert kept.chain("b", "3999") is None
    assert kept.remove("a", "2000")
    assert kept.chain("a", "3999") is None
    assert len(kept.chain("a", "1999") or ()) == 2000


def test_an_item_that_is_named_often_does_not_make_a_conversation_larger_than_a_body() -> None:
    id = "0" * 32
    large = KeptResponse(id, None, b"[]", b'[{"type":"message","id":"msg_%b_0","content":"%b"}]'
                         % (id.encode(), b"x" * 1000), b"{}")  # fmt: skip
    reference = {"type": "item_reference", "id": f"msg_{id}_0"}
    history = History(lambda _: large, 10_000)
    with pytest.raises(RequestError) as caught:
        history.input([reference] * 10_000)
    assert "more than --max-body, 10000 bytes" in caught.value.message
    again = KeptResponse("1" * 32, None, b'[{"id":"msg_%b_0"}]' % id.encode(), b"[]", b"{}")
    assert History(lambda _: large, 10_000).before([again], "resp_1")[0]["content"] == "x" * 1000
    with pytest.raises(RequestError) as caught:
        History(lambda _: None, 10_000).before([again], "resp_1")
    assert caught.value.code == "previous_response_not_found"
