"""The prefix cache over HTTP, with the real engine: choosing candidates and continuing them.

tests/real/test_laws.py checks that the texts are right; these tests check what a client sees.
"""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.support.serving import Server, serving

STORY = "Once upon a time there was a girl who had a red ball and a small dog. "
COUNT = ("one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")


def a_prompt(name: str) -> str:
    """A prompt of about 400 tokens that no other test has computed."""
    return f"{name} said: " + STORY * 20


def last(server: Server, **body: Any) -> dict[str, Any]:
    """The done event of a request."""
    done = server.events({"n": 1, "max_tokens": 4, "seed": 7} | body, "/v1/events")[-1]
    assert done["event"] == "done"
    return done


def saved(answer: dict[str, Any]) -> int:
    """How many tokens of the prompt had to be computed."""
    computed: int = answer["prompt_tokens"] - answer["cached_tokens"]
    return computed


# Choosing a candidate


def eight(server: Server, prompt: str) -> tuple[str, list[str]]:
    """Runs a request for eight texts; returns its id and the texts."""
    body = {"prompt": prompt, "n": 8, "max_tokens": 40, "seed": 7}
    events = server.events(body, "/v1/events")
    texts = [
        "".join(e["text"] for e in events if e["event"] == "stream" and e["index"] == i) for i in range(8)
    ]
    return events[0]["id"], texts


def test_a_chosen_candidate_is_not_computed_again(server: Server) -> None:
    prompt = a_prompt("Anna")
    id, texts = eight(server, prompt)
    by_text = last(server, prompt=prompt + texts[5], n=8)
    assert saved(by_text) <= 3
    by_name = last(server, **{"continue": {"id": id, "index": 5}, "n": 8})
    assert saved(by_name) <= 3
    more = last(server, **{"continue": {"id": f"cmpl-{id}", "index": 5}, "prompt": " And then"})
    assert by_name["prompt_tokens"] < more["prompt_tokens"] <= by_name["prompt_tokens"] + 3
    assert saved(more) <= 5, "what follows, and the chosen one's last token"


def test_going_back_and_branching_computes_nothing_again(server: Server) -> None:
    prompt = a_prompt("Ben")
    id, texts = eight(server, prompt)
    for index in (5, 2, 5):
        assert saved(last(server, prompt=prompt + texts[index])) <= 3
    begun = last(server, **{"continue": {"id": id, "index": 2, "at": 10}})
    assert saved(begun) == 1
    assert saved(last(server, prompt=prompt)) == 0


def test_a_continued_text_is_the_same_as_one_generated_at_once(server: Server) -> None:
    body = {"prompt": a_prompt("Cleo"), "n": 1, "max_tokens": 20, "temperature": 0, "ignore_eos": True}
    events = server.events(body, "/v1/events")
    whole = [event["text"] for event in events if event["event"] == "stream"]
    rest = server.json(
        "POST",
        "/v1/completions",
        {**body, "prompt": None, "continue": {"id": events[0]["id"], "index": 0, "at": 8}, "max_tokens": 12,
         "stream": False},
    )[1]  # fmt: skip
    assert "".join(whole).endswith(rest["choices"][0]["text"])
    assert len(rest["choices"]) == 1


def test_cache_false_neither_uses_nor_keeps(server: Server) -> None:
    prompt = a_prompt("Dora")
    assert last(server, prompt=prompt, cache=False)["cached_tokens"] == 0
    assert last(server, prompt=prompt)["cached_tokens"] <= 10, "what all prompts here begin with"
    assert last(server, prompt=prompt, cache=False)["cached_tokens"] == 0


# A prefix


def test_after_a_prefix_its_prompt_is_not_computed(server: Server) -> None:
    prompt = a_prompt("Emil")
    status, computed = server.json("POST", "/v1/prefix", {"prompt": prompt})
    assert (status, "superseded" in computed) == (200, False)
    assert saved(computed) > 300
    done = last(server, prompt=prompt, n=8)
    assert (done["prompt_tokens"], saved(done)) == (computed["prompt_tokens"], 0)
    assert saved(server.json("POST", "/v1/prefix", {"prompt": prompt})[1]) == 0


