"""The examples of docs/ work: answers have every key that the page shows."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientSession

from tests.support.places import ROOT
from tests.support.rows import each_row
from tests.support.serving import LASTING, Server, serving
from tests.support.waiting import PATIENCE

EXAMPLE = re.compile(r"^\$ curl ((?:.*\\\n)*.*)\n((?:(?!```|\$ ).+\n)+)", re.M)
DOCS = {name: (ROOT / "docs" / name).read_text() for name in ("api.md", "dialects.md")}
EXAMPLES = [example for text in DOCS.values() for example in EXAMPLE.findall(text)]
CONVERSATION = re.findall(r"^([<>]) (\{.*\})$", DOCS["dialects.md"], re.M)
BLOCKS = re.findall(r"^```python\n(.*?)^```$", (ROOT / "docs/python.md").read_text(), re.M | re.S)
FIVE_LINES = re.findall(r"^```bash\n(.*?)^```$", (ROOT / "docs/models.md").read_text(), re.M | re.S)[0]


def check_example(server: Server, command: str, shown: str) -> None:
    words = shlex.split(command.replace("\\\n", " "))
    body = json.loads(words[words.index("-d") + 1]) if "-d" in words else None
    status, _, answer = server.call("POST", words[-1].removeprefix("http://localhost:9090"), body)
    assert status == 200
    assert not set(re.findall(r'"(\w+)":', shown)) - set(re.findall(r'"(\w+)":', answer.decode()))


@each_row(("command", "shown"), EXAMPLES, ids=lambda text: str(text)[-40:])
def test_an_example_answers_as_shown(server: Server, command: str, shown: str) -> None:
    check_example(server, command, shown)


def test_there_are_examples() -> None:
    assert len(EXAMPLES) >= 15
    assert [side for side, _ in CONVERSATION] == [*"><<>"]
    assert len(BLOCKS) >= 4


TASKS = (ROOT / "docs/tasks.md").read_text()
TASK_FILE, MEMORY = re.findall(r"^```toml\n(.*?)^```$", TASKS, re.M | re.S)


@pytest.fixture(scope="module")
def tasks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """The server of docs/tasks.md, with its file."""
    file = tmp_path_factory.mktemp("docs") / "tasks.toml"
    file.write_text(TASK_FILE)
    assert f"llama-srb serve --config {file.name}" in TASKS
    with serving("--config", str(file)) as server:
        yield server


@each_row(("command", "shown"), EXAMPLE.findall(TASKS), ids=lambda text: str(text)[-40:])
def test_an_example_of_tasks_answers_as_shown(tasks: Server, command: str, shown: str) -> None:
    check_example(tasks, command, shown)


def test_the_numbers_of_the_example_of_tasks_are_true(
    tasks: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    body = {"model": "continue_story", "prompt": "A cat found a red ball."}
    made = tasks.json("POST", "/v1/prompt", body)[1]
    assert {int(n) for n in re.findall(r'"prompt_tokens": (\d+)', TASKS)} == {made["prompt_tokens"]}
    printed = []
    for block in re.findall(r"^```python\n(.*?)^```$", TASKS, re.M | re.S):
        exec(block.replace("http://localhost:9090", tasks.url), {"__name__": "example"})
        printed.append(capsys.readouterr().out.splitlines())
    packages, ours = printed
    assert len(packages) == len([line for line in ours if line[0].isdigit()]) == 3
    assert [line.partition("(")[0] for line in (ours[3], ours[-1])] == ["Start", "Done"]
    (address,) = re.findall(r"EventSource\(`http://localhost:9090(.*?)`\)", TASKS)
    status, _, data = tasks.call("GET", address.replace("${prompt}", "A%20cat"))
    assert (status, data[:9]) == (200, b"id: live\n")


async def test_the_chat_of_tasks_goes_as_shown(tasks: Server) -> None:
    conversation = [json.loads(line) for line in re.findall(r"^[<>] (\{.*\})$", TASKS, re.M)]
    url = tasks.url + "/v1/tasks/continue_story/ws"
    async with ClientSession() as session, session.ws_connect(url) as socket:
        for shown in conversation:
            if "op" in shown:
                await socket.send_json(shown)
                continue
            while (told := await socket.receive_json(timeout=PATIENCE))["event"] != shown["event"]:
                pass
            assert told.keys() >= shown.keys()
        assert shown["op"] == "turn"
        assert (await socket.receive_json(timeout=PATIENCE))["turn"] == 1


def test_five_lines_serve_a_model_by_name(tmp_path: Path) -> None:
    """All but the build, in a folder that has what a checkout has."""
    build, *lines = FIVE_LINES.splitlines()
    assert (build, len(lines)) == ("./build.sh", 4)
    for name in ("models", "build"):
        (tmp_path / name).symlink_to(ROOT / name)
    (tmp_path / ".venv/bin").mkdir(parents=True)
    program = tmp_path / ".venv/bin/llama-srb"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m llama_srb.cli "$@"\n')
    program.chmod(0o755)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    script = "\n".join(["set -e", *lines, "kill $!", "wait"]).replace("9090", str(port))
    told = subprocess.run(
        ["bash", "-c", script],
        cwd=tmp_path,
        env=os.environ | {"LLAMA_SRB_PORT": str(port), "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert told.returncode in (0, 128 + signal.SIGTERM), told.stderr
    assert re.findall(r'"index": ?(\d)', told.stdout) == [*"0123"]
    assert "storyteller" in told.stdout


async def test_the_websockets_conversation_goes_as_shown(server: Server) -> None:
    async with ClientSession() as session, session.ws_connect(server.url + "/v1/ws") as chat:
        for side, shown in CONVERSATION:
            if side == ">":
                await chat.send_str(shown)
            else:
                told = await chat.receive_json()
                assert (told["event"], told["id"]) == (json.loads(shown)["event"], json.loads(shown)["id"])
                assert told.keys() >= json.loads(shown).keys()
        while (told := await chat.receive_json())["event"] != "stop":
            pass
        assert told["finish_reason"] in ("cancelled", "length")


@pytest.fixture(scope="module")
def remembering(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """The server of docs/tasks.md whose task recalls, with streams that last long enough to be cancelled."""
    (recall,) = re.findall(r"^(recall = .*)$", TASKS, re.M)
    file = tmp_path_factory.mktemp("docs") / "tasks.toml"
    file.write_text("\n".join([TASK_FILE + recall, MEMORY]))
    with serving("--ctx", "16384", "--config", str(file), "--", *LASTING) as server:
        yield server


def test_pythons_examples_run_one_after_the_other(
    remembering: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    """With more tokens than shown, so that a request still runs when it is cancelled."""
    names: dict[str, Any] = {"__name__": "example"}
    with ExitStack() as left_open:
        for block in BLOCKS:
            block = block.replace("http://localhost:9090", remembering.url)
            exec(block.replace("max_tokens=60", "max_tokens=2000, ignore_eos=True"), names)
            left_open.callback(names["client"].close)
    printed = capsys.readouterr().out
    assert "3 ended: cancelled" in printed
    assert str([417, 435, 259, 392, 12]) in printed
    assert len(re.findall(r"^ (?:good|bad) since it is", printed, re.M)) == 4
    assert re.search(r"^0\.\d+ ark\.txt Noah built an ark of gopher wood\.$", printed, re.M)
    assert re.search(r"^\[0\.\d+", printed, re.M)
    assert printed.rstrip().endswith(" 8")
