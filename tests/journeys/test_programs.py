"""Programs of a person's own: a shell script, and the openai package."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator

import pytest
from openai import OpenAI
from openai.types import Completion

from tests.support.serving import Server

ONCE = "Once upon a time,"

SCRIPT = r"""
request='{"prompt": "Once upon a time,", "n": 3, "max_tokens": 12, "ignore_eos": true}'
curl -sN "$1/v1/completions" -d "$request" |
while read -r word event; do
    case $event in
    '{"event": "stream"'*) echo "text ${event#*'"text": '}" ;;
    '{"event": "stop"'*)   echo "stop ${event#*'"index": '}" ;;
    '{"event": "done"'*)   echo done ;;
    esac
done
"""


def test_a_shell_script_reads_events_with_while_read(server: Server) -> None:
    done = subprocess.run(
        ["bash", "-ec", SCRIPT, "script", server.url],
        capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    lines = done.stdout.splitlines()
    assert [line for line in lines if line.startswith("text ")] != []
    assert sorted(line[:6] for line in lines if line.startswith("stop ")) == ["stop 0", "stop 1", "stop 2"]
    assert (lines[-1], lines.count("done"), done.stderr) == ("done", 1, "")


@pytest.fixture
def openai(server: Server) -> Iterator[OpenAI]:
    with OpenAI(base_url=server.url + "/v1", api_key="-", max_retries=0) as client:
        yield client


def test_the_openai_client_gets_n_choices_in_one_body(openai: OpenAI) -> None:
    answer = openai.completions.create(model="storyteller", prompt=ONCE, n=8, max_tokens=6, seed=7)
    assert [choice.index for choice in answer.choices] == list(range(8))
    assert len({choice.text for choice in answer.choices}) > 1
    assert {choice.finish_reason for choice in answer.choices} == {"length"}
    assert (answer.object, answer.model) == ("text_completion", "storyteller")


def test_the_openai_client_gets_n_choices_as_a_stream_with_one_choice_a_chunk(openai: OpenAI) -> None:
    asked = openai.completions.create(
        model="storyteller", prompt=ONCE, n=8, max_tokens=6, seed=7, stream=True
    )
    with asked as stream:
        chunks: list[Completion] = list(stream)
    assert all(len(chunk.choices) == 1 for chunk in chunks)
    choices = [chunk.choices[0] for chunk in chunks]
    assert all(type(choice.text) is str for choice in choices)
    assert {choice.index for choice in choices if choice.text} == {*range(8)}
    assert sorted(choice.index for choice in choices if choice.finish_reason) == list(range(8))
    assert len({chunk.id for chunk in chunks}) == 1
