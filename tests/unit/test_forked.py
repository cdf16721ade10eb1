"""tests/support/forked.py: a forked command is what the command is."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support import forked
from tests.support.places import ROOT
from tests.support.waiting import PATIENCE

PROGRAM = (sys.executable, "-m", "llama_srb.cli")


@pytest.mark.parametrize(
    "words",
    [
        ("complete", "-", "--url", "http://127.0.0.1:1"),  # stdin, a failure, its exit code
        ("config", "check", "srb.toml"),  # a folder of its own
    ],
    ids=" ".join,
)
def test_it_says_and_returns_the_same(words: tuple[str, ...], tmp_path: Path) -> None:
    (tmp_path / "srb.toml").write_text("nope = 1\n")
    options: dict[str, Any] = {"cwd": tmp_path, "input": "Once", "capture_output": True, "text": True}
    options["env"] = {**os.environ, "PYTHONPATH": str(ROOT)}
    own, fork = (run([*PROGRAM, *words], **options) for run in (subprocess.run, forked.run))
    assert (fork.returncode, fork.stdout, fork.stderr) == (own.returncode, own.stdout, own.stderr)
    assert own.returncode != 0


def test_it_is_a_child_of_its_own_session_that_dies_by_a_signal() -> None:
    with forked.Popen([*PROGRAM, "complete", "-"], stdin=subprocess.PIPE, start_new_session=True) as process:
        assert forked.FIRST, "it was started, not forked"
        while os.getsid(process.pid) != process.pid:
            assert process.poll() is None
        process.send_signal(signal.SIGKILL)
        assert process.wait(PATIENCE) == -signal.SIGKILL
