""".ci/run: which parts it runs, what it prints of them, its exit status. Its programs are stand-ins here."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.places import ROOT

PARTS = {  # the program of each part
    "build": "build.sh",
    "tests": ".venv/bin/pytest",
    "checks": "scripts/check",
    "wheel": "scripts/wheel",
    "wheel test": "scripts/wheel_test",
    "container": "scripts/container_test",
}
CLOSING = "7 passed, 1 deselected in 0.01s"


def run(folder: Path, *failing: str) -> tuple[int, list[str]]:
    """The exit status and the lines of a run in which some parts fail."""
    (folder / ".ci").mkdir()
    shutil.copy(ROOT / ".ci/run", folder / ".ci")
    for name, program in PARTS.items():
        path = folder / program
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"#!/bin/sh\ncat\necho '{CLOSING}'; exit {3 if name in failing else 0}\n")
        path.chmod(0o755)
    (folder / "python3").symlink_to(shutil.which("true") or "")  # a machine that lacks nothing
    environment = os.environ | {"PATH": f"{folder}:{os.environ['PATH']}"}
    done = subprocess.run(
        [folder / ".ci/run"],
        env=environment,
        input="typed\n",
        stdout=subprocess.PIPE,
        text=True,
        timeout=60,
    )
    return done.returncode, done.stdout.splitlines()


@pytest.mark.parametrize(
    ("failing", "not_run"),
    [
        ([], []),
        (["build"], ["tests", "checks", "wheel", "wheel test", "container"]),
        (["tests"], []),
        (["checks"], []),
        (["wheel"], ["wheel test", "container"]),
        (["wheel test"], []),
        (["container"], []),
        (["tests", "wheel test"], []),
    ],
)
def test_each_part_has_its_time_and_one_failed_part_fails_the_run(
    tmp_path: Path, failing: list[str], not_run: list[str]
) -> None:
    status, lines = run(tmp_path, *failing)
    table = lines[lines.index("part           time      CPU") + 1 :]
    shown = {line[:10].strip(): line[30:] for line in table}
    ran = [name for name in PARTS if name not in not_run]
    if "build" not in failing:  # xargs starts pytest, and tells no status of it
        assert shown.pop("read tests") == ("FAILED (123)" if "tests" in failing else "ok")
    assert shown == {"packages": "ok"} | {name: "FAILED (3)" if name in failing else "ok" for name in ran}
    assert all(re.fullmatch(r" +\d+:\d\d +\d+:\d\d  ", line[10:30]) for line in table)
    assert lines.count(CLOSING) == len(ran)  # the output of a part is shown as it is
    assert "typed" not in lines  # no part reads what comes in
    assert status == (1 if failing else 0)
