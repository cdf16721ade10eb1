"""SillyTavern's, KoboldAI Lite's and Obsidian Loom's exact requests against the real server and engine."""

from __future__ import annotations

import json
import re
from contextlib import closing
from typing import Any

import pytest

from tests.clients.fixtures import (
    KOBOLD_LITE,
    LOOM,
    MIKUPAD,
    ONCE,
    SILLY_TAVERN,
    probabilities_as_silly_tavern,
    read_as_kobold_lite,
    read_as_mikupad,
    read_as_silly_tavern,
    read_ollama_as_silly_tavern,
)
from tests.support.serving import Server


def post(server: Server, path: str, body: Any, kind: str = "application/json") -> bytes:
    status, headers, data = server.call("POST", path, body)
    assert (status, headers.get_content_type()) == (200, kind), data
    return data


SILLY_TYPES = [  # the path for each type, and how many texts it reads
    ("ooba", "/v1/completions", 1),
    ("koboldcpp", "/v1/completions", 1),
    ("tabby", "/v1/completions", 3),
    ("vllm", "/v1/completions", 3),
    ("aphrodite", "/v1/completions", 3),
    ("generic", "/v1/completions", 1),
    ("llamacpp", "/completion", 3),
]
UNSUPPORTED = {"ooba": "temperature_last", "tabby": "temperature_last", "aphrodite": "temperature_last"}


@pytest.mark.parametrize(("kind", "path", "n"), SILLY_TYPES, ids=lambda value: str(value))
def test_silly_tavern_reads_a_stream_into_a_text_and_swipes(
    server: Server, kind: str, path: str, n: int
) -> None:
    data = post(server, path, SILLY_TAVERN["default"][kind], "text/event-stream")
    texts = read_as_silly_tavern(data)
    assert len(texts) == n
    assert all(text.startswith(" ") and "undefined" not in text and "null" not in text for text in texts)
    warnings = re.findall(r'"warnings":(\[.*?\])', data.decode())
    told = [warning for found in warnings for warning in json.loads(found)]
    assert [warning.partition(" is ")[0] for warning in dict.fromkeys(told)] == (
        [UNSUPPORTED[kind]] if kind in UNSUPPORTED else []
    )


@pytest.mark.parametrize(
    ("kind", "path", "n"), SILLY_TYPES[:-2] + SILLY_TYPES[-1:], ids=lambda value: str(value)
)
def test_silly_tavern_finds_the_probabilities_of_each_token(
    server: Server, kind: str, path: str, n: int
) -> None:
    body = SILLY_TAVERN["probabilities"][kind]
    found = probabilities_as_silly_tavern(post(server, path, body, "text/event-stream"))
    assert len(found) >= 7
    assert {len(candidates) for candidates in found} <= {5, 10}


@pytest.mark.parametrize(("kind", "path", "n"), SILLY_TYPES, ids=lambda value: str(value))
def test_silly_tavern_reads_one_body(server: Server, kind: str, path: str, n: int) -> None:
    answer = json.loads(post(server, path, SILLY_TAVERN["default"][kind] | {"stream": False}))
    if kind == "llamacpp":
        assert [(one["index"], type(one["content"])) for one in answer] == [(0, str), (1, str), (2, str)]
    else:
        assert [type(choice["text"]) for choice in answer["choices"]] == [str] * n


def test_silly_tavern_reads_ollamas_lines_as_they_arrive(server: Server) -> None:
    body = SILLY_TAVERN["default"]["ollama"] | {
        "options": {"num_predict": 40, "temperature": 0, "num_ctx": 8192}
    }
    whole = json.loads(post(server, "/api/generate", body | {"stream": False}))
    with closing(server.connect()) as connection:
        connection.request("POST", "/api/generate", json.dumps(body))
        response = connection.getresponse()
        text = read_ollama_as_silly_tavern(iter(lambda: response.read1(1 << 16), b""))
    assert text == whole["response"]
    assert whole["eval_count"] == 40


def test_silly_taverns_requests_at_its_connection_are_answered(server: Server) -> None:
    def get(path: str) -> Any:
        status, answer = server.json("GET", path)
        assert status == 200
        return answer

    assert get("/v1/models")["data"][0]["id"] == "storyteller"
    assert isinstance(get("/props")["chat_template"], str)
    assert get("/v1/internal/model/info")["model_name"] == "storyteller"
    assert get("/v1/model")["id"] == get("/v1/model/list")["data"][0]["id"] == "storyteller"
    assert get("/api/tags")["models"][0]["name"] == "storyteller:latest"
    assert get("/api/v1/info/version")["result"] >= "1.2.4"


def test_all_of_silly_taverns_tokenizers_count_the_same(server: Server) -> None:
    def ask(path: str, body: dict[str, Any]) -> Any:
        return json.loads(post(server, path, body))

    ids = ask("/tokenize", {"content": ONCE})["tokens"]
    whole = ask("/api/extra/tokencount", {"prompt": ONCE})
    assert whole == {"value": len(ids) + 1, "ids": [0, *ids]}
    for path in ("/v1/internal/encode", "/v1/token/encode"):
        assert ask(path, {"text": ONCE}) == {"tokens": whole["ids"], "length": whole["value"]}
    for path in ("/tokenize", "/v1/tokenize"):
        assert ask(path, {"model": "storyteller", "prompt": ONCE})["tokens"] == whole["ids"]
    for path, name in (
        ("/detokenize", "content"),
        ("/v1/token/decode", "text"),
        ("/v1/internal/decode", "text"),
    ):
        assert ask(path, {"tokens": ids})[name] == ONCE


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
