"""OpenLLM-Server's shapes on the bundled model."""

from __future__ import annotations

from typing import Any

from tests.support.serving import Server

ASKED = {"prompt": "Once upon a time", "configuration": {"n": 2, "temp": 0.9, "max_tokens": 24}}


def posted(server: Server, path: str, body: Any) -> Any:
    status, answer = server.json("POST", path, body)
    assert status == 200, answer
    return answer


def test_the_configuration_of_an_answer_gives_its_texts_again(server: Server) -> None:
    first = posted(server, "/complete", ASKED)
    assert first["choices"][0] != first["choices"][1]
    assert posted(server, "/complete", first["configuration"]) == first


def test_a_chat_answers_with_a_text_and_echo_repeats_the_question(server: Server) -> None:
    asked = {"prompt": "Hello, how are you?", "temperature": 0, "max_tokens": 4}
    plain = posted(server, "/chat", asked)["message"]
    assert posted(server, "/chat", {**asked, "echo": True})["message"] == asked["prompt"] + plain


def test_vectors_of_a_list_are_those_of_openai_s_path(server: Server) -> None:
    texts = ["a cat", "a dog"]
    entries = posted(server, "/v1/embeddings", {"input": texts})["data"]
    assert posted(server, "/embed", texts) == [entry["embedding"] for entry in entries]
