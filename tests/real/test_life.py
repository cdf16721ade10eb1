"""Starts, stops and crashes of the real server and its engine, and their effects on clients."""

from __future__ import annotations

import contextlib
import json
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.support import forked
from tests.support.places import ROOT
from tests.support.serving import LASTING, Server
from tests.support.waiting import PATIENCE

API = [sys.executable, str(ROOT / "api.py")]
ENDLESS = {"prompt": "Once upon a time,", "n": 4, "max_tokens": -1, "ignore_eos": True}


def engines_of(pid: int) -> list[int]:
    """The server's child processes. api.py replaces itself by the server, so there are no others."""
    listing = subprocess.run(
        ["ps", "-A", "-o", "pid=,ppid=,stat="], capture_output=True, text=True, check=True
    )
    rows = [line.split() for line in listing.stdout.splitlines()]
    return [int(child) for child, parent, stat in rows if int(parent) == pid and not stat.startswith("Z")]


def alive(pid: int) -> bool:
    """Whether the process runs. A zombie, which waits for its new parent, does not."""
    listing = subprocess.run(
        ["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True, check=False
    )
    return bool(listing.stdout.strip()) and not listing.stdout.startswith("Z")


def eventually(holds: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < deadline, what
        time.sleep(0.02)


@dataclass(frozen=True)
class Running(Server):
    """A server whose processes a test may kill."""

    process: subprocess.Popen[str]

    @contextlib.contextmanager
    def streaming(self) -> Iterator[Iterator[dict[str, Any]]]:
        """The events of an endless request, from its first text on."""
        with contextlib.closing(self.connect()) as connection:
            connection.request("POST", "/v1/events", json.dumps(ENDLESS))
            lines = iter(connection.getresponse().readline, b"")
            events = (json.loads(line[6:]) for line in lines if line.startswith(b"data: {"))
            assert next(event for event in events if event["event"] == "stream")
            yield events


@contextlib.contextmanager
def running(*arguments: str) -> Iterator[Running]:
    command = [*API, "--port", "0", "--ctx", "16384", "--stop-grace", "0", *arguments, "--", *LASTING]
    with forked.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        try:
            assert process.stdout
            yield Running(process.stdout.readline().split()[0], process.pid, process)
        finally:
            process.terminate()


def texts_of(server: Server) -> set[str]:
    body = {"prompt": ENDLESS["prompt"], "n": 4, "max_tokens": 20, "seed": 1}
    texts = ["", "", "", ""]
    for event in server.events(body):
        if event["event"] == "stream":
            texts[event["index"]] += event["text"]
    return set(texts)


@pytest.mark.parametrize("mode", ["resident", "per-request"])
def test_a_killed_server_leaves_no_engine(mode: str) -> None:
    with running("--engine-mode", mode) as server, server.streaming():
        (engine,) = engines_of(server.process.pid)
        server.process.kill()
        eventually(lambda: not alive(engine), "the engine outlives its server")


def test_a_killed_server_leaves_no_engine_in_mid_prefill() -> None:
    with running() as server, contextlib.closing(server.connect()) as connection:
        (engine,) = engines_of(server.process.pid)
        connection.request("POST", "/v1/events", json.dumps({"prompt": "a " * 700, "n": 1, "max_tokens": -1}))
        server.process.kill()
        eventually(lambda: not alive(engine), "the engine outlives its server")


def test_per_request_mode_keeps_no_process_between_requests() -> None:
    with running("--engine-mode", "per-request") as server:
        assert len(texts_of(server)) == 4
        eventually(lambda: not engines_of(server.process.pid), "an engine stayed")
        texts = texts_of(server)
        assert texts_of(server) == texts  # the same seed in fresh processes
    with running() as server:
        assert texts_of(server) == texts  # and in an engine that stays


def test_a_second_client_is_served_while_the_first_streams() -> None:
    with running() as server, server.streaming() as events:
        assert len(texts_of(server)) == 4
        assert next(events)["event"] in ("stream", "stop")


def test_a_stopped_server_ends_streams_with_an_error_event_and_exits_with_0() -> None:
    with running() as server, server.streaming() as events:
        (engine,) = engines_of(server.process.pid)
        server.process.terminate()
        assert list(events)[-1]["event"] in ("error", "done")
        assert server.process.wait(PATIENCE) == 0
        assert not alive(engine)


def test_a_replaced_model_is_served_after_sighup_without_a_request_lost(tmp_path: Path) -> None:
    model, fresh = tmp_path / "model.gguf", tmp_path / "fresh.gguf"
    for path in (model, fresh):
        shutil.copy(ROOT / "models/storyteller.gguf", path)
    with running("--model", str(model)) as server, server.streaming() as events:
        (old,) = engines_of(server.process.pid)
        fresh.replace(model)
        server.process.send_signal(signal.SIGHUP)
        eventually(lambda: bool({*engines_of(server.process.pid)} - {old}), "no second engine")
        assert next(events)["event"] in ("stream", "stop")
        assert len(texts_of(server)) == 4
    assert not alive(old)


def test_after_sighup_with_a_broken_model_the_old_engine_serves_on(tmp_path: Path) -> None:
    model = tmp_path / "model.gguf"
    shutil.copy(ROOT / "models/storyteller.gguf", model)
    with running("--model", str(model)) as server, server.streaming() as events:
        engines = engines_of(server.process.pid)
        broken(tmp_path / "broken.gguf", 2_000_000).replace(model)
        server.process.send_signal(signal.SIGHUP)
        assert len(texts_of(server)) == 4
        assert next(events)["event"] in ("stream", "stop")
        assert engines_of(server.process.pid) == engines


def broken(path: Path, size: int | None) -> Path:
    data = (ROOT / "models/storyteller.gguf").read_bytes()
    path.write_bytes(b"not a model" if size is None else data[:size])
    return path


@pytest.mark.parametrize(
    ("size", "named"), [(0, "empty"), (None, "GGUF"), (100, "truncated"), (2_000_000, "truncated")]
)
def test_a_broken_model_is_one_line_and_exit_code_2(tmp_path: Path, size: int | None, named: str) -> None:
    model = broken(tmp_path / "broken.gguf", size)
    done = subprocess.run(
        [*API, "--model", str(model)], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert "broken.gguf" in line
    assert named in line


def test_api_py_runs_from_any_directory_with_any_python(tmp_path: Path) -> None:
    done = subprocess.run(
        ["python3", str(ROOT / "api.py"), "--help"], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert "--engine-mode" in done.stdout
