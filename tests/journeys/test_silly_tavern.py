"""SillyTavern's exact requests against the real server and engine, and answers read as it reads them."""

from __future__ import annotations

import json
import re
from contextlib import closing
from typing import Any

import pytest

from tests.clients.captured import Captured
from tests.clients.fixtures import ONCE
from tests.clients.silly_tavern import (
    GENERATING,
    SENT,
    STREAM,
    STREAM_PROBABILITIES,
    THREE_STREAM,
    THREE_WHOLE,
    WHOLE,
    WHOLE_PROBABILITIES,
    brief,
    probabilities_as_silly_tavern,
    read_as_silly_tavern,
    read_ollama_as_silly_tavern,
    sent,
    tokens_of_a_body_as_silly_tavern,
)
from tests.support.rows import each_row
from tests.support.serving import Server

JSON, SSE, NDJSON = "application/json", "text/event-stream", "application/x-ndjson"
OPENAIS = ("ooba", "koboldcpp", "tabby", "vllm", "aphrodite", "generic")
OF_THREE = ("tabby", "vllm", "aphrodite", "llamacpp")  # these can ask for several swipes
WITH_PROBABILITIES = ("ooba", "koboldcpp", "tabby", "vllm", "aphrodite", "llamacpp")
TYPES = (*OPENAIS, "llamacpp", "ollama", "custom")
CUTTING = ("ooba", "koboldcpp", "tabby", "aphrodite", "ollama")  # they send how long a prompt may be


def answered(server: Server, one: Captured, kind: str = JSON) -> bytes:
    status, headers, data = one.send(server)
    assert (status, headers.get_content_type()) == (200, kind), data
    return data


def swipes_of(kind: str, stream: bool) -> tuple[Captured, int]:
    """The request, and how many texts the page reads of its answer."""
    if kind in OF_THREE:
        return sent(kind, THREE_STREAM if stream else THREE_WHOLE), 3
    return sent(kind, STREAM if stream else WHOLE), 1


@each_row("kind", [*OPENAIS, "llamacpp"])
def test_silly_tavern_reads_a_stream_into_a_text_and_swipes(server: Server, kind: str) -> None:
    one, n = swipes_of(kind, stream=True)
    data = answered(server, brief(one), SSE)
    texts = read_as_silly_tavern(data)
    assert len(texts) == n
    assert all(text.startswith(" ") and "undefined" not in text and "null" not in text for text in texts)
    assert told(data) == []


def told(data: bytes) -> list[str]:
    """The fields that warnings are about."""
    found = re.findall(r'"warnings":(\[.*?\])', data.decode())
    warnings = [warning for one in found for warning in json.loads(one)]
    return [warning.partition(" is ")[0] for warning in dict.fromkeys(warnings)]


@each_row("kind", WITH_PROBABILITIES)
def test_silly_tavern_finds_probabilities_beside_each_token(server: Server, kind: str) -> None:
    data = answered(server, brief(sent(kind, STREAM_PROBABILITIES)), SSE)
    found = probabilities_as_silly_tavern(data)
    assert len(found) >= 7
    assert {len(candidates) for candidates in found} <= {5, 10}


@pytest.mark.parametrize("kind", ["koboldcpp", "tabby", "vllm", "aphrodite"])
def test_silly_tavern_finds_probabilities_in_one_body(server: Server, kind: str) -> None:
    answer = json.loads(answered(server, brief(sent(kind, WHOLE_PROBABILITIES))))
    tokens = tokens_of_a_body_as_silly_tavern(answer)
    assert "".join(token for token, _ in tokens) == answer["choices"][0]["text"]
    assert {len(candidates) for _, candidates in tokens} <= {5, 10}


@each_row("kind", [*OPENAIS, "llamacpp"])
def test_silly_tavern_reads_one_body(server: Server, kind: str) -> None:
    one, n = swipes_of(kind, stream=False)
    answer = json.loads(answered(server, brief(one)))
    if kind == "llamacpp":
        assert [(one["index"], type(one["content"])) for one in answer] == [(0, str), (1, str), (2, str)]
    else:
        assert [type(choice["text"]) for choice in answer["choices"]] == [str] * n


def test_silly_tavern_reads_ollamas_lines_as_they_come(server: Server) -> None:
    options = {"num_predict": 40, "temperature": 0, "num_ctx": 8192}
    whole, stream = (sent("ollama", what).having(prompt=ONCE, options=options) for what in (WHOLE, STREAM))
    answer = json.loads(answered(server, whole))
    with closing(server.connect()) as connection:
        stream.begin(connection)
        response = connection.getresponse()
        text = read_ollama_as_silly_tavern(iter(lambda: response.read1(1 << 16), b""))
    assert text == answer["response"]
    assert answer["eval_count"] == 40


# Its requests byte by byte, with the default character


@each_row("one", [one for one in SENT if one.target in GENERATING], ids=str)
def test_the_form_is_the_one_that_silly_tavern_reads(lasting: Server, one: Captured) -> None:
    lines = NDJSON if one.client == "ollama" else SSE
    data = answered(lasting, one, lines if one.fields.get("stream") else JSON)
    assert told(data) == [], "its settings at their defaults do nothing, and need no warning"


@each_row("one", [one for one in SENT if one.target not in GENERATING], ids=str)
def test_what_it_asks_besides_is_answered(server: Server, one: Captured) -> None:
    json.loads(answered(server, one))


@each_row("what", [WHOLE, STREAM])
@each_row("kind", TYPES)
def test_a_prompt_that_is_too_long_is_cut_where_the_type_says_how_long_it_may_be(
    server: Server, kind: str, what: str
) -> None:
    status, _, data = sent(kind, what).send(server)
    if kind in CUTTING:
        assert status == 200
        assert any("tokens" in warning for warning in warnings_of(data))
    else:
        assert (status, b"exceeds the available context size of 1024 tokens" in data) == (400, True)


def warnings_of(data: bytes) -> list[str]:
    return [text for one in re.findall(r'"warnings": ?(\[.*?\])', data.decode()) for text in json.loads(one)]


# When it connects


def get(server: Server, path: str) -> Any:
    status, answer = server.json("GET", path)
    assert status == 200
    return answer


def test_what_silly_tavern_asks_when_it_connects(server: Server) -> None:
    assert get(server, "/v1/models")["data"][0]["id"] == "storyteller"
    assert isinstance(get(server, "/props")["chat_template"], str)
    assert get(server, "/v1/internal/model/info")["model_name"] == "storyteller"
    assert get(server, "/v1/model")["id"] == get(server, "/v1/model/list")["data"][0]["id"] == "storyteller"
    assert get(server, "/api/tags")["models"][0]["name"] == "storyteller:latest"
    assert get(server, "/api/v1/info/version")["result"] >= "1.2.4"


def test_all_of_silly_taverns_tokenizers_count_the_same(server: Server) -> None:
    def ask(path: str, body: dict[str, Any]) -> Any:
        status, answer = server.json("POST", path, body)
        assert status == 200
        return answer

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
