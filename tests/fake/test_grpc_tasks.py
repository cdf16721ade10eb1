"""Tasks, recalled chunks and second answers by gRPC, with the fake engine."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import grpc
import pytest

from llama_srb.grpc.calls import code_of
from llama_srb.memory.records import MemoryOutdated, MemoryUnusable
from llama_srb.serving.faults import fault_of
from tests.fake.test_tasks import KEYS, TASKS, Asked, parts_of
from tests.fake.test_then import ASKED
from tests.support.rpc import Rpc, all_of, failure, port_in
from tests.support.served import Serving, key_file
from tests.support.several import MODEL, engine_of

Code = grpc.StatusCode
USER = [{"role": "user", "content": "hi"}]
RECALLS = """
engine = "{engine}"
[memories.tales]
store = {{ file = "tales.db" }}
[tasks.story]
max_tokens = 2
recall = {{ memory = "tales", store_prompts = true }}
"""


class Started:
    """A server with tasks, and its gRPC port."""

    def __init__(self, asked: Asked, port: int) -> None:
        self.asked, self.port = asked, port

    def rpc(self, key: str = "all") -> Rpc:
        return Rpc(self.port, key=key)


@pytest.fixture
async def started(serving: Serving, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> Started:
    caplog.set_level(logging.INFO, logger="llama_srb.server")
    engines = {name: engine_of(tmp_path, name) for name in ("tale", "poem")}
    file = tmp_path / "srb.toml"
    file.write_text(TASKS.replace("{model}", str(MODEL)).format(**engines))
    keys = key_file(tmp_path / "keys", *KEYS)
    served = await serving(config=str(file), api_key_file=str(keys), grpc=0)
    return Started(Asked(served, tmp_path), port_in(caplog.text))


@pytest.mark.parametrize("fields", [{"prompt": "hi"}, {"messages": USER}], ids=["Complete", "Chat"])
async def test_a_tasks_name_is_valid_as_model(started: Started, fields: dict[str, Any]) -> None:
    async with started.rpc() as rpc:
        method = rpc.chat if "messages" in fields else rpc.complete
        events = await all_of(method(model="story", **fields))
    assert next(event.count for name, event in events if name == "start") == 3
    assert [event.length for name, event in events if name == "stop"] == [4] * 3
    (note,) = started.asked.got("poem")
    assert parts_of(note) == "(<p>)(<u>)hi(<a>)"
    assert (note["sampling"], note["private_tokens"]) == ({"temperature": 0.5}, ["<|secret|>"])
    assert started.asked.got("tale") == []


async def test_a_task_has_the_template_of_its_model_if_it_has_no_turns(started: Started) -> None:
    async with started.rpc() as rpc:
        await all_of(rpc.chat(model="brief", messages=USER, max_tokens=2))
    (note,) = started.asked.got("tale")
    assert (note["what"], note["plain_content"]) == ("chat", True)


REFUSED: list[tuple[dict[str, Any], str, Code, str]] = [  # fields, key, status, the error's code or param
    ({"model": "story", "n": 2}, "all", Code.INVALID_ARGUMENT, "locked"),
    ({"model": "story", "fields": {"temp": 1}}, "all", Code.INVALID_ARGUMENT, "locked"),
    ({"model": "story", "prompt": "a<|secret|>"}, "all", Code.INVALID_ARGUMENT, "prompt"),
    ({"model": "story", "fields": {"suffix": "b"}}, "all", Code.INVALID_ARGUMENT, "suffix"),
    ({"model": "stry"}, "all", Code.NOT_FOUND, "model_not_found"),
    ({"model": "brief"}, "story", Code.PERMISSION_DENIED, "task_not_allowed"),
    ({"model": "poem"}, "story", Code.PERMISSION_DENIED, "model_not_allowed"),
]


@pytest.mark.parametrize(("fields", "key", "status", "why"), REFUSED)
async def test_what_a_task_refuses(
    started: Started, fields: dict[str, Any], key: str, status: Code, why: str
) -> None:
    async with started.rpc(key) as rpc:
        code, message, metadata = await failure(rpc.complete(**{"prompt": "x", **fields}))
    assert (code, why in (metadata.get("error-code"), metadata.get("error-param"))) == (status, True), message
    assert started.asked.got("poem") == []


async def test_a_key_of_tasks_gets_its_task_without_a_name(started: Started) -> None:
    async with started.rpc("story") as rpc:
        assert (await all_of(rpc.complete(prompt="x")))[-1][0] == "done"
    assert [parts_of(note) for note in started.asked.got("poem")] == ["(<p>)(<u>)x(<a>)"]


async def test_the_second_answers_are_those_of_http(
    serving: Serving, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="llama_srb.server")
    served = await serving(grpc=0)
    http = await served.events(ASKED, "/v1/events")
    fields = {name: value for name, value in ASKED.items() if name != "then"}
    async with Rpc(port_in(caplog.text)) as rpc:
        ours = await all_of(rpc.complete(**fields, fields={"then": ASKED["then"]}))
    assert [event["event"] for event in http] == [name for name, _ in ours]
    names = ("index", "length", "stop", "finish_reason")
    told = [[event[name] for name in names] for event in http if event["event"] == "then"]
    assert told == [[getattr(event, name) for name in names] for kind, event in ours if kind == "then"]
    assert len(told) == 3
    assert [event.free_length for kind, event in ours if kind == "stop"] == [4] * 3
    assert ours[-1][1].completion_tokens == http[-1]["completion_tokens"] == 18


async def test_a_memory_that_a_task_cannot_use_is_a_status(
    serving: Serving, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The fake engine's vectors are not as long as the model's file says."""
    caplog.set_level(logging.INFO, logger="llama_srb.server")
    file = tmp_path / "srb.toml"
    file.write_text(RECALLS.format(engine=engine_of(tmp_path, "tale")))
    await serving(config=str(file), grpc=0)
    async with Rpc(port_in(caplog.text)) as rpc:
        code, message, metadata = await failure(rpc.complete(model="story", prompt="Which key?"))
        assert (await all_of(rpc.complete(prompt="Which key?", max_tokens=1)))[-1][0] == "done"
    assert (code, metadata["error-code"]) == (Code.UNAVAILABLE, "memory_unusable")
    assert message.startswith("memory tales: ")


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (MemoryOutdated("rebuild it"), Code.FAILED_PRECONDITION, "memory_outdated"),
        (MemoryUnusable("no such file"), Code.UNAVAILABLE, "memory_unusable"),
    ],
)
def test_faults_of_memories_have_statuses(error: Exception, status: Code, code: str) -> None:
    fault = fault_of(error)
    assert fault is not None
    assert (code_of(fault), fault.code, fault.message) == (status, code, str(error))
