"""A task's name as the model of real clients: the openai package, Ollama's, the anthropic package; ours."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from anthropic import Anthropic
from ollama import Client
from openai import BadRequestError, OpenAI

import llama_srb
from tests.support.serving import Server, serving

TASK = """
[tasks.story]
prelude = "Once upon a time,"
prefix = " there was a "
postfix = "."
n = 3
max_tokens = 5
temperature = 0
locked = ["temperature"]
"""
PROMPT = "Once upon a time, there was a cat."


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    file = tmp_path_factory.mktemp("clients") / "srb.toml"
    file.write_text(TASK)
    with serving("--ctx", "4096", "--config", str(file)) as server:
        yield server


@pytest.fixture(scope="module")
def wanted(story: Server) -> str:
    """The text of the whole prompt, without a task."""
    body = {"prompt": PROMPT, "temperature": 0, "max_tokens": 5, "n": 1, "stream": False}
    return str(story.json("POST", "/v1/completions", body)[1]["choices"][0]["text"])


def test_the_openai_package(story: Server, wanted: str) -> None:
    with OpenAI(base_url=story.url + "/v1", api_key="-", max_retries=0) as client:
        assert "story" in [model.id for model in client.models.list()]
        assert client.models.retrieve("story").id == "story"
        answer = client.completions.create(model="story", prompt="cat")
        assert [choice.text for choice in answer.choices] == [wanted] * 3
        chat = client.chat.completions.create(model="story", messages=[{"role": "user", "content": "cat"}])
        assert (chat.model, [one.message.content for one in chat.choices]) == ("story", [wanted] * 3)
        pieces = [""] * 3
        with client.chat.completions.create(
            model="story", messages=[{"role": "user", "content": "cat"}], stream=True
        ) as chunks:
            for choice in (choice for chunk in chunks for choice in chunk.choices):
                pieces[choice.index] += choice.delta.content or ""
        assert pieces == [wanted] * 3
        with pytest.raises(BadRequestError, match="temperature is set by the task story"):
            client.completions.create(model="story", prompt="cat", temperature=1)


def test_ollamas_client(story: Server, wanted: str) -> None:
    with Client(host=story.url) as client:
        assert "story:latest" in [model.model for model in client.list().models]
        assert client.show("story").modelinfo
        generated = client.generate("story", "cat")
        assert (generated.model, generated.response) == ("story", wanted)
        chat = client.chat("story", [{"role": "user", "content": "cat"}])
        assert chat.message.content == wanted
        parts = client.chat("story:latest", [{"role": "user", "content": "cat"}], stream=True)
        assert "".join(part.message.content or "" for part in parts) == wanted


def test_the_anthropic_package(story: Server, wanted: str) -> None:
    with Anthropic(base_url=story.url, api_key="-", max_retries=0) as client:
        message = client.messages.create(
            model="story", max_tokens=5, messages=[{"role": "user", "content": "cat"}]
        )
    assert [block.text for block in message.content if block.type == "text"] == [wanted]


def test_this_packages_client(story: Server, wanted: str) -> None:
    with llama_srb.Client(story.url) as client:
        task = client.task("story")
        assert [choice.text for choice in task.complete("cat")] == [wanted] * 3
        assert [choice.text for choice in task.chat([{"role": "user", "content": "cat"}])] == [wanted] * 3
        then = {"text": " So:", "regex": "[ab]{3}", "return_free": True}
        for choice in task.complete("cat", n=2, then=then):
            assert re.fullmatch("[ab]{3}", choice.text)
            assert choice.free
            assert (choice.free.text, choice.free_length, choice.free.length) == (wanted, 5, 5)
        made = client.prompt("cat", model="story")
        assert made.prompt == PROMPT
        begin, *parts = made.parts
        assert (begin.tokens, begin.pieces) == (made.control, ("<|endoftext|>",))
        assert "".join(piece for part in parts for piece in part.pieces) == PROMPT


def test_a_task_may_be_all_of_a_file(story: Server) -> None:
    """It needs no [models]: the model is that of --model, or the bundled one."""
    assert story.json("GET", "/v1/tasks")[1]["data"][0]["model"] == "storyteller"
