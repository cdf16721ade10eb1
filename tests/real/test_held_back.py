"""Text is held back while it may begin a stop string or banned phrase, through cancels, forks and limits."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.lines import Answer, Lines
from tests.support.places import BINARY, STORYTELLER

# One token a step: of a text that the engine has seen, guesses would take many at once.
ONCE = {"prompt": "Once upon a time,", "sampling": {"temperature": 0, "ignore_eos": True}, "draft": 0}
GREEDY = " there was a little girl named Lily. She loved to play"  # the model's greedy text


@pytest.fixture(scope="module")
def engine() -> Iterator[Lines]:
    with Lines() as engine:
        assert engine.generate(**ONCE, max_tokens=40).texts[0].startswith(GREEDY)
        yield engine


def during_a_neighbour(engine: Lines, request: dict[str, Any], then: dict[str, Any]) -> Answer:
    """Sends `then` about the request once it has run beside a neighbour for about 14 tokens.

    The neighbour's lines have 50 kB: two unread ones fill the pipe and block the engine. It comes first,
    since nothing would hold back a request that runs alone.
    """
    neighbour, held = engine.send(
        {"op": "generate"} | ONCE | {"max_tokens": 160, "logprobs": 1000}, {"op": "generate"} | ONCE | request
    )
    n, begun = 0, False
    while n < 14:
        event = engine.read()
        begun = begun or event["id"] == held
        n += begun and event["event"] == "stream" and event["id"] == neighbour
    engine.send_amid(then | {"id": held})
    return engine.answers([held, neighbour])[0]


@pytest.mark.parametrize("cancel", [{"op": "cancel"}, {"op": "cancel", "index": 0}])
def test_a_cancel_shows_nothing_of_a_stop_string_that_a_banned_phrase_held_back(
    engine: Lines, cancel: dict[str, Any]
) -> None:
    greedy = engine.generate(**ONCE, max_tokens=28).texts[0]
    request = {"max_tokens": -1, "stop": [" little"], "banned_strings": [greedy + " QQQ"]}
    answer = during_a_neighbour(engine, request, cancel)
    assert " there was a".startswith(answer.texts[0])
    assert answer.stops[0]["finish_reason"] in ("cancelled", "stop")


def test_a_fork_streams_the_held_back_text_at_its_place(bigram: Path) -> None:
    with Lines("-t", "1", model=bigram) as engine:
        (greedy,) = engine.generate(**ONCE, max_tokens=40).texts
        request = {"max_tokens": 60, "stop": [greedy + " QQQ"]}
        answer = during_a_neighbour(engine, request, {"op": "extend", "add": 1, "fork": {"index": 0}})
    events = [event["event"] for event in answer.events]
    assert events.index("extend") < events.index("stream")  # all text until then was held back
    parent, fork = answer.texts
    assert parent.startswith(greedy)
    assert fork == parent


def test_an_extend_with_only_a_limit_adds_no_sequence(engine: Lines) -> None:
    answer = during_a_neighbour(engine, {"max_tokens": 30}, {"op": "extend", "max_tokens": 35})
    assert answer.lengths == [35]


def test_a_last_line_without_its_end_is_a_command() -> None:
    done = subprocess.run(
        [BINARY, "-m", STORYTELLER],
        input=b'{"op":"tokenize","id":"1","text":"dog"}',
        capture_output=True, timeout=60, check=True,
    )  # fmt: skip
    assert b'"id":"1"' in done.stdout.splitlines()[-1]


def test_a_number_beyond_any_type_is_the_clients_fault(engine: Lines) -> None:
    engine.write(b'{"op":"status","id":"x","n":1e999}\n')
    assert engine.read()["code"] == "invalid_request"
