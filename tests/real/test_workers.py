"""Commands that take long to read block no other client, and their queue is bounded."""

from __future__ import annotations

import json
import os
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from llama_srb.models.model_memory import memory_of
from tests.support.places import BINARY, STORYTELLER
from tests.support.waiting import PATIENCE

WORDS = "word " * 400_000  # 2 MB: half a second for the tokenizer
Events = list[dict[str, Any]]


def tokenize(id: str, client: str, text: str = WORDS) -> dict[str, Any]:
    return {"op": "tokenize", "id": id, "client": client, "text": text}


def answers(*commands: dict[str, Any]) -> Events:
    """The events of an engine that reads all of these commands at once, without loading and ready."""
    argv = (BINARY, "-m", STORYTELLER, "-c", "16384")
    data = b"".join(json.dumps(command).encode() + b"\n" for command in commands)
    done = subprocess.run(argv, input=data, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=120)
    assert done.returncode == 0
    events = [json.loads(line) for line in done.stdout.splitlines()]
    return [event for event in events if event["event"] != "loading"]


def ends(events: Events) -> list[str]:
    """The ids in the order in which their commands ended."""
    return [event["id"] for event in events if event["event"] in ("result", "done", "error")]


def test_short_commands_and_requests_overtake_long_ones() -> None:
    story = {"op": "generate", "id": "story", "client": "b", "prompt": "Once", "n": 2, "max_tokens": 20}
    events = answers(tokenize("1", "a"), tokenize("2", "a"), tokenize("short", "b", "one two"), story)
    assert set(ends(events)[:2]) == {"short", "story"}
    assert set(ends(events)[2:]) == {"1", "2"}