def test_a_prefix_takes_the_body_of_the_request_that_will_follow(server: Server) -> None:
    body = {"prompt": a_prompt("Finn"), "n": 8, "max_tokens": 9, "temperature": [1, 2, 3, 4, 5, 6, 7, 8]}
    assert server.json("POST", "/v1/prefix", body)[0] == 200
    assert saved(last(server, **body)) == 0


# Extending a running request


def frame(response: Any) -> dict[str, Any]:
    """The next frame of a stream."""
    while not (line := response.readline()).startswith(b"data: {"):
        assert line, "the stream has ended"
    event: dict[str, Any] = json.loads(line[6:])
    return event


def until(response: Any, name: str) -> list[dict[str, Any]]:
    events = [frame(response)]
    while events[-1]["event"] != name:
        events.append(frame(response))
    return events


def test_a_stream_is_extended_and_forked(lasting: Server) -> None:
    body = {"prompt": "Once upon a time,", "n": 2, "max_tokens": 1000, "ignore_eos": True, "seed": 7}
    with closing(lasting.connect()) as connection:
        connection.request("POST", "/v1/events", json.dumps(body))
        response = connection.getresponse()
        id = frame(response)["id"]
        path, extend = f"/v1/completions/{id}/extend", {"add": 2, "fork": {"index": 1, "at": 3}}
        until(response, "stream")
        assert lasting.json("POST", path, {"add": 1}) == (200, {"id": id, "first": 2, "count": 3})
        assert lasting.json("POST", path, extend) == (200, {"id": id, "first": 3, "count": 5})
        assert lasting.json("DELETE", f"/v1/completions/{id}/3")[0] == 200
        assert lasting.json("POST", path, {"fork": {"index": 5}})[1]["error"]["param"] == "fork.index"
        assert lasting.json("POST", path, {"add": 1020})[1]["error"]["param"] == "add"
        events = until(response, "done")
    stops = {event["index"]: event for event in events if event["event"] == "stop"}
    assert [stops[i]["finish_reason"] for i in range(5)] == [*["length"] * 3, "cancelled", "length"]
    assert [stops[i]["length"] for i in (0, 1, 2, 4)] == [1000] * 4
    assert events[-1]["count"] == 5
    assert lasting.json("POST", path, {"add": 1})[0] == 404


def test_chunks_of_added_choices_come_in_the_same_stream(lasting: Server) -> None:
    body = {"prompt": "Once upon a time,", "n": 1, "max_tokens": 1000, "stream": True,
            "ignore_eos": True}  # fmt: skip
    with closing(lasting.connect()) as connection:
        connection.request("POST", "/v1/completions", json.dumps(body))
        response = connection.getresponse()
        id = frame(response)["id"]
        assert lasting.json("POST", f"/v1/completions/{id}/extend", {"add": 2})[1]["first"] == 1
        chunks = [line for line in response.read().split(b"\n\n") if line.startswith(b"data: {")]
    ends = [choice for chunk in chunks for choice in json.loads(chunk[6:])["choices"]]
    assert {c["index"] for c in ends if c["finish_reason"]} == {0, 1, 2}


# On disk


@pytest.mark.parametrize("mode", ["resident", "per-request"])
def test_a_prompt_on_disk_is_not_computed_again(tmp_path: Path, mode: str) -> None:
    flags = ("--prefix-cache", str(tmp_path / "kv"), "--engine-mode", mode, "--ctx", "2048")
    by_request, by_prefix = a_prompt("Gustav"), a_prompt("Hanna")
    with serving(*flags) as server:
        assert saved(last(server, prompt=by_request)) > 300
        assert server.json("POST", "/v1/prefix", {"prompt": by_prefix})[0] == 200
    with serving(*flags) as server:
        for prompt in (by_request, by_prefix):
            assert saved(last(server, prompt=prompt, n=8)) == 1


def test_a_small_folder_keeps_the_most_recently_used_prefixes(tmp_path: Path) -> None:
    flags = ("--prefix-cache", str(tmp_path), "--prefix-cache-size", "4M", "--ctx", "2048")
    with serving(*flags) as server:
        for name in COUNT:
            last(server, prompt=a_prompt(name))
    kept = list(tmp_path.iterdir())
    assert 0 < sum(path.stat().st_size for path in kept) <= 4 << 20
    assert len(kept) < len(COUNT)
