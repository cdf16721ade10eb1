"""Clients and a suite of OpenAI's responses: .venv/bin/python -m tests.conformance.responses

llm-comply (PyPI) checks answers by Open Responses' schema; what differs on purpose is in DIFFERS.
openai-agents (PyPI) goes on by previous_response_id, and the AI SDK's default provider (npm) by
item_reference, each for three turns with a tool. All are installed in a folder of the cache, in a minute; the
model is a made one that calls a tool once.
"""

from __future__ import annotations

import json
import subprocess
import venv
from collections.abc import Mapping
from pathlib import Path

from benchmarks import peers
from tests.support.agent import write_agent_model
from tests.support.serving import serving

PACKAGES = ("llm-comply==0.5.0", "openai-agents==0.24.0")
MODULES = ("ai@6.0.326", "@ai-sdk/openai@3.0.141", "zod@3.25.76")
DIFFERS: Mapping[str, str] = {
    "image-input": "models here take only text",
    "error-handling": "a request without model gets the default model, as all requests here",
}

AGENTS = """
import asyncio, json, sys
from agents import Agent, Runner, function_tool, set_default_openai_client, set_tracing_disabled
from openai import AsyncOpenAI, DefaultAsyncHttpxClient

sent = []


async def seen(request):
    sent.append(json.loads(request.content))


@function_tool
def shell(command: str) -> str:
    "Runs a command."
    return "README.md"


async def main():
    set_tracing_disabled(True)
    http = DefaultAsyncHttpxClient(event_hooks={"request": [seen]})
    set_default_openai_client(AsyncOpenAI(base_url=sys.argv[1], api_key="-", max_retries=0, http_client=http))
    agent = Agent(name="a", instructions="Be brief.", model="agent", tools=[shell])
    first = await Runner.run(agent, "What is here?", auto_previous_response_id=True)
    second = await Runner.run(agent, "And now?", previous_response_id=first.last_response_id)
    third = Runner.run_streamed(agent, "And then?", previous_response_id=second.last_response_id)
    async for _ in third.stream_events():
        pass
    assert [one.final_output for one in (first, second, third)] == ["Done."] * 3
    assert len(sent) == 6 and all(one.get("previous_response_id") for one in sent[1:]), sent
    assert max(len(one["input"]) for one in sent) == 1, sent


asyncio.run(main())
"""

AI_SDK = """
import assert from "node:assert";
import { createOpenAI } from "@ai-sdk/openai";
import { generateText, stepCountIs, streamText, tool } from "ai";
import { z } from "zod";

const sent = [];
const kept = (url, asked) => { sent.push(JSON.parse(asked.body)); return fetch(url, asked); };
const model = createOpenAI({ baseURL: process.argv[2], apiKey: "-", fetch: kept })("agent");
const inputSchema = z.object({ command: z.string() });
const execute = async () => "README.md";
const tools = { shell: tool({ description: "Runs a command.", inputSchema, execute }) };
const messages = [{ role: "user", content: "What is here?" }];
for (let turn = 0; turn < 3; turn++) {
    const asked = { model, messages, tools, stopWhen: stepCountIs(5) };
    const told = turn === 1 ? streamText(asked) : await generateText(asked);
    assert.equal(await told.text, "Done.");
    messages.push(...(await told.response).messages, { role: "user", content: "And now?" });
}
const references = sent.flatMap((one) => one.input).filter((one) => one.type === "item_reference");
assert.equal(sent.length, 6);
assert.ok(references.length >= 5, JSON.stringify(references));
"""


def run(*command: str | Path, cwd: Path) -> str:
    done = subprocess.run(list(map(str, command)), cwd=cwd, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def python_of(home: Path) -> Path:
    """The python of an environment with the packages, which is made where it is missing."""
    python, mark = home / "venv/bin/python", home / "packages"
    if not mark.exists() or mark.read_text() != str(PACKAGES):
        venv.create(home / "venv", clear=True, with_pip=True)
        run(python, "-m", "pip", "install", "--quiet", *PACKAGES, cwd=home)
        mark.write_text(str(PACKAGES))
    return python


def check_suite(url: str, python: Path) -> None:
    command = [python.with_name("llm-comply"), "-u", url, "-m", "agent", "-k", "-", "--json"]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True)
    results = json.loads(done.stdout)["results"]
    failed = {one["id"]: one["errors"] for one in results if one["status"] == "failed"}
    assert failed.keys() == DIFFERS.keys(), failed
    print(f"llm-comply: {sum(one['status'] == 'passed' for one in results)} of {len(results)} pass")
    for id, reason in DIFFERS.items():
        print(f"  not {id}: {reason}")


def main() -> None:
    home = peers.cache() / "responses-clients"
    home.mkdir(parents=True, exist_ok=True)
    python = python_of(home)
    run("npm", "install", "--silent", "--no-save", "--prefix", home, *MODULES, cwd=home)
    (home / "turns.mjs").write_text(AI_SDK)
    write_agent_model(home / "agent.gguf", "sg")
    with serving("--model", str(home / "agent.gguf"), "--ctx", "65536") as server:
        url = server.url + "/v1"
        check_suite(url, python)
        run(python, "-c", AGENTS, url, cwd=home)
        print("openai-agents: three turns by previous_response_id, the last one streamed")
        run("node", "turns.mjs", url, cwd=home)
        print("AI SDK: three turns by item_reference, one of them streamed")


if __name__ == "__main__":
    main()
