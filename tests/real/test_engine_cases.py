"""Runs the cases of engine-tests: tables for the engine's planner, update and cells, without a model.

The cases are in tests/engine/; ./build.sh --dev compiles them.
"""

from __future__ import annotations

import subprocess

from tests.support.places import ROOT
from tests.support.waiting import PATIENCE

PROGRAM = ROOT / "build/bin/engine-tests"


def test_each_case_passes() -> None:
    """The program prints a line for each case; one that dies has printed the cases before."""
    assert PROGRAM.exists(), "./build.sh --dev makes it"
    listing = subprocess.run(
        [PROGRAM, "--list"], capture_output=True, text=True, timeout=PATIENCE, check=True
    )
    names = listing.stdout.splitlines()
    assert len(names) == len(set(names)) > 60
    done = subprocess.run([PROGRAM], capture_output=True, text=True, timeout=300, check=False)
    _, *failed = done.stdout.split("FAILED  ")
    assert (done.returncode, failed) == (0, []), done.stdout[-300:] + done.stderr[-3000:]
    assert [line.removeprefix("ok      ") for line in done.stdout.splitlines()] == names
