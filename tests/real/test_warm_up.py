"""--prompt-file with the real engine: the first request finds the prompt, also after a crash."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.support import forked
from tests.support.places import ROOT
from tests.support.serving import Server, serving

TEXT = "Once upon a time there was a fox who lived near the river with her three cubs. " * 8


def first(server: Server) -> tuple[int, int]:
    """The tokens of the prompt of a request, and those of them that were cached."""
    events = server.events({"prompt": TEXT + "One day", "n": 2, "max_tokens": 4}, "/v1/events")
    start = next(event for event in events if event["event"] == "start")
    return start["prompt_tokens"], start["cached_tokens"]


def engine_of(server: Server) -> int:
    """The process id of the server's only child."""
    (pid,) = Path(f"/proc/{server.pid}/task/{server.pid}/children").read_text().split()
    return int(pid)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "prompt.txt"
    path.write_text(TEXT)
    return path


def test_the_first_request_computes_only_what_follows_also_after_a_crash(file: Path) -> None:
    with serving("--ctx", "4096", "--prompt-file", str(file)) as server:
        prompt, cached = first(server)
        assert prompt - 4 <= cached < prompt
        killed = engine_of(server)
        os.kill(killed, signal.SIGKILL)
        until = time.monotonic() + 30
        while server.call("GET", "/health")[0] == 200 and time.monotonic() < until:
            time.sleep(0.005)
        while server.call("GET", "/health")[0] != 200 and time.monotonic() < until:
            time.sleep(0.02)
        assert engine_of(server) != killed
        assert first(server) == (prompt, cached)


@pytest.mark.parametrize("mode", ["resident", "per-request"])
def test_with_a_folder_of_prefixes_it_is_computed_once(file: Path, tmp_path: Path, mode: str) -> None:
    flags = ["--ctx", "4096", "--engine-mode", mode, "--prefix-cache", str(tmp_path / "prefixes")]
    command = [sys.executable, str(ROOT / "api.py"), "--port", "0", *flags, "--prompt-file", str(file)]
    counts = []
    for _ in range(2):
        with forked.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as server:
            assert server.stderr
            found = (
                re.search(r"warm-up: (\d+) tokens, (\d+) of them cached", line) for line in server.stderr
            )
            counts.append([int(number) for number in next(match for match in found if match).groups()])
            server.terminate()
            server.communicate()
    (prompt, cached), again = counts
    assert cached == 0
    assert again[0] == prompt
    assert again[1] >= prompt - 1
