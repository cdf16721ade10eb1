"""Tools for a model whose chat template knows none: text and a warning, unless a call is required."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientSession

from llama_srb.serving.template_tools import NO_TOOLS
from tests.support.chats import HELLO, TOOLS
from tests.support.serving import Server, serving

CHAT: dict[str, Any] = {"messages": HELLO, "tools": TOOLS, "max_tokens": 2}
PATH = "/v1/chat/completions"


@pytest.mark.parametrize("choice", [{}, {"tool_choice": "auto"}, {"tool_choice": None}], ids=str)
def test_text_and_a_warning_where_no_call_is_required(server: Server, choice: dict[str, Any]) -> None:
    status, answer = server.json("POST", PATH, CHAT | choice)
    assert (status, answer["warnings"]) == (200, [NO_TOOLS])
    assert answer["choices"][0]["message"]["content"]
    first, *_ = server.events(CHAT | choice | {"stream": True}, PATH)
    assert first["warnings"] == [NO_TOOLS]
    start, *_ = server.events(CHAT | choice, "/v1/events")
    assert start["warnings"] == [NO_TOOLS]


def test_ollamas_chat_warns_in_its_body(server: Server) -> None:
    body = {"messages": HELLO, "tools": TOOLS, "stream": False, "options": {"num_predict": 2}}
    status, answer = server.json("POST", "/api/chat", body)
    assert (status, answer["warnings"]) == (200, [NO_TOOLS])


ANTHROPIC: dict[str, Any] = {
    "messages": HELLO, "max_tokens": 2, "tools": [{"name": "weather", "input_schema": {"type": "object"}}],
}  # fmt: skip


def test_anthropics_message_warns_and_its_prompt_is_counted_without_tools(server: Server) -> None:
    status, answer = server.json("POST", "/v1/messages", ANTHROPIC)
    assert (status, answer["warnings"]) == (200, [NO_TOOLS])
    usage = answer["usage"]
    counted = server.json("POST", "/v1/messages/count_tokens", ANTHROPIC)
    assert counted == (200, {"input_tokens": usage["input_tokens"] + usage["cache_read_input_tokens"]})
    for path in ("/v1/messages", "/v1/messages/count_tokens"):
        status, answer = server.json("POST", path, ANTHROPIC | {"tool_choice": {"type": "any"}})
        assert (status, answer["error"]["type"]) == (400, "invalid_request_error")


async def test_a_websocket_warns_at_its_start(server: Server) -> None:
    async with ClientSession() as session, session.ws_connect(server.url + "/v1/ws") as socket:
        await socket.send_str(json.dumps({"op": "generate", "id": "a", "n": 1, **CHAT}))
        assert (await socket.receive_json())["warnings"] == [NO_TOOLS]


NAMED = {"type": "function", "function": {"name": "weather"}}


@pytest.mark.parametrize("choice", ["required", NAMED], ids=str)
@pytest.mark.parametrize("path", [PATH, "/v1/events"])
def test_a_required_call_is_refused(server: Server, path: str, choice: Any) -> None:
    status, answer = server.json("POST", path, CHAT | {"tool_choice": choice})
    assert (status, answer["error"]["param"]) == (400, "tools")
    assert "does not support tools" in answer["error"]["message"]


def test_the_prompt_is_that_of_the_chat_without_tools(server: Server) -> None:
    plain = server.json("POST", "/apply-template", {"messages": HELLO})[1]
    assert server.json("POST", "/apply-template", {"messages": HELLO, "tools": TOOLS}) == (200, plain)
    n_tokens = server.json("POST", "/tokenize", {"prompt": plain["prompt"]})[1]["count"]
    assert server.json("POST", "/v1/prefix", CHAT)[1]["prompt_tokens"] == n_tokens
    assert server.json("POST", PATH, CHAT)[1]["usage"]["prompt_tokens"] == n_tokens


@pytest.fixture(scope="module")
def knowing(chat_model: Path) -> Iterator[Server]:
    with serving("--model", str(chat_model), "--ctx", "4096") as server:
        yield server


def test_a_template_that_knows_tools_gets_them(knowing: Server) -> None:
    status, answer = knowing.json("POST", PATH, CHAT)
    assert (status, "warnings" in answer) == (200, False)
    with_tools = knowing.json("POST", "/apply-template", {"messages": HELLO, "tools": TOOLS})[1]["prompt"]
    assert '"weather"' in with_tools
