"""The examples of docs/batches.md work, with the real engine."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

from llama_srb.batch.lines import ENDPOINTS
from tests.support.batches import ids, read
from tests.support.bench import TIMEOUT
from tests.support.places import ROOT

PAGE = (ROOT / "docs/batches.md").read_text()
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```$", PAGE, re.M | re.S)


def names(line: Any) -> set[str]:
    """All names of fields in a line of JSON, also in one that is shortened."""
    return set(re.findall(r'"(\w+)":', line if isinstance(line, str) else str(line).replace("'", '"')))


def test_the_command_answers_the_file_as_shown(tmp_path: Path) -> None:
    (_, given), (_, command), (_, answered), (_, failed), *_ = BLOCKS
    (tmp_path / "in.jsonl").write_text(given)
    program, *arguments = shlex.split(command)
    assert program == "llama-srb"
    ended = subprocess.run(
        [sys.executable, "-m", "llama_srb.cli", *arguments],
        cwd=tmp_path, env={"PYTHONPATH": str(ROOT)}, capture_output=True, text=True, timeout=3 * TIMEOUT,
        check=False,
    )  # fmt: skip
    assert ended.returncode == 1, ended.stderr
    assert sorted(ids(read(tmp_path / "out.jsonl"))) == ["fox", "owl"]
    one = next(line for line in read(tmp_path / "out.jsonl") if line["custom_id"] == "fox")
    assert names(answered) <= names(one)
    assert len(one["response"]["body"]["choices"]) == 2
    (none,) = read(tmp_path / "out.jsonl.errors.jsonl")
    assert none["response"]["body"]["error"]["message"] in failed
    assert names(failed) <= names(none)


def test_each_path_is_named() -> None:
    row = next(line for line in PAGE.splitlines() if line.startswith("| `url` |"))
    assert {*re.findall(r"`(/\S+)`", row)} == ENDPOINTS.keys()
