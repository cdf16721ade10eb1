"""The examples of docs/batches.md work, with the real engine."""

from __future__ import annotations

import json
import re
import shlex
import sys
import warnings
from pathlib import Path
from typing import Any, get_args

import pytest

from llama_srb.batch.lines import ENDPOINTS
from llama_srb.batch.records import Status
from tests.support import forked
from tests.support.batches import ids, read
from tests.support.places import ROOT
from tests.support.serving import serving
from tests.support.waiting import PATIENCE

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
    ended = forked.run(
        [sys.executable, "-m", "llama_srb.cli", *arguments],
        cwd=tmp_path, env={"PYTHONPATH": str(ROOT)}, capture_output=True, text=True, timeout=PATIENCE,
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


def test_the_program_runs_its_batch_on_a_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (program,) = (text for kind, text in BLOCKS if kind == "python")
    (tmp_path / "in.jsonl").write_text(BLOCKS[0][1])
    monkeypatch.chdir(tmp_path)
    (command,) = re.findall(r"^llama-srb serve (.*)$", PAGE, re.M)
    with serving(*shlex.split(command)) as server, warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)  # the program does not close its client
        exec(program.replace("http://localhost:9090", server.url), names := {"__name__": "example"})
        names["client"].close()
    told = capsys.readouterr().out
    assert "completed BatchRequestCounts(completed=2, failed=1, total=3)" in told
    assert sorted(json.loads(line)["custom_id"] for line in told.splitlines()[1:] if line) == ["fox", "owl"]


def test_each_status_is_explained() -> None:
    section = PAGE.partition("| status | meaning |")[2].partition("\n\n")[0]
    cells = " ".join(re.findall(r"^\| (.*?) \|", section, re.M))
    assert {*re.findall(r"`(\w+)`", cells)} == {*get_args(Status)}


def test_each_path_is_named() -> None:
    row = next(line for line in PAGE.splitlines() if line.startswith("| `url` |"))
    assert {*re.findall(r"`(/\S+)`", row)} == ENDPOINTS.keys()
