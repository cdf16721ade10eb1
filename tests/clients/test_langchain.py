"""The real langchain-openai client against the real server and the real engine."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from langchain_core.messages import HumanMessage
from langchain_openai import ChatOpenAI, OpenAI, OpenAIEmbeddings
from openai import BadRequestError
from pydantic import SecretStr

from tests.support.serving import Server, serving

ONCE = "Once upon a time,"
COMMON: dict[str, Any] = {"api_key": SecretStr("-"), "max_retries": 0}


@pytest.fixture
def http() -> Iterator[httpx.Client]:
    """The connections of a client that has no way to close its own."""
    with httpx.Client(timeout=60) as client:
        yield client


@pytest.fixture
def completions(server: Server, http: httpx.Client) -> OpenAI:
    more: dict[str, Any] = {"model": "storyteller", "max_tokens": 6, "seed": 7, "top_p": 0.9}
    return OpenAI(base_url=server.url + "/v1", http_client=http, **COMMON, **more)


@pytest.fixture(scope="module")
def chats(chat_model: Path) -> Iterator[Server]:
    with serving("--model", str(chat_model), "--ctx", "16384") as server:
        yield server


def test_prompts_get_n_generations_each_and_one_usage(completions: OpenAI) -> None:
    result = completions.generate([ONCE, "The dog"], n=3)
    assert [len(of_one) for of_one in result.generations] == [3, 3]
    assert all(one.text.startswith(" ") for of_one in result.generations for one in of_one)
    assert result.llm_output
    assert result.llm_output["token_usage"]["completion_tokens"] == 36


def test_a_text_streams(completions: OpenAI) -> None:
    pieces = list(completions.stream(ONCE))
    assert len(pieces) > 2
    assert "".join(pieces).startswith(" ")


async def test_a_chat_answers_n_times_streams_and_counts(chats: Server) -> None:
    more: dict[str, Any] = {"model": "chat", "max_tokens": 4, "seed": 7, "stream_usage": True}
    async with httpx.AsyncClient(timeout=60) as http:
        more["http_async_client"] = http
        chat = ChatOpenAI(base_url=chats.url + "/v1", **COMMON, **more, n=3)
        [answers] = (await chat.agenerate([[HumanMessage("Hello")]])).generations
        assert len(answers) == 3
        one = ChatOpenAI(base_url=chats.url + "/v1", **COMMON, **more)
        chunks = [chunk async for chunk in one.astream("Hello")]
        assert "".join(str(chunk.content) for chunk in chunks)
        assert [chunk.usage_metadata["output_tokens"] for chunk in chunks if chunk.usage_metadata] == [4]


def test_texts_become_vectors(server: Server, http: httpx.Client) -> None:
    more: dict[str, Any] = {"model": "storyteller", "check_embedding_ctx_length": False, "http_client": http}
    vectors = OpenAIEmbeddings(base_url=server.url + "/v1", **COMMON, **more)
    rows = vectors.embed_documents([ONCE, "The dog"])
    assert len(rows) == 2
    assert vectors.embed_query(ONCE) == pytest.approx(rows[0], abs=1e-3)


def test_a_refusal_is_raised_with_its_message(completions: OpenAI) -> None:
    with pytest.raises(BadRequestError, match="temperature is -1"):
        completions.invoke(ONCE, temperature=-1)
