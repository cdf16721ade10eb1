"""Runs each case of engine-tests: tables for the engine's planner, update and cells, without a model.

The cases are in tests/engine/; ./build.sh --dev compiles them.
"""

from __future__ import annotations

import subprocess

import pytest

from tests.support.places import ROOT

PROGRAM = ROOT / "build/bin/engine-tests"


def names() -> list[str]:
    if not PROGRAM.exists():
        return []
    listing = subprocess.run([PROGRAM, "--list"], capture_output=True, text=True, timeout=30, check=True)
    return listing.stdout.splitlines()


def test_there_are_cases_with_unique_names() -> None:
    assert PROGRAM.exists(), "./build.sh --dev makes it"
    assert len(names()) == len(set(names())) > 60


@pytest.mark.parametrize("name", names())
def test_case(name: str) -> None:
    done = subprocess.run([PROGRAM, name], capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
