"""The real ollama client against the real server and the real engine."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from ollama import Client, ResponseError

from tests.clients.captured import read
from tests.support.places import STORYTELLER
from tests.support.serving import Server, serving

ONCE = "Once upon a time,"


@pytest.fixture(scope="module")
def client(server: Server) -> Iterator[Client]:
    with Client(host=server.url) as client:
        yield client


def test_it_lists_and_shows_the_model(client: Client) -> None:
    [model] = client.list().models
    assert (model.model, model.details and model.details.family) == ("storyteller:latest", "llama")
    assert model.modified_at
    assert abs(model.modified_at.timestamp() - STORYTELLER.stat().st_mtime) < 1
    assert "completion" in (client.show("storyteller").capabilities or [])
    assert [one.model for one in client.ps().models] == ["storyteller:latest"]


def test_it_generates_in_one_body_and_in_a_stream(client: Client) -> None:
    options = {"num_predict": 8, "seed": 7, "temperature": 0.7}
    whole = client.generate("storyteller", ONCE, raw=True, options=options)
    assert (whole.done, whole.done_reason, whole.eval_count) == (True, "length", 8)
    parts = list(client.generate("storyteller:latest", ONCE, raw=True, stream=True, options=options))
    assert [part.done for part in parts] == [False] * (len(parts) - 1) + [True]
    assert "".join(part.response for part in parts)
    assert parts[-1].prompt_eval_count == 6


@pytest.mark.parametrize("length", [1, 3, 40])
def test_the_last_line_has_no_text_for_clients_that_read_none_there(server: Server, length: int) -> None:
    options = {"num_predict": length, "temperature": 0}
    body = {"model": "storyteller", "prompt": ONCE, "raw": True, "options": options}
    whole = server.json("POST", "/api/generate", body | {"stream": False})[1]
    *pieces, end = map(json.loads, server.call("POST", "/api/generate", body)[2].splitlines())
    assert [piece["done"] for piece in pieces] == [False] * len(pieces)
    assert (end["done"], end["response"]) == (True, "")
    assert "".join(piece["response"] for piece in pieces) == whole["response"] != ""


SENT = {one.what: one for one in read("ollama_python.json")}
"""Requests for three texts, as the client sends them (capture/ollama_python.py)."""


def said(answer: dict[str, Any]) -> str:
    """The text of a body, a line or a choice."""
    text: str = answer["response"] if "response" in answer else answer["message"]["content"]
    return text


@pytest.mark.parametrize("kind", ["generate", "chat"])
def test_n_of_a_stream_are_the_lines_of_the_first_and_all_in_the_last_line(server: Server, kind: str) -> None:
    for _ in range(2):  # from the second time on the prompt is cached
        body = json.loads(SENT[kind].send(server)[2])
    texts = list(map(said, body["choices"]))
    assert (len(texts), len(set(texts)) > 1, said(body)) == (3, True, texts[0])
    status, headers, data = SENT[f"{kind}, stream"].send(server)
    assert (status, headers.get_content_type()) == (200, "application/x-ndjson")
    *lines, last = map(json.loads, data.splitlines())
    assert "".join(map(said, lines)) + said(last) == texts[0]
    assert [line["done"] for line in lines] == [False] * len(lines)
    assert not any({"index", "choices"} & line.keys() for line in lines)
    assert (last["done"], list(map(said, last["choices"]))) == (True, texts)
    assert last["eval_count"] == body["eval_count"]


@pytest.mark.parametrize("agent", ["ollama-js/0.6.0", "ollama/0.12.0", ""])
def test_other_clients_get_the_lines_of_all_n(server: Server, agent: str) -> None:
    one = SENT["generate, stream"]
    headers = tuple((k, agent if k.lower() == "user-agent" else v) for k, v in one.headers)
    lines = list(map(json.loads, replace(one, headers=headers).send(server)[2].splitlines()))
    assert {line["index"] for line in lines} == {0, 1, 2}
    assert not any("choices" in line for line in lines)


def test_the_client_reads_the_first_text_of_a_stream_of_n(client: Client) -> None:
    fields: dict[str, Any] = {"model": "storyteller", "prompt": ONCE, "raw": True}
    fields["options"] = {"num_predict": 8, "seed": 7, "n": 3}
    for _ in range(2):
        whole = client.generate(**fields)
    assert "".join(part.response for part in client.generate(**fields, stream=True)) == whole.response


def test_a_stream_of_n_with_best_of_and_logprobs(server: Server) -> None:
    options = {"n": 2, "best_of": 4, "num_predict": 4, "seed": 7}
    one = SENT["generate, stream"].having(options=options, logprobs=True)
    *lines, last = map(json.loads, one.send(server)[2].splitlines())
    assert sum(len(line.get("logprobs", ())) for line in lines) == 4, "of the first text"
    assert [sorted(choice) for choice in last["choices"]] == [["done_reason", "index", "response"]] * 2
    assert last["choices"][0]["response"] == "".join(line["response"] for line in lines)


def test_a_served_model_is_pulled_at_once_and_another_one_is_not_found(client: Client) -> None:
    assert client.pull("storyteller").status == "success"
    assert [part.status for part in client.pull("storyteller:latest", stream=True)] == ["success"]
    for stream in (False, True):
        with pytest.raises(ResponseError, match="model 'llama3' not found") as missing:
            list(client.pull("llama3", stream=stream))  # type: ignore[call-overload]
        assert missing.value.status_code == 404


def test_a_format_is_obeyed(client: Client) -> None:
    schema = {"type": "object", "properties": {"age": {"enum": [7]}}, "required": ["age"]}
    answer = client.generate("storyteller", ONCE, raw=True, format=schema, options={"num_predict": 60})
    assert "".join(answer.response.split()) == '{"age":7}'


def test_errors_are_raised_with_their_messages(client: Client) -> None:
    with pytest.raises(ResponseError, match="model 'llama3' not found") as missing:
        client.generate("llama3", ONCE)
    assert missing.value.status_code == 404
    with pytest.raises(ResponseError, match="temperature is -1") as wrong:
        client.generate("storyteller", ONCE, options={"temperature": -1})
    assert wrong.value.status_code == 400


def test_it_chats_in_one_body_and_in_a_stream(client: Client) -> None:
    messages = [{"role": "user", "content": "Tell me of a fox."}]
    options = {"num_predict": 8, "seed": 7}
    whole = client.chat("storyteller", messages, options=options)
    assert (whole.message.role, whole.done, bool(whole.message.content)) == ("assistant", True, True)
    parts = list(client.chat("storyteller", messages, stream=True, options=options))
    assert "".join(part.message.content or "" for part in parts)
    assert [part.done for part in parts] == [False] * (len(parts) - 1) + [True]


def test_it_embeds(client: Client) -> None:
    vectors = client.embed("storyteller", ["Once upon a time,", "The end"]).embeddings
    assert [round(sum(x * x for x in vector), 3) for vector in vectors] == [1, 1]
    assert client.embeddings("storyteller", ONCE).embedding


# Several models


@pytest.fixture(scope="module")
def several(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    file = tmp_path_factory.mktemp("several") / "srb.toml"
    file.write_text(f"""
        unload_after = "1h"
        [models.tale]
        path = "{STORYTELLER}"
        [models.poem]
        path = "{STORYTELLER}"
        """)
    with serving("--config", str(file)) as server, Client(host=server.url) as client:
        yield client


def loaded(client: Client) -> set[str | None]:
    return {one.model for one in client.ps().models}


def test_it_loads_shows_and_unloads_models_by_name(several: Client) -> None:
    assert [one.model for one in several.list().models] == ["tale:latest", "poem:latest"]
    assert several.show("poem").details
    assert several.generate("poem").done_reason == "load"
    assert several.chat("tale:latest", []).done_reason == "load"
    assert loaded(several) == {"poem:latest", "tale:latest"}
    assert several.generate("poem", keep_alive=0).done_reason == "unload"
    assert several.chat("tale", [], keep_alive="0s").done_reason == "unload"
    assert loaded(several) == set()
    with pytest.raises(ResponseError, match="model 'pome' not found; did you mean poem") as error:
        several.generate("pome")
    assert error.value.status_code == 404


def test_it_says_how_long_a_model_stays(several: Client) -> None:
    options = {"num_predict": 2}
    for keep_alive, minutes in ((None, 60), ("10m", 10), (120, 2), (-1, 60)):
        answers = [
            several.generate("tale", ONCE, raw=True, options=options, keep_alive=keep_alive),
            several.chat("tale", [{"role": "user", "content": "Hi"}], options=options, keep_alive=keep_alive),
        ]
        assert [answer.done_reason for answer in answers] == ["length"] * 2
        *_, last = several.generate("tale", ONCE, stream=True, options=options, keep_alive=keep_alive)
        assert last.done
        [model] = several.ps().models
        assert model.expires_at
        left = (model.expires_at - datetime.now(UTC)).total_seconds()
        expected = 60 * (minutes if keep_alive != -1 else 2)  # -1 of each request is not used
        assert left == pytest.approx(expected, abs=30), keep_alive
    several.generate("tale", keep_alive=0)
