"""Records what the openai package sends for responses, with a model that calls a tool once.

By hand: python -m tests.clients.capture.openai_responses writes openai_responses.json.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable, Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

from openai import BadRequestError, OpenAI, pydantic_function_tool
from openai.types.responses import ResponseInputParam
from pydantic import BaseModel, Field

from tests.clients.capture.agents import Kept, write
from tests.clients.capture.proxy import Proxy, recording
from tests.clients.capture.texts import Texts
from tests.support.agent import write_agent_model
from tests.support.serving import serving

CLIENT = f"openai {version('openai')}"
MODEL, QUESTION = "storyteller", "What is in this folder?"
LIST: Any = {
    "type": "function", "name": "shell", "description": "Runs a command.", "strict": True,
    "parameters": {
        "type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"],
        "additionalProperties": False,
    },
}  # fmt: skip
WRITE: Any = {"type": "custom", "name": "write", "description": "Writes a file."}


class Answer(BaseModel):
    kind: Literal["file", "folder"]


class Shell(BaseModel):
    """Runs a command."""

    command: str = Field(description="In sh.")


def create(client: OpenAI) -> None:
    client.responses.create(model=MODEL, input=QUESTION)


def settings(client: OpenAI) -> None:
    client.responses.create(
        model=MODEL, input=[{"role": "user", "content": [{"type": "input_text", "text": QUESTION}]}],
        instructions="Be brief.", max_output_tokens=20, temperature=0.5, top_p=0.9, store=False, user="u",
        metadata={"task": "1"}, truncation="auto", reasoning={"effort": "low", "summary": "auto"},
        text={"verbosity": "low"}, top_logprobs=2, include=["message.output_text.logprobs"],
    )  # fmt: skip


def stream(client: OpenAI) -> None:
    for _ in client.responses.create(model=MODEL, input=QUESTION, stream=True):
        pass


def cut_off(client: OpenAI) -> None:
    for _ in client.responses.create(model=MODEL, input=QUESTION, stream=True, max_output_tokens=2):
        pass


def tools(client: OpenAI) -> None:
    """A call, and its result in the next request."""
    asked: ResponseInputParam = [{"role": "user", "content": QUESTION}]
    answer = client.responses.create(model=MODEL, input=asked, tools=[LIST], tool_choice="auto")
    asked += answer.output  # type: ignore[arg-type]
    (call,) = (item for item in answer.output if item.type == "function_call")
    asked.append({"type": "function_call_output", "call_id": call.call_id, "output": "README.md"})
    client.responses.create(model=MODEL, input=asked, tools=[LIST])


def required(client: OpenAI) -> None:
    choice: Any = {"type": "function", "name": "shell"}
    client.responses.create(
        model=MODEL, input=QUESTION, tools=[LIST, WRITE], tool_choice=choice, parallel_tool_calls=False
    )


def custom(client: OpenAI) -> None:
    client.responses.create(
        model=MODEL, input=QUESTION, tools=[WRITE, {"type": "web_search"}], tool_choice="required"
    )


def parse(client: OpenAI) -> None:
    client.responses.parse(model=MODEL, input=QUESTION, text_format=Answer)


def parse_tool(client: OpenAI) -> None:
    client.responses.parse(
        model=MODEL, input=QUESTION, tools=[pydantic_function_tool(Shell)], tool_choice="required"
    )


def helper(client: OpenAI) -> None:
    with client.responses.stream(model=MODEL, input=QUESTION, text_format=Answer) as events:
        events.get_final_response()


def stored(client: OpenAI) -> None:
    with contextlib.suppress(BadRequestError):
        client.responses.create(model=MODEL, input=QUESTION, previous_response_id="resp_1")


def background(client: OpenAI) -> None:
    with contextlib.suppress(BadRequestError):
        client.responses.create(model=MODEL, input=QUESTION, background=True)


ROUNDS: tuple[Callable[[OpenAI], None], ...] = (
    create, settings, stream, cut_off, tools, required, custom, parse, parse_tool, helper, stored, background,
)  # fmt: skip


def play(client: OpenAI, proxy: Proxy) -> Iterator[Kept]:
    for ask in ROUNDS:
        ask(client)
        requests, name = proxy.taken(), ask.__name__.replace("_", " ")
        for i, request in enumerate(requests, 1):
            yield Kept(CLIENT, f"{name}, {i}" if len(requests) > 1 else name, request)


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        model = Path(folder) / "agent.gguf"
        write_agent_model(model)
        with serving("--model", str(model), "--ctx", "65536") as server:
            at = urlsplit(server.url)
            with recording(0, (str(at.hostname), int(at.port or 0))) as proxy:
                url = f"http://127.0.0.1:{proxy.port}/v1"
                with OpenAI(base_url=url, api_key="-", max_retries=0) as client:
                    kept = list(play(client, proxy))
    with serving() as server:
        source = "the openai package, by tests/clients/capture/openai_responses.py"
        write("openai_responses.json", source, kept, Texts(server, QUESTION))


if __name__ == "__main__":
    main()
