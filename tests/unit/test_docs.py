"""The generated blocks of docs/ are up to date; each log line and each code of an error is documented."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator

from llama_srb.serving.faults import STATUS_OF_CODE
from tests.support.places import ROOT

STUDIO_TESTS = [
    *(ROOT / "tests" / "journeys").glob("test_*.py"),
    *(ROOT / "tests" / "studio").glob("test_*.py"),
]
STORED = ROOT / "tests" / "fake" / "test_stories.py"  # on the server

LEVELS = ("info", "warning", "error", "exception", "log")


def test_generated_blocks_are_not_stale() -> None:
    command = [sys.executable, str(ROOT / "scripts" / "api_docs"), "--check"]
    checked = subprocess.run(command, capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stdout + checked.stderr


def logged() -> Iterator[str]:
    """The formats of all log lines above debug."""
    for file in (ROOT / "llama_srb").rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Call) and ast.unparse(node.func) in {f"log.{level}" for level in LEVELS}:
                texts = [one.value for one in node.args if isinstance(one, ast.Constant)]
                yield next(text for text in texts if isinstance(text, str))


def test_each_log_line_is_explained() -> None:
    """Except lines that only quote another program."""
    section = (ROOT / "docs/monitoring.md").read_text().partition("### What each log line means")[2]
    lines = {re.sub(r"(%[-.\d]*[a-z])+", "…", format) for format in logged()}
    telling = {line for line in lines if re.search(r"[a-z]{4}", line)}
    assert len(telling) > 12
    assert [line for line in telling if f"`{line}" not in section] == []


CODE = re.compile(r'\bcode="(\w+)"|^(?:NOT_FOUND, )?NOT_ALLOWED = (.*)$', re.M)


def test_each_code_of_an_error_is_explained() -> None:
    sources = [file for file in (ROOT / "llama_srb").rglob("*.py") if file.parent.name != "client"]
    found = [pair for file in sources for pair in CODE.findall(file.read_text())]
    codes = {
        *STATUS_OF_CODE,
        *(name for one, several in found for name in [one, *re.findall(r"\w+", several)] if name),
    }
    assert len(codes) > 40
    page = (ROOT / "docs/refusals.md").read_text()
    assert [code for code in sorted(codes) if f"`{code}`" not in page] == []


def test_each_test_that_the_studio_page_names_exists() -> None:
    page = (ROOT / "docs" / "studio.md").read_text()
    named = set(re.findall(r"`(test_\w+)`", page))
    tests = {
        name for file in (*STUDIO_TESTS, STORED) for name in re.findall(r"def (test_\w+)\(", file.read_text())
    }
    assert len(named) > 20
    assert named - tests == set()
    files = set(re.findall(r"`(\w+\.test\.js)`", page))  # node's tests are named by sentences
    assert files
    assert files - {file.name for file in (ROOT / "tests/studio/pure").glob("*.test.js")} == set()
