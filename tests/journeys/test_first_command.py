"""The first commands in a terminal: those of README.md, a model of one's own, and what can be wrong."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from llama_srb.config import load
from tests.support.disks import full, small_disk
from tests.support.models import write_model
from tests.support.places import ROOT
from tests.support.terminal import PATIENCE, at_prompt, started

README = (ROOT / "README.md").read_text()
API = str(ROOT / "api.py")
EXAMPLE = re.compile(r"^ *\$ (curl .*)\n((?: *(?:data: )?[{…].*\n|\n)+)", re.M)
FIRST = re.compile(r"^\./build\.sh && (\S.*?) +# .* on port (\d+)$", re.M)


def as_written(command: str, url: str, folder: Path) -> str:
    """What a command of README.md prints when the server's port is another one."""
    address = url.removeprefix("http://")
    (folder / ".curlrc").write_text(f'connect-to = "localhost:{FIRST.findall(README)[0][1]}:{address}"\n')
    done = subprocess.run(
        ["bash", "-c", command],
        env=os.environ | {"CURL_HOME": str(folder)},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=True,
    )
    return done.stdout


def keys_of(shown: str) -> dict[str, list[str]]:
    """The keys of each kind of event, in their order."""
    events = map(json.loads, re.findall(r"^data: (\{.*\})$", shown, re.M))
    return {event["event"]: list(event) for event in events}


def test_the_readmes_first_command_serves_and_its_curls_answer_as_shown(tmp_path: Path) -> None:
    ((command, port),) = FIRST.findall(README)
    assert load({}, environ={}).port == int(port)
    (events, shown_events), (body, shown_body) = EXAMPLE.findall(README)
    with started("bash", "-c", f"exec {command}", folder=ROOT) as server:
        told = as_written(events, server.url, tmp_path)
        assert keys_of(told) == keys_of(shown_events)
        assert len(re.findall('"event": "stop"', told)) == 8
        answer = as_written(body, server.url, tmp_path)
    assert [choice["index"] for choice in json.loads(answer)["choices"]] == [0, 1]
    assert not {*re.findall(r'"(\w+)": ', shown_body)} - {*re.findall(r'"(\w+)":', answer)}


def test_a_model_of_ones_own_is_served_under_its_name(tmp_path: Path) -> None:
    write_model(tmp_path / "m.gguf", "llama")
    with started(API, "--model", "m.gguf", folder=tmp_path) as server:
        _, listed, _ = at_prompt("curl", "-s", f"{server.url}/v1/models")
        body = json.dumps({"prompt": "Once", "n": 3, "max_tokens": 4})
        _, told, _ = at_prompt("curl", "-sN", f"{server.url}/v1/completions", "-d", body)
    assert [one["id"] for one in json.loads(listed)["data"]] == ["m"]
    assert len(re.findall('"event": "stop"', told)) == 3
    assert '"event": "done"' in told


def test_ones_own_logits_processor_is_the_pages(tmp_path: Path) -> None:
    """The example of docs/logits-processor.md: its module in the folder in which the server is started."""
    page = (ROOT / "docs/logits-processor.md").read_text()
    ((name, module),) = re.findall(r"^```python\n# (\w+\.py)[^\n]*\n(.*?)^```$", page, re.M | re.S)
    command, curl = re.search(r"^```sh\n\./api\.py ([^\n]*)\n(curl .*?)^```$", page, re.M | re.S).groups()
    (tmp_path / name).write_text(module)
    with started(API, *command.split(), folder=tmp_path) as server:
        timed = curl.replace('"n": 4', '"timings_per_token": true, "n": 4')
        told = json.loads(as_written(timed, server.url, tmp_path))
        assert told["timings"]["logits_processor_ms"] > 0
        lengths = [len(choice["text"]) for choice in told["choices"]]
        bad = curl.replace('{"after": 10}', '{"after": "ten"}')
        error = json.loads(as_written(bad, server.url, tmp_path))["error"]
        assert "the logits processor: TypeError: " in error["message"]
        assert f'the logits processor:   File "{tmp_path / name}", line ' in server.messages()
        again = json.loads(as_written(curl.replace('"after": 10', '"after": 90'), server.url, tmp_path))
    assert [choice["index"] for choice in again["choices"]] == [0, 1, 2, 3]
    assert sum(len(choice["text"]) for choice in again["choices"]) > sum(lengths)


def test_the_error_of_a_taken_port_names_it() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        code, _, told = at_prompt(API, "--port", str(port))
    assert (code, told) == (
        2,
        f"llama-srb: cannot listen on 127.0.0.1 port {port}: address already in use; try --port\n",
    )


def test_a_wrong_path_of_a_model_is_one_line_that_names_it(tmp_path: Path) -> None:
    code, printed, told = at_prompt(API, "--model", "modles/storyteller.gguf", folder=tmp_path)
    assert (code, printed) == (2, "")
    assert told == "llama-srb: modles/storyteller.gguf: there is no such file\n"


@pytest.fixture
def full_disk(tmp_path: Path) -> Iterator[Path]:
    """A folder on a disk of its own, on which there is no byte left."""
    with small_disk(tmp_path / "full", "64k") as folder, full(folder):
        yield folder


def test_without_disk_space_at_the_start_the_server_serves_and_says_where(full_disk: Path) -> None:
    """As with `./api.py --prefix-cache … --stories … > log`."""
    folders = ("--prefix-cache", str(full_disk / "prefixes"), "--stories", str(full_disk / "stories"))
    with (full_disk / "log").open("w") as log, started(API, *folders, stdout=log) as server:
        _, told, _ = at_prompt("curl", "-s", f"{server.url}/v1/completions", "-d", '{"prompt": "Once"}')
        assert '"event": "done"' in told
        assert "stdout cannot be written: No space left on device; its line is: http://" in server.messages()
        server.interrupt()
        assert (server.process.wait(PATIENCE), "Traceback" in server.messages()) == (0, False)


def test_without_disk_space_for_batches_the_start_fails_with_one_line(full_disk: Path) -> None:
    code, printed, told = at_prompt(API, "--files-dir", str(full_disk / "files"))
    assert (code, printed) == (2, "")
    assert told == f"llama-srb: {full_disk}/files/batches.db cannot be used: database or disk is full\n"
