"""Long prompts are truncated from the left where a dialect promises that, and refused elsewhere."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from llama_srb import config
from llama_srb.engine.pool import Pool
from llama_srb.engine.settings import EngineSettings
from llama_srb.request.fields import CompletionRequest, Limit
from llama_srb.request.parse import request_from
from llama_srb.request.truncate import truncate_prompt
from tests.support.serving import Server

LONG = "".join(f"The hare counts to {i} and runs on. " for i in range(300))
CONTEXT = 1024  # tokens of the bundled model's context


def ids_of(server: Server, text: str) -> list[int]:
    ids: list[int] = server.json("POST", "/v1/token/encode", {"text": text})[1]["tokens"]
    return ids


def warned(n: int, limit: int, name: str) -> list[str]:
    return [
        f"{n} tokens at the prompt's beginning were cut: prompt and answer have {limit} together ({name})"
    ]


def test_koboldcpp_keeps_the_memory_and_the_end(server: Server) -> None:
    memory = "A tale of a hare.\n"
    body = {"memory": memory, "prompt": LONG, "max_context_length": 300, "max_length": 20, "temperature": 0}
    answer = server.json("POST", "/api/v1/generate", body)[1]
    kept = answer["results"][0]["prompt_tokens"]
    assert 280 * 3 // 4 <= kept <= 280, "it is cut in steps of a quarter, before a sentence"
    sentences = [memory + LONG[found.start() :] for found in re.finditer("The hare", LONG)]
    (cut,) = [ids for ids in map(partial(ids_of, server), sentences[-40:]) if len(ids) == kept]
    expected = server.json(
        "POST", "/v1/completions", {"model": "storyteller", "prompt": cut, "max_tokens": 20, "temperature": 0,
                                    "top_k": 100, "repeat_last_n": 320}
    )[1]  # fmt: skip
    assert expected["usage"]["prompt_tokens_details"]["cached_tokens"] >= kept - 1
    assert answer["results"][0]["text"] == expected["choices"][0]["text"]


def test_a_cut_story_leaves_room_for_what_is_scored_behind_each_text(server: Server) -> None:
    following = " The hare ran home, and there it slept." * 12
    body = {"prompt": LONG, "story": {}, "n": 2, "max_tokens": 60, "ignore_eos": True, "stream": False}
    status, answer = server.json(
        "POST", "/v1/completions", body | {"rank_by": {"following": {"text": following}}}
    )
    assert status == 200, answer
    assert {choice["index"] for choice in answer["choices"]} == {0, 1}


def test_without_a_limit_the_prompt_is_truncated_to_the_context(server: Server) -> None:
    kobold = server.json("POST", "/api/v1/generate", {"prompt": LONG, "max_length": 68})[1]
    assert kobold["results"][0]["prompt_tokens"] == CONTEXT - 68
    assert kobold["warnings"] == warned(len(ids_of(server, LONG)) - (CONTEXT - 68), CONTEXT, "the context")
    ollama = {"prompt": LONG, "stream": False, "options": {"num_ctx": 10**6, "num_predict": 68}}
    answer = server.json("POST", "/api/generate", ollama)[1]
    assert (answer["prompt_eval_count"], answer["warnings"]) == (CONTEXT - 68, kobold["warnings"])


def test_a_truncated_prompt_leaves_room_for_a_second_answer(server: Server) -> None:
    """The room for ` So:` is that of its bytes."""
    then = {"text": " So:", "max_tokens": 30, "regex": "[ab]{20}"}
    body = {"prompt": LONG, "max_length": 68, "then": then, "ignore_eos": True}
    answer = server.json("POST", "/api/v1/generate", body)[1]
    [result] = answer["results"]
    assert result["prompt_tokens"] == CONTEXT - 68 - 30 - len(" So:")
    assert set(result["text"]) <= {"a", "b"}
    assert len(result["text"]) == 20


def test_the_last_frame_of_a_stream_warns_of_truncation(server: Server) -> None:
    kobold = {"prompt": LONG, "max_length": 4, "max_context_length": 100}
    *frames, last = server.call("POST", "/api/extra/generate/stream", kobold)[2].decode().split("\n\n")[:-1]
    assert "(max_context_length)" in last
    assert not any("warnings" in frame for frame in frames)
    ollama = {"prompt": LONG, "options": {"num_ctx": 100, "num_predict": 4}}
    *lines, line = map(json.loads, server.call("POST", "/api/generate", ollama)[2].splitlines())
    assert (line["prompt_eval_count"], "(num_ctx)" in line["warnings"][0]) == (96, True)
    assert not any("warnings" in line for line in lines)


def test_an_answer_without_a_limit_gets_a_quarter_of_the_context(server: Server) -> None:
    def count(prompt: str) -> int:
        body = {"prompt": prompt, "stream": False, "stop": ["e"], "options": {"num_ctx": 100}}
        n: int = server.json("POST", "/api/generate", body)[1]["prompt_eval_count"]
        return n

    ids = ids_of(server, LONG)[1:]
    nearly = server.json("POST", "/detokenize", {"tokens": ids[:95]})[1]["content"]
    assert count(nearly) == len(ids_of(server, nearly)) > 90, "it fits, so it stays whole"
    assert count(LONG) == 75


def test_text_generation_webuis_field_truncates_and_openais_form_refuses(server: Server) -> None:
    body: dict[str, Any] = {"prompt": LONG, "max_tokens": 10, "model": "storyteller", "echo": True}
    answer = server.json("POST", "/v1/completions", body | {"truncation_length": 100})[1]
    assert answer["usage"]["prompt_tokens"] == 90
    assert "100 together (truncation_length)" in answer["warnings"][0]
    assert LONG[-200:] in answer["choices"][0]["text"]
    several = server.json("POST", "/v1/completions", body | {"truncation_length": 100, "prompt": [LONG, "x"]})
    assert several[1]["usage"]["prompt_tokens"] == 92
    for more in ({}, {"truncation_length": 0}, {"max_context_length": 100}, {"num_ctx": 100}):
        status, refused = server.json("POST", "/v1/completions", body | more)
        assert (status, refused["error"]["code"]) == (400, "context_length_exceeded")
    status, refused = server.json("POST", "/v1/events", {"prompt": LONG, "truncation_length": 100})
    assert (status, refused["error"]["code"]) == (400, "context_length_exceeded")


WRONG = [
    ("/api/v1/generate", {"max_context_length": -1}, "max_context_length is -1; it must be between 0 and"),
    ("/api/generate", {"options": {"num_ctx": "x"}}, 'num_ctx is \\"x\\"; it must be a whole number'),
    ("/api/generate", {"truncate": "no"}, 'truncate is \\"no\\"; it must be true or false'),
    ("/v1/completions", {"stream": False, "truncation_length": 1.5}, "truncation_length is 1.5; it must be"),
    (
        "/api/generate",
        {"prompt": LONG, "truncate": False},
        "exceeds the available context size of 1024 tokens",
    ),
]


@pytest.mark.parametrize(("path", "fields", "message"), WRONG, ids=lambda value: str(value)[:40])
def test_an_invalid_limit_is_refused(server: Server, path: str, fields: dict[str, Any], message: str) -> None:
    status, _, data = server.call("POST", path, {"prompt": "x", **fields})
    assert status == 400
    assert message in data.decode()


def test_long_texts_to_embed_lose_their_end_unless_truncate_is_false(server: Server) -> None:
    body = {"input": ["short", LONG]}
    answer = server.json("POST", "/api/embed", body)[1]
    lost = len(ids_of(server, LONG)) - 1 - (CONTEXT - 2)
    assert (len(answer["embeddings"]), answer["warnings"]) == (
        2,
        [f"the last {lost} tokens of input[1] were cut"],
    )
    assert "warnings" not in server.json("POST", "/api/embed", {"input": "short"})[1]
    assert server.call("POST", "/api/embeddings", {"prompt": LONG})[0] == 200
    assert server.call("POST", "/api/embed", body | {"truncate": False})[0] == 400
    assert server.call("POST", "/v1/embeddings", body)[0] == 400


# Chats


@pytest.fixture
async def pool(chat_model: Path) -> AsyncIterator[Pool]:
    settings = config.load({"model": chat_model, "ctx": 16384}, environ={})
    async with Pool(EngineSettings(settings.engine_command, "chat")) as pool:
        yield pool


def said(request: CompletionRequest) -> list[tuple[str, str]]:
    assert request.messages is not None
    return [(one["role"], one["content"]) for one in json.loads(request.messages)]


async def test_a_chat_loses_its_oldest_messages_but_not_the_system_message(pool: Pool) -> None:
    turns = [{"role": ("user", "assistant")[i % 2], "content": f"Turn {i}. {LONG[:300]}"} for i in range(21)]
    system = {"role": "system", "content": "Be brief."}
    request = request_from({"messages": [system, *turns], "max_tokens": 50})
    cut = await truncate_prompt(request, Limit("num_ctx", 1000), 4096, pool.command)
    (role, first), *rest = said(cut)
    assert (role, first) == ("system", "Be brief.")
    assert rest == [(one["role"], one["content"]) for one in turns[-len(rest) :]]
    assert 1 < len(rest) < 20
    assert "1000 together (num_ctx)" in cut.warnings[0]
    async with pool.generate(cut) as generation:
        events = [event async for batch in generation for event in batch]
    assert 1000 - 50 - 300 < events[0].prompt_tokens <= 1000 - 50
    assert await truncate_prompt(cut, Limit("num_ctx", 1000), 4096, pool.command) == cut, "now it fits"


async def test_a_last_message_that_is_too_long_keeps_its_end(pool: Pool) -> None:
    request = request_from({"messages": [{"role": "user", "content": LONG}], "max_tokens": 50})
    cut = await truncate_prompt(request, Limit("num_ctx", 500), 4096, pool.command)
    [(role, content)] = said(cut)
    assert role == "user"
    assert LONG.endswith(content)
    async with pool.generate(cut) as generation:
        events = [event async for batch in generation for event in batch]
    assert 440 < events[0].prompt_tokens <= 450
