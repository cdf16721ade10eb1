"""The generated blocks of docs/api.md and README.md are what the code's tables say now."""

from __future__ import annotations

import subprocess
import sys

from tests.conftest import ROOT


def test_generated_blocks_are_not_stale() -> None:
    command = [sys.executable, str(ROOT / "scripts" / "api_docs"), "--check"]
    checked = subprocess.run(command, capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stdout + checked.stderr
