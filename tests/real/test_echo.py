"""echo gives the prompt back as it was sent, also by a vocabulary that puts a space before each text."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.models import write_model
from tests.support.serving import Server, serving

BODY: dict[str, Any] = {"max_tokens": 2, "n": 1, "echo": True, "stream": False}
PROMPTS = ("Once upon", " Once", "  Once  upon ", "   ", "\u00e9t\u00e9", "<s> a")


@pytest.fixture(scope="module")
def spaces(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    path = tmp_path_factory.mktemp("echo") / "spaces.gguf"
    write_model(path, "llama", sentencepiece=True)
    with serving("--model", str(path)) as server:
        yield server


def choice(server: Server, **fields: Any) -> dict[str, Any]:
    status, answer = server.json("POST", "/v1/completions", {**BODY, **fields})
    assert status == 200, answer
    found: dict[str, Any] = answer["choices"][0]
    return found


def test_the_vocabulary_puts_a_space_before_a_text(spaces: Server) -> None:
    tokens = spaces.json("POST", "/tokenize", {"content": "a", "with_pieces": True})[1]["tokens"]
    assert [one["piece"] for one in tokens][-2:] == [" ", "a"]


@pytest.mark.parametrize("prompt", PROMPTS)
@pytest.mark.parametrize("more", [{}, {"logprobs": 1}, {"token_healing": True}], ids=str)
def test_the_text_begins_with_the_prompt(
    spaces: Server, server: Server, prompt: str, more: dict[str, Any]
) -> None:
    for one in (spaces, server):
        assert choice(one, prompt=prompt, **more)["text"].startswith(prompt)


def test_offsets_are_those_of_the_prompt(spaces: Server) -> None:
    found = choice(spaces, prompt="Once upon", logprobs=0)
    offsets = found["logprobs"]["text_offset"]
    assert offsets[:10] == [0, *range(9)], "the space that is not shown, and nine letters"
    assert offsets[10] == 9


def test_a_continuation_echoes_the_first_prompt_as_it_was_sent(spaces: Server) -> None:
    first = spaces.events({"prompt": "Once", "n": 1, "max_tokens": 2})
    body = {"continue": {"id": first[0]["id"], "index": 0}, "prompt": "", "echo": True}
    (prompt,) = [one for one in spaces.events({**body, "n": 1, "max_tokens": 1}) if one["event"] == "prompt"]
    assert prompt["text"].startswith("Once")
