"""Records what the anthropic package sends: python -m tests.clients.capture.anthropic_package, by hand."""

from __future__ import annotations

import asyncio
import contextlib
import json
import tempfile
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

from anthropic import Anthropic, APIStatusError, AsyncAnthropic, beta_tool
from pydantic import BaseModel

from tests.clients.capture.proxy import recording
from tests.clients.capture.texts import as_json
from tests.clients.captured import FOLDER
from tests.support.chats import HELLO, TOOLS, scripted
from tests.support.models import write_chat_model
from tests.support.serving import serving

WEATHER: Any = {
    "name": "weather", "description": "Of a city.", "input_schema": TOOLS[0]["function"]["parameters"],
    "cache_control": {"type": "ephemeral"},
}  # fmt: skip
CALL: Any = {"type": "tool_use", "id": "toolu_1", "name": "weather", "input": {"unit": "C", "city": "Ulm"}}
RESULT: Any = {"type": "tool_result", "tool_use_id": "toolu_1", "content": [{"type": "text", "text": "7"}]}
TURNS: Any = [
    *HELLO,
    {"role": "assistant", "content": [{"type": "text", "text": "Let me look."}, CALL]},
    {"role": "user", "content": [RESULT, {"type": "text", "text": "And in Bonn?"}]},
]
PIXEL: Any = {
    "type": "image", "source": {"type": "base64", "media_type": "image/gif", "data": "R0lGODlhAQABAAAAACw="},
}  # fmt: skip


class Place(BaseModel):
    city: Literal["Ulm", "Bonn"]


@beta_tool
def weather(city: Literal["Ulm", "Bonn"]) -> str:
    """The weather in a city."""
    return "7 degrees"


def _asked(**fields: Any) -> dict[str, Any]:
    return {
        "model": "chat",
        "messages": HELLO,
        "max_tokens": 8,
        "extra_body": scripted(),
        **fields,
    }


def _streamed(client: Anthropic, **fields: Any) -> None:
    with client.messages.stream(**_asked(**fields)) as events:
        events.get_final_message()


def _run_tools(client: Anthropic) -> None:
    script = scripted("<tool_call>", "</tool_call>")
    script["logit_bias"].append([0, 300])
    fields = _asked(tools=[weather], tool_choice={"type": "any"}, max_tokens=400, extra_body=script)
    list(client.beta.messages.tool_runner(**fields, max_iterations=2))


async def _ask_asynchronously(url: str) -> None:
    async with AsyncAnthropic(base_url=url, auth_token="dummy", max_retries=0) as client:
        await client.messages.create(**_asked())


def _count(client: Anthropic, **fields: Any) -> None:
    client.messages.count_tokens(**{"model": "chat", "messages": HELLO, **fields})


ROUNDS: dict[str, Callable[[Anthropic], object]] = {
    "message": lambda client: client.messages.create(**_asked()),
    "events": lambda client: list(client.messages.create(stream=True, **_asked())),
    "stream helper": _streamed,
    "system and stop": lambda client: client.messages.create(
        **_asked(system=[{"type": "text", "text": "Be brief."}], stop_sequences=["END"])
    ),
    "thinking": lambda client: _streamed(client, thinking={"type": "enabled", "budget_tokens": 1024}),
    "tools": lambda client: client.messages.create(**_asked(tools=[WEATHER], tool_choice={"type": "auto"})),
    "tools in a stream": lambda client: _streamed(client, tools=[WEATHER], messages=TURNS),
    "tool runner": _run_tools,
    "parse": lambda client: client.messages.parse(**_asked(max_tokens=200), output_format=Place),
    "beta": lambda client: client.beta.messages.create(
        **_asked(), betas=["context-management-2025-06-27"], service_tier="auto",
        context_management={"edits": [{"type": "clear_tool_uses_20250919"}]},
    ),
    "count": _count,
    "count with tools": lambda client: _count(client, tools=[WEATHER], messages=TURNS, system="Be brief."),
    "too few tokens": lambda client: client.messages.create(**_asked(max_tokens=-8)),
    "image": lambda client: client.messages.create(**_asked(messages=[{"role": "user", "content": [PIXEL]}])),
    "asynchronous": lambda client: asyncio.run(_ask_asynchronously(str(client.base_url))),
    "models": lambda client: list(client.models.list()),
}  # fmt: skip


def main() -> None:
    found: list[str] = []
    name = f"anthropic {version('anthropic')}"
    with tempfile.TemporaryDirectory() as scratch:
        model = Path(scratch, "chat.gguf")
        write_chat_model(model)
        with serving("--model", str(model), "--ctx", "16384") as server:
            at = urlsplit(server.url)
            with recording(0, (str(at.hostname), int(at.port or 0))) as proxy:
                url = f"http://127.0.0.1:{proxy.port}"
                client = Anthropic(base_url=url, api_key="dummy", max_retries=0)
                for what, ask in ROUNDS.items():
                    with contextlib.suppress(APIStatusError):
                        ask(client)
                    found += [
                        json.dumps(as_json(name, what, one), ensure_ascii=False) for one in proxy.taken()
                    ]
    lines = ",\n  ".join(found)
    (FOLDER / "anthropic.json").write_text(f'{{"requests": [\n  {lines}\n]}}\n')


if __name__ == "__main__":
    main()
