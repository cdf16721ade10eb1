"""Lines with common beginnings are neighbours, and stay on one server; each line is taken once."""

from __future__ import annotations

import random
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from llama_srb.batch.order import LEVELS, Shares, sort_key
from tests.support.rows import each_row


def words(seed: object, count: int) -> str:
    drawn = random.Random(str(seed))
    return " ".join(str(drawn.randrange(10**6)) for _ in range(count))


@each_row(
    ("system", "document"), [(0, 20), (0, 2000), (10, 20), (100, 30), (100, 2000), (3000, 500), (3000, 9000)]
)
def test_groups_stay_together_also_inside_of_groups(system: int, document: int) -> None:
    """Texts of a system prompt, a document and a question: each document is read once."""
    texts = [
        (words(("system", i), system) + words(("document", i, j), document) + words((i, j, k), 5), (i, j))
        for i in range(3)
        for j in range(5)
        for k in range(4)
    ]
    random.Random(1).shuffle(texts)
    texts.sort(key=lambda pair: sort_key(pair[0].encode()))
    groups = [group for _, group in texts]
    changes = 1 + sum(a != b for a, b in pairwise(groups))
    assert changes == 15


def test_a_key_is_short_and_of_the_text_alone() -> None:
    assert {len(sort_key(b"x" * size)) for size in (0, 1, 64, 10**6)} == {len(LEVELS)}
    assert sort_key(b"y" * 500) == sort_key(b"y" * 500) != sort_key(b"y" * 501)
    same = LEVELS.index(512) + 1
    assert sort_key(b"y" * 700)[:same] == sort_key(b"y" * 512 + b"z" * 188)[:same]


@given(
    count=st.integers(0, 60),
    servers=st.integers(1, 5),
    steps=st.lists(st.tuples(st.integers(0, 4), st.booleans()), max_size=200),
)
def test_each_line_is_taken_once_whatever_the_servers_do(
    count: int, servers: int, steps: list[tuple[int, bool]]
) -> None:
    shares, done, lost = Shares(range(count), servers), list[int](), 0
    for at, is_lost in [*steps, *[(0, False)] * (count + len(steps))]:
        if not shares:
            break
        line = shares.take(at % servers)
        if is_lost and lost < 50:
            lost += 1
            shares.restore(line)
        else:
            done.append(line)
    assert sorted(done) == list(range(count))


def test_a_server_gets_neighbours_and_takes_over_a_half() -> None:
    shares = Shares(range(40), 2)
    assert [shares.take(0) for _ in range(20)] == list(range(20))
    assert [shares.take(1) for _ in range(4)] == [20, 21, 22, 23]
    assert [shares.take(0) for _ in range(8)] == list(range(32, 40)), "the back half of what is left"
    assert shares.take(1) == 24
