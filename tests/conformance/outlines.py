"""Outlines against this server as against vLLM: .venv/bin/python -m tests.conformance.outlines

outlines (PyPI) with from_vllm: each kind of output that it knows, from a client and an asynchronous one,
whole and streamed, must come as Outlines' own parsers and a regular expression of ours want it. The
model is the bundled one, which says nothing useful, so only the structure holds the texts. Takes a minute.
"""

from __future__ import annotations

import sys

from tests.conformance.suites import environment, folder, run_pytest, tell
from tests.support.serving import serving

PACKAGES = ("outlines==1.3.3", "openai==3.57.0", "pytest==9.2.0", "pytest-asyncio==1.5.0")
TESTS = r"""
import asyncio
import json
import os
import re
from enum import Enum
from typing import Literal, Union

import openai
import outlines
import pytest
from outlines.types import CFG, JsonSchema, Regex, email, integer, ipv4, isbn, sentence, time
from pydantic import BaseModel, Field
from typing_extensions import TypedDict

URL = os.environ["URL"] + "/v1"


class Pet(Enum):
    cat, dog = "cat", "dog"


class Turn(BaseModel):
    name: str = Field(max_length=8)
    age: int = Field(ge=0, le=99)
    pets: list[Pet] = Field(max_length=2)


class Point(TypedDict):
    x: int
    y: Literal[1, 2]


def add(a: Literal[1, 2], b: bool): ...


def is_turn(text):
    Turn.model_validate_json(text)


def is_point(text):
    assert json.loads(text)["y"] in (1, 2)


KINDS = {
    "a Pydantic class": (Turn, is_turn),
    "a typed dict": (Point, is_point),
    "a function": (add, lambda text: set(json.loads(text)) == {"a", "b"}),
    "a schema as text": (JsonSchema('{"items": {"enum": [1]}, "type": "array", "maxItems": 3}'), json.loads),
    "a schema without spaces": (JsonSchema(Turn, whitespace_pattern=""), is_turn),
    "a regular expression": (Regex(r"[A-Z][a-z]{2,4} [0-9]{3}"), r"[A-Z][a-z]{2,4} [0-9]{3}"),
    "choices": (Literal["red", "green or blue"], r"red|green or blue"),
    "an enumeration": (Pet, r"cat|dog"),
    "one of two kinds": (Union[Literal["none"], bool], r"none|True|False"),
    "an integer": (int, r"[+-]?(0|[1-9][0-9]*)"),
    "a truth value": (bool, r"True|False"),
    "an address": (ipv4, r"([0-9]{1,3}[.]){3}[0-9]{1,3}"),
    "a time": (time, r"[0-2][0-9]:[0-5][0-9]:[0-5][0-9]"),
    "terms together": ("No. " + integer.between(2, 3) + Regex("[.!]"), r"No[.] .+[.!]"),
    "a list": (list[Literal["a", "b"]], r'\[("[ab]"(, )?)*\]?'),  # max_tokens may cut it
    "a grammar": (CFG('start: ("yes" | "no") "!"'), r"(yes|no)!"),
    "a grammar of llama.cpp": (CFG('root ::= ("yes" | "no") "!"'), r"(yes|no)!"),
}


def held(check, text):
    if isinstance(check, str):
        assert re.fullmatch(check, text), text
    else:
        check(text)


@pytest.fixture(scope="module")
def model():
    return outlines.from_vllm(openai.OpenAI(base_url=URL, api_key="-", max_retries=0), "storyteller")


@pytest.mark.parametrize("kind", KINDS)
def test_whole(model, kind):
    wanted, check = KINDS[kind]
    held(check, model("Say it.", wanted, max_tokens=400))


@pytest.mark.parametrize("kind", KINDS)
def test_stream(model, kind):
    wanted, check = KINDS[kind]
    held(check, "".join(model.stream("Say it.", wanted, max_tokens=400)))


@pytest.mark.parametrize("kind", KINDS)
def test_several_from_an_asynchronous_client(kind):
    wanted, check = KINDS[kind]

    async def ask():
        async with openai.AsyncOpenAI(base_url=URL, api_key="-", max_retries=0) as client:
            return await outlines.from_vllm(client, "storyteller")("Say it.", wanted, n=3, max_tokens=400)

    texts = asyncio.run(ask())
    assert len(texts) == 3
    for text in texts:
        held(check, text)


def test_free_text_and_a_generator(model):
    assert model("Say it.", max_tokens=5)
    held("cat|dog", outlines.Generator(model, Pet)("Say it."))
"""
KNOWN: dict[str, str] = {}


def main() -> int:
    home = folder("outlines")
    python = environment(home, PACKAGES)
    (home / "test_vllm.py").write_text(TESTS)
    with serving("--ctx", "2048") as server:
        results = run_pytest(python, home, "test_vllm.py", URL=server.url)
    return tell(PACKAGES[0], results, KNOWN)


if __name__ == "__main__":
    sys.exit(main())
