"""SillyTavern's, KoboldAI Lite's and Obsidian Loom's exact requests against the real server and engine."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.clients.fixtures import (
    GENERIC,
    KOBOLD_LITE,
    LLAMACPP,
    LOOM,
    ONCE,
    OOBA,
    SILLY_TAVERN,
    TABBY,
    read_as_kobold_lite,
    read_as_silly_tavern,
    silly_tavern,
)
from tests.serving import Server


def post(server: Server, path: str, body: Any, kind: str = "application/json") -> bytes:
    status, headers, data = server.call("POST", path, body)
    assert (status, headers.get_content_type()) == (200, kind), data
    return data


SILLY_TYPES = [
    ("/completion", LLAMACPP, 3),
    ("/v1/completions", {"api_type": "koboldcpp"}, 1),
    ("/v1/completions", OOBA, 1),
    ("/v1/completions", TABBY, 3),
    ("/v1/completions", {"api_type": "vllm", "n": 3, "seed": 7, "best_of": 3}, 3),
    ("/v1/completions", {"api_type": "aphrodite", "n": 3}, 3),
]


@pytest.mark.parametrize(("path", "kind", "n"), SILLY_TYPES, ids=lambda value: str(value)[:30])
def test_silly_tavern_reads_a_stream_into_a_text_and_swipes(
    server: Server, path: str, kind: dict[str, Any], n: int
) -> None:
    data = post(server, path, silly_tavern(kind), "text/event-stream")
    texts = read_as_silly_tavern(data)
    assert len(texts) == n
    assert all(text.startswith(" ") and "undefined" not in text and "null" not in text for text in texts)
    assert b'"warnings"' not in data or b"temperature_last" in data, "at neutral values nothing is warned of"


def test_silly_tavern_reads_an_array_from_llamacpp_and_choices_from_tabby(server: Server) -> None:
    native = json.loads(post(server, "/completion", silly_tavern(LLAMACPP, stream=False)))
    assert [one["index"] for one in native] == [0, 1, 2]
    assert all(type(one["content"]) is str and one["content"] for one in native)
    tabby = json.loads(post(server, "/v1/completions", silly_tavern(TABBY, stream=False)))
    assert all(choice["text"] for choice in tabby["choices"])


def test_silly_taverns_generic_type_sends_openais_fields_only(server: Server) -> None:
    body = {name: SILLY_TAVERN[name] for name in GENERIC if name in SILLY_TAVERN}
    assert len(read_as_silly_tavern(post(server, "/v1/completions", body, "text/event-stream"))) == 1


def test_what_silly_tavern_asks_when_it_connects(server: Server) -> None:
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


def test_silly_tavern_through_ollama(server: Server) -> None:
    options = {name: SILLY_TAVERN[name] for name in ("temperature", "top_p", "top_k", "min_p", "stop")}
    options |= {"num_predict": 8, "repeat_penalty": 1.2, "tfs_z": 1, "num_ctx": 512}
    body = {"model": "storyteller", "prompt": ONCE, "raw": True, "stream": True, "keep_alive": -1}
    body |= {"options": options}
    lines = post(server, "/api/generate", body, "application/x-ndjson").splitlines()
    assert "".join(json.loads(line)["response"] for line in lines).strip()
    assert [json.loads(line)["done"] for line in lines] == [False] * (len(lines) - 1) + [True]


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


def test_a_genkey_aborts_what_runs(server: Server) -> None:
    body = {"prompt": ONCE, "max_length": 100000, "genkey": "K1", "n": 2, "use_default_badwordsids": True}
    connection = server.connect()
    connection.request("POST", "/api/extra/generate/stream", json.dumps(body))
    response = connection.getresponse()
    while b"token" not in response.readline():
        pass
    assert json.loads(post(server, "/api/extra/abort", {"genkey": "K1"}))["success"] == "true"
    assert response.read().count(b'"finish_reason":"length"') == 2
    connection.close()


def test_kobolds_memory_stands_before_the_prompt(server: Server) -> None:
    fields = {"max_length": 4, "temperature": 0, "logprobs": True}
    first, second = (
        json.loads(post(server, "/api/v1/generate", fields | body))["results"][0]
        for body in ({"memory": "Lily had ", "prompt": "a red"}, {"prompt": "Lily had a red"})
    )
    assert (first["text"], first["prompt_tokens"]) == (second["text"], second["prompt_tokens"])


def test_what_kobold_lite_asks_when_it_connects(server: Server) -> None:
    version = server.json("GET", "/api/extra/version")[1]
    assert (version["result"], tuple(map(int, version["version"].split("."))) >= (1, 104)) == (
        "KoboldCpp",
        True,
    )
    assert server.json("GET", "/api/v1/model")[1]["result"] not in ("", "ReadOnly", "inactive")
    for path in ("/api/v1/config/max_context_length", "/api/extra/true_max_context_length"):
        assert server.json("GET", path)[1] == {"value": 768}


def test_loom_says_nothing_of_streams_and_reads_json(server: Server) -> None:
    choices = json.loads(post(server, "/v1/completions", LOOM))["choices"]
    assert [type(choice["text"]) for choice in choices] == [str] * 5
    status, answer = server.json("POST", "/v1/completions", LOOM | {"n": 0})
    assert (status, answer["error"]["message"][:7]) == (400, "n is 0;")
