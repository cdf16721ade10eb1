"""KoboldAI Lite's, mikupad's and Obsidian Loom's exact requests against the real server and engine."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.clients.fixtures import (
    KOBOLD_LITE,
    LOOM,
    MIKUPAD,
    ONCE,
    read_as_kobold_lite,
    read_as_mikupad,
)
from tests.support.serving import Server


def post(server: Server, path: str, body: Any, kind: str = "application/json") -> bytes:
    status, headers, data = server.call("POST", path, body)
    assert (status, headers.get_content_type()) == (200, kind), data
    return data


def test_kobold_lite_streams_and_polls_and_ends_by_its_genkey(server: Server) -> None:
    text, reason = read_as_kobold_lite(
        post(server, "/api/extra/generate/stream", KOBOLD_LITE, "text/event-stream")
    )
    assert text
    assert reason in ("length", "stop")
    check = json.loads(post(server, "/api/extra/generate/check", {"genkey": KOBOLD_LITE["genkey"]}))
    assert check == {"results": [{"text": text}]}
    ended = json.loads(post(server, "/api/extra/abort", {"genkey": KOBOLD_LITE["genkey"]}))
    assert ended == {"success": "false", "done": "true"}, "it is over already"


def test_kobold_lites_settings_at_their_defaults_need_no_warning(server: Server) -> None:
    for path in ("/api/v1/generate", "/api/extra/generate/stream"):
        status, _, data = server.call("POST", path, KOBOLD_LITE)
        assert (status, b"warnings" in data) == (200, False), data


def test_kobold_lite_without_streaming_and_with_logprobs(server: Server) -> None:
    body = KOBOLD_LITE | {"logprobs": True}
    result = json.loads(post(server, "/api/v1/generate", body))["results"][0]
    assert "".join(token["token"] for token in result["logprobs"]["content"]) == result["text"]
    assert all(len(token["top_logprobs"]) == 5 for token in result["logprobs"]["content"])
    last = json.loads(post(server, "/api/extra/last_logprobs", {"genkey": KOBOLD_LITE["genkey"]}))
    assert last == {"logprobs": result["logprobs"]}


def test_a_genkey_aborts_its_generation(lasting: Server) -> None:
    body = {"prompt": ONCE, "max_length": 100000, "genkey": "K1", "n": 2, "use_default_badwordsids": True}
    connection = lasting.connect()
    connection.request("POST", "/api/extra/generate/stream", json.dumps(body))
    response = connection.getresponse()
    while b"token" not in response.readline():
        pass
    assert json.loads(post(lasting, "/api/extra/abort", {"genkey": "K1"}))["success"] == "true"
    assert response.read().count(b'"finish_reason":"length"') == 2
    connection.close()


def test_kobolds_memory_is_put_before_the_prompt(server: Server) -> None:
    fields = {"max_length": 4, "temperature": 0, "logprobs": True}
    first, second = (
        json.loads(post(server, "/api/v1/generate", fields | body))["results"][0]
        for body in ({"memory": "Lily had ", "prompt": "a red"}, {"prompt": "Lily had a red"})
    )
    assert (first["text"], first["prompt_tokens"]) == (second["text"], second["prompt_tokens"])


def test_kobold_lites_requests_at_its_connection_are_answered(server: Server) -> None:
    version = server.json("GET", "/api/extra/version")[1]
    assert (version["result"], tuple(map(int, version["version"].split("."))) >= (1, 104)) == (
        "KoboldCpp",
        True,
    )
    assert server.json("GET", "/api/v1/model")[1]["result"] not in ("", "ReadOnly", "inactive")
    for path in ("/api/v1/config/max_context_length", "/api/extra/true_max_context_length"):
        assert server.json("GET", path)[1] == {"value": 1024}


@pytest.mark.parametrize(("path", "body"), MIKUPAD.items(), ids=list(MIKUPAD))
def test_mikupad_reads_a_text_and_its_candidates(server: Server, path: str, body: dict[str, Any]) -> None:
    data = post(server, path, body, "text/event-stream")
    text, candidates = read_as_mikupad(data)
    assert text.startswith(" ")
    assert b"warnings" not in data
    assert bool(candidates) == (path != "/api/extra/generate/stream")  # koboldcpp's frames have none
    assert all(0 < n <= 10 for n in candidates)


def test_loom_sends_no_stream_field_and_reads_json(server: Server) -> None:
    choices = json.loads(post(server, "/v1/completions", LOOM))["choices"]
    assert [type(choice["text"]) for choice in choices] == [str] * 5
    status, answer = server.json("POST", "/v1/completions", LOOM | {"n": 0})
    assert (status, answer["error"]["message"][:7]) == (400, "n is 0;")
