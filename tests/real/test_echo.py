"""echo gives the prompt back as it was sent, also by a vocabulary that puts a space before each text."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.lines import Lines
from tests.support.models import write_model
from tests.support.rows import each_row
from tests.support.serving import Server, serving

BODY: dict[str, Any] = {"max_tokens": 2, "n": 1, "echo": True, "stream": False}
PROMPTS = ("Once upon", " Once", "  Once  upon ", "   ", "\u00e9t\u00e9", "<s> a")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("echo") / "spaces.gguf"
    write_model(path, "llama", sentencepiece=True)
    return path


@pytest.fixture(scope="module")
def spaces(model: Path) -> Iterator[Server]:
    with serving("--model", str(model)) as server:
        yield server


def choice(server: Server, **fields: Any) -> dict[str, Any]:
    status, answer = server.json("POST", "/v1/completions", {**BODY, **fields})
    assert status == 200, answer
    found: dict[str, Any] = answer["choices"][0]
    return found


def test_the_vocabulary_puts_a_space_before_a_text(spaces: Server) -> None:
    tokens = spaces.json("POST", "/tokenize", {"content": "a", "with_pieces": True})[1]["tokens"]
    assert [one["piece"] for one in tokens][-2:] == [" ", "a"]


@each_row("prompt", PROMPTS)
@each_row("more", [{}, {"logprobs": 1}, {"token_healing": True}], ids=str)
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


@pytest.mark.parametrize("head", ["", "abc"])
def test_an_echo_of_a_cut_prompt_loses_no_letter(model: Path, head: str) -> None:
    """The space before the text is cut off with its beginning, unless that stays."""
    letters = "abcdefghijklmnopqrstuvwxyz"
    with Lines(model=model) as engine:
        (id,) = engine.send({"op": "generate", "prompt": letters, "max_tokens": 1})
        engine.answers([id])
        again = {"id": id, "index": 0, "at": 0, "room": 20, "head": head}
        request = {"continue": again, "prompt": "!", "echo": True, "max_tokens": 1, "return_token_ids": True}
        answer = engine.generate(**request)
        (start,) = [event for event in answer.events if event["event"] == "start"]
        ids = start["prompt_token_ids"][1:]  # without that of the beginning
    (echo,) = [event["text"] for event in answer.events if event["event"] == "prompt"]
    bytes_of = [chr(one - 3) for one in ids if one < 259]
    assert len(bytes_of) < len(letters), "it is cut"
    assert echo.replace(" ", "") == "".join(bytes_of)
    assert echo.startswith(head)
