"""Texts that go round in circles, as the bundled model's do at temperature 0, end or turn elsewhere."""

from __future__ import annotations

import itertools
from typing import Any

from tests.support.serving import Server

ASKED: dict[str, Any] = {
    "prompt": "Tom said: no, no, no, no, no, no, no, no, no, no,",
    "n": 1,
    "max_tokens": 200,
    "temperature": 0,
    "ignore_eos": True,
    "return_token_ids": True,
    "stream": False,
    "draft": False,  # with guesses rows differ in their last bits, and so may texts
}
WINDOW = 16
DETECTION = {"min_pattern_size": 1, "max_pattern_size": 20, "min_count": 3}


def whole(server: Server, **fields: Any) -> dict[str, Any]:
    status, answer = server.json("POST", "/v1/completions", ASKED | fields)
    assert status == 200, answer
    choice: dict[str, Any] = answer["choices"][0]
    return choice


def ids_of(choice: dict[str, Any]) -> list[int]:
    ids: list[int] = choice["token_ids"]
    return ids


def loop_end(ids: list[int], longest: int, count: int) -> int | None:
    """After how many tokens a passage stands there `count` times, by looking at all places."""
    for end, size in itertools.product(range(len(ids) + 1), range(1, longest + 1)):
        begin = end - size * count
        if begin >= 0 and ids[begin:end] == ids[end - size : end] * count:
            return end
    return None


def is_a_loop(ids: list[int]) -> bool:
    return any(ids[size:] == ids[:-size] for size in range(1, len(ids) // 2 + 1))


def test_a_text_ends_with_the_first_loop(server: Server) -> None:
    plain = whole(server)
    expected = loop_end(ids_of(plain), 20, 3)
    assert expected, "the model makes a loop"
    ended = whole(server, repetition_detection=DETECTION)
    assert ended["finish_reason"] == "repetition"
    assert ids_of(ended) == ids_of(plain)[:expected]
    for n in (expected, expected + 20):
        later = whole(server, repetition_detection=DETECTION, min_tokens=n)
        assert len(ids_of(later)) >= n
    assert whole(server, repetition_detection=DETECTION, min_tokens=expected)["text"] == ended["text"]


def test_a_window_is_nothing_but_a_passage(server: Server) -> None:
    plain = ids_of(whole(server))
    ids = ids_of(whole(server, loop_detect_window=WINDOW))
    assert ids == plain[: len(ids)]
    ends = [end for end in range(WINDOW, len(plain)) if is_a_loop(plain[end - WINDOW : end])]
    assert len(ids) == ends[0]


def test_a_text_turns_elsewhere_and_nothing_that_was_sent_is_taken_back(server: Server) -> None:
    fields = {"repetition_detection": DETECTION, "loops": "rewind"}
    plain, turned = ids_of(whole(server)), ids_of(whole(server, **fields))
    first = loop_end(plain, 20, 3)
    assert first
    assert len(turned) > first
    assert turned != plain[: len(turned)]
    found = loop_end(turned, 20, 3)
    assert found in (None, len(turned)), "only the loop that ends it, after eight turns, is there"
    events = server.events(ASKED | fields | {"stream": True}, "/v1/events")
    assert [
        id for event in events if event["event"] == "stream" for id in event.get("token_ids", [])
    ] == turned


def test_a_text_that_can_go_nowhere_else_ends_and_the_others_go_on(server: Server) -> None:
    """What is banned to leave a loop may be all that a structure allows."""
    fields = {"repetition_detection": DETECTION, "loops": "rewind", "regex": "(ha){12}|.{80}", "n": 3}
    status, answer = server.json("POST", "/v1/completions", ASKED | fields | {"temperature": 2, "top_k": 0})
    assert status == 200, answer
    caught = whole(server, repetition_detection=DETECTION, loops="rewind", regex="(ha){12}")
    assert caught["finish_reason"] in ("repetition", "stop")
    assert set(caught["text"]) <= set("ha")
    off = {"sequences": [{"repetition_detection": {}}]}
    assert whole(server, repetition_detection=DETECTION, **off)["finish_reason"] == "length"


def test_each_sequence_has_its_own(server: Server) -> None:
    status, answer = server.json("POST", "/v1/completions", ASKED | {
        "n": 3, "loop_detect_window": [0, WINDOW, WINDOW], "sequences": [{}, {}, {"loops": "rewind"}],
    })  # fmt: skip
    assert status == 200, answer
    reasons = [choice["finish_reason"] for choice in answer["choices"]]
    assert reasons[:2] == ["length", "repetition"]
    assert ids_of(answer["choices"][2]) != ids_of(answer["choices"][0])
