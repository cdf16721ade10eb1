"""The real ollama client against the real server and the real engine."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from ollama import Client, ResponseError

from tests.support.places import STORYTELLER
from tests.support.serving import Server

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
