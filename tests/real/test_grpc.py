"""The gRPC API with the real engine, by grpcio's own client."""

from __future__ import annotations

import logging
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aiohttp
import grpc
import pytest

from llama_srb.config import load
from tests.support import forked
from tests.support.places import ROOT
from tests.support.rpc import SERVING, Rpc, all_of, failure, port_in
from tests.support.served import running

RECALLS = """
[memories.tales]
store = { file = "tales.db" }
[tasks.story]
max_tokens = 2
recall = { memory = "tales", store_prompts = true, retrieve_prompts = 2 }
"""


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    """The gRPC port of a server with the bundled model."""
    command = [sys.executable, str(ROOT / "api.py"), "--port", "0", "--grpc", "0", "--stop-grace", "0"]
    with forked.Popen(
        [*command, "--ctx", "8192"], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stderr is not None
            found = (re.search(r"gRPC listens on \S+ port (\d+)", line) for line in process.stderr)
            yield int(next(match[1] for match in found if match))
        finally:
            process.terminate()
            process.communicate()


async def test_eight_streams_are_the_same_again_with_the_same_seed(port: int) -> None:
    async with Rpc(port) as rpc:
        assert await rpc.serves() == SERVING
        runs = []
        for _ in range(2):
            events = await all_of(rpc.complete(prompt="Once upon a time,", n=8, max_tokens=24, seed=7))
            texts = dict.fromkeys(range(8), "")
            for name, event in events:
                if name == "stream":
                    texts[event.index] += event.text
            assert events[-1][0] == "done"
            runs.append((texts, events[-1][1]))
    assert len(set(runs[0][0].values())) > 1
    assert runs[1][1].cached_tokens >= runs[1][1].prompt_tokens - 1 > 0
    assert runs[0][0] == runs[1][0]


async def test_a_chat_and_vectors_are_answered(port: int) -> None:
    async with Rpc(port) as rpc:
        events = await all_of(
            rpc.chat(messages=[{"role": "user", "content": "Tell me a story."}], max_tokens=8)
        )
        assert [name for name, _ in events if name in ("start", "stop", "done")] == ["start", "stop", "done"]
        reply = await rpc.embed(input=["a cat", "a dog"])
        assert [round(sum(x * x for x in one.values), 3) for one in reply.data] == [1.0, 1.0]


async def test_a_cancelled_call_gives_its_slots_back(port: int) -> None:
    async with Rpc(port) as rpc:
        call = rpc.complete(prompt="Once", n=32, max_tokens=2000, fields={"ignore_eos": True})
        await anext(aiter(call))
        call.cancel()
        events = await all_of(rpc.complete(prompt="The", n=32, max_tokens=4))
        assert events[-1][0] == "done"


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"grammar": 'root ::= "a'}, "grammar"),
        ({"json_schema": {"type": "nothing"}}, "json_schema"),
    ],
)
async def test_what_the_engine_refuses_is_an_invalid_argument(
    port: int, fields: dict[str, object], message: str
) -> None:
    async with Rpc(port) as rpc:
        code, text, metadata = await failure(rpc.complete(prompt="x", n=1, fields=fields))
    assert (code, metadata["error-param"]) == (grpc.StatusCode.INVALID_ARGUMENT, message)
    assert text


async def test_a_prompt_beyond_the_context_is_an_invalid_argument(port: int) -> None:
    async with Rpc(port) as rpc:
        code, _, metadata = await failure(rpc.complete(prompt="word " * 20_000, n=1))
    assert (code, metadata["error-code"]) == (grpc.StatusCode.INVALID_ARGUMENT, "context_exceeded")


async def test_the_start_event_names_what_a_task_recalls(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="llama_srb.server")
    file = tmp_path / "srb.toml"
    file.write_text(RECALLS)
    settings = load({"port": 0, "grpc": 0, "ctx": 4096, "stop_grace": 0}, config=str(file), environ={})
    async with running(settings) as url, Rpc(port_in(caplog.text)) as rpc:

        async def start_of(**fields: object) -> Any:
            events = await all_of(rpc.complete(n=1, **fields))
            return next(event for name, event in events if name == "start")

        texts = ("The red key.", "The blue key.", "Which key?")
        starts = [await start_of(model="story", prompt=text) for text in texts]
        assert [len(start.recalled) for start in starts] == [0, 1, 2]
        assert len((await start_of(prompt="Which key?", max_tokens=1)).recalled) == 0
        body = {"prompt": "Which key?", "n": 1}
        async with (
            aiohttp.ClientSession() as http,
            http.post(url + "/v1/tasks/story/completions", json=body) as response,
        ):
            header = response.headers["X-Recalled"]
    assert header == ", ".join(f"{one.id};score={one.score}" for one in starts[2].recalled)


async def test_texts_that_finish_and_prune_end_say_so(port: int) -> None:
    fields = {
        "ignore_eos": True,
        "prune": {"at": [4], "keep": 5},
        "finish": {"first": 2},
        "rank_by": "logprob",
    }
    async with Rpc(port) as rpc:
        events = await all_of(rpc.complete(prompt="Once", n=8, max_tokens=12, fields=fields))
    stops = [event for name, event in events if name == "stop"]
    assert Counter(stop.finish_reason for stop in stops) == {"length": 2, "surplus": 3, "pruned": 3}
    done = events[-1][1]
    best = {stop.index for stop in stops if stop.finish_reason == "length"}
    assert set(done.ranking[:2]) == best, "incomplete texts come last"
    assert done.timings["saved_tokens"] >= 3 * 8