def test_a_client_with_many_long_commands_leaves_room_for_another() -> None:
    first = [tokenize(str(i), "a") for i in range(4)]
    order = ends(answers(*first, tokenize("other", "b", WORDS[: len(WORDS) // 4])))
    assert order.index("other") < 2


def schema_of(id: str, schema: dict[str, Any]) -> dict[str, Any]:
    story = {"op": "generate", "prompt": "Once", "max_tokens": 1}
    return story | {"id": id, "client": "a", "json_schema": schema}


def test_a_small_schema_overtakes_large_ones_that_are_being_compiled() -> None:
    """Those of its own client, too; each takes a tenth of a second or more. Two may end before it is read."""
    text = {"type": "string", "minLength": 50, "maxLength": 240}
    large = [
        schema_of(
            f"{i}",
            {
                "properties": {
                    str(k): text | {"pattern": f"^(a|{i}){{9{k}}}[a-z]{{0,150}}$"} for k in range(4)
                }
            },
        )
        for i in range(6)
    ]
    order = ends(answers(*large, schema_of("small", {"type": "boolean"})))
    assert order.index("small") <= 2


def test_a_cancel_is_acted_on_while_workers_are_busy() -> None:
    chat = {"op": "chat", "id": "chat", "client": "a", "messages": [{"role": "user", "content": WORDS}]}
    cancels = [{"op": "cancel", "id": id} for id in ("1", "2", "chat")]
    events = answers(tokenize("1", "a"), tokenize("2", "a"), chat | {"n": 3}, *cancels, tokenize("3", "b"))
    assert ends(events) == ["1", "2", "chat", "3"]
    assert [event["count"] for event in events if event["event"] == "done"] == [0, 0, 0]


def test_extends_and_cancels_wait_for_their_long_request() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
    story = {"op": "generate", "id": "s", "prompt": "Once", "n": 3, "json_schema": schema, "max_tokens": 10}
    extend, cancel = {"op": "extend", "id": "s", "add": 2}, {"op": "cancel", "id": "s", "index": 1}
    events = answers(story, extend, cancel)
    stops = {event["index"]: event["finish_reason"] for event in events if event["event"] == "stop"}
    assert sorted(stops) == [0, 1, 2, 3, 4]
    assert stops[1] == "cancelled"
    assert events[-1]["count"] == 5


def test_the_queue_of_each_client_is_bounded() -> None:
    junk = {"op": "tokenize", "client": "a", "text": "x", "more": "y" * (15 << 20)}
    events = answers(
        tokenize("slow", "a"), *(junk | {"id": str(i)} for i in range(8)), tokenize("other", "b")
    )
    assert sorted(ends(events)) == sorted(["slow", *map(str, range(8)), "other"])
    codes = {event["id"]: event["code"] for event in events if event["event"] == "error"}
    assert "busy" in codes.values()
    assert "other" not in codes


def test_a_refusal_has_the_id_of_a_command_that_is_nested_too_deeply() -> None:
    deep: list[Any] = []
    for _ in range(80):
        deep = [deep]
    command = {"op": "chat", "id": "deep", "messages": [], "chat_template_kwargs": {"x": deep}}
    (error,) = [event for event in answers(command) if event["event"] == "error"]
    assert (error["id"], error["line"]) == ("deep", 1)
    assert "64 levels" in error["message"]


LISTS = {"stop": ["x" * 100 + str(i) for i in range(1000)]}
PAIRS = [a + b for a in "etaoinshrdlu" for b in "etaoinshrdlu"][:128]
DRY: dict[str, Any] = {"sampling": {"dry_multiplier": 1, "dry_sequence_breakers": PAIRS}}


@pytest.mark.parametrize("lists", [LISTS, DRY], ids=["stop", "dry"])
def test_sequences_share_their_lists(lists: dict[str, Any]) -> None:
    """Checked by the engine's memory: copies of these lists would be more than 60 MiB."""
    argv = (BINARY, "-m", STORYTELLER, "-c", "16384")
    command = {"op": "generate", "id": "1", "prompt": "Once", "n": 512, "max_tokens": -1, **lists}
    pipe = subprocess.PIPE
    with subprocess.Popen(argv, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL) as engine:
        assert engine.stdin
        assert engine.stdout
        try:
            while b'"ready"' not in engine.stdout.readline():
                pass
            before = memory_of(engine.pid)
            os.write(engine.stdin.fileno(), b"\n")
            engine.stdin.write(json.dumps(command).encode() + b"\n")
            engine.stdin.flush()
            while b'"stream"' not in engine.stdout.readline():
                pass
            assert memory_of(engine.pid) - before < 40 << 20
        finally:
            engine.kill()


@pytest.mark.parametrize("name", ["stop", "banned_strings"])
def test_the_sum_of_a_requests_lists_is_bounded(name: str) -> None:
    lists = {name: ["x" * 4000 + str(i) for i in range(1000)]}
    (error,) = [
        event
        for event in answers({"op": "generate", "id": "1", "prompt": "Once", **lists})
        if event["event"] == "error"
    ]
    assert "a request may have 131072" in error["message"]


def test_the_number_of_breakers_is_bounded() -> None:
    """Each is looked for in the whole vocabulary."""
    one = {"dry_multiplier": 1, "dry_sequence_breakers": PAIRS[:64]}
    command = {"op": "generate", "prompt": "Once", "n": 2, "max_tokens": 1}
    events = answers(
        command
        | {"id": "1", "sampling": one, "sequences": [{}, {**one, "dry_sequence_breakers": PAIRS[:65]}]},
        command | {"id": "2", "sampling": one, "sequences": [{}, one]},
    )
    (error,) = [event for event in events if event["event"] == "error"]
    assert (error["id"], error["param"]) == ("1", "dry_sequence_breakers")
    assert error["message"] == "dry_sequence_breakers has 129 texts in all; a request may have 128"


def test_lists_that_sequences_share_are_counted_once() -> None:
    own = [{"temperature": 0.5 + i / 1000} for i in range(500)]
    lists = {"stop": LISTS["stop"], "banned_strings": ["some words"], "sequences": own}
    events = answers({"op": "generate", "id": "1", "prompt": "Once", "n": 500, "max_tokens": 1, **lists})
    assert events[-1]["event"] == "done"
    assert events[-1]["count"] == 500


def test_low_priority_does_not_outlive_the_long_command_it_was_set_for() -> None:
    """A thread that was set to the lowest priority ends, and its successor has the normal one."""
    argv = (BINARY, "-m", STORYTELLER, "-c", "16384")
    pipe = subprocess.PIPE
    with subprocess.Popen(argv, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL) as engine:
        assert engine.stdin
        assert engine.stdout
        try:
            for i in range(5):
                engine.stdin.write(json.dumps(tokenize(str(i), str(i))).encode() + b"\n")
                engine.stdin.flush()
                while b'"result"' not in engine.stdout.readline():
                    pass
            deadline = time.monotonic() + PATIENCE
            while (nice := niceness(engine.pid)) != {0} and time.monotonic() < deadline:
                time.sleep(0.01)
            assert nice == {0}
        finally:
            engine.kill()


def niceness(pid: int) -> set[int]:
    """The niceness of all threads of a process."""
    stats = [(task / "stat").read_text() for task in Path(f"/proc/{pid}/task").iterdir()]
    return {int(stat.rpartition(")")[2].split()[16]) for stat in stats}


def test_a_prompt_that_is_too_long_is_not_copied_for_each_scored_text() -> None:
    score = {"op": "score", "tokens": [5] * 1_000_000, "texts": [[5]] * 1024}
    events = answers(score | {"id": "1"}, {"op": "status", "id": "2"})
    assert [(e["id"], e["code"]) for e in events if e["event"] == "error"] == [("1", "context_exceeded")]
    assert "result" in [event["event"] for event in events]


def test_a_text_that_cannot_fit_is_refused_before_the_others_are_read() -> None:
    score = {"op": "score", "id": "1", "prompt": "Once", "texts": ["b " * 35_000] * 1000}
    (error,) = [event for event in answers(score) if event["event"] == "error"]
    assert (error["code"], error["param"]) == ("context_exceeded", "texts")
    assert "texts[0] has" in error["message"]
    assert f"texts[0] has {error['n_prompt_tokens']} tokens" in error["message"]
    assert error["n_prompt_tokens"] > error["n_ctx"]


def test_a_request_that_waits_for_anothers_prompt_gets_a_queued_event() -> None:
    prompt = "Once there was a bird who could not sing, and so " * 80
    story = {"op": "generate", "prompt": prompt[:3000], "max_tokens": 1}
    events = answers(story | {"id": "1"}, story | {"id": "2"})
    own = {id: [event["event"] for event in events if event.get("id") == id] for id in "12"}
    assert own["1"][0] == "start"
    assert own["2"][0] == "accepted"
    assert own["2"][-1] == "done"
