"""Compiles programs for tests, with the flags of llama.cpp's objects and linked with its libraries."""

from __future__ import annotations

import json
import shlex
import subprocess
from pathlib import Path

import pytest

from benchmarks import peers


def tree() -> Path:
    """The folder of llama.cpp's patched source."""
    return Path(peers.setting("CMAKE_HOME_DIRECTORY"))


def libraries() -> list[str]:
    """The libraries of the matrix products, to be linked after objects that may replace parts of them."""
    found = [path for name in ("ggml-cpu", "ggml-base") for path in peers.objects().rglob(f"lib{name}.a")]
    if len(found) != 2:
        pytest.skip("the engine is a portable build: there are no static libraries to link with")
    return [*map(str, found), "-fopenmp", "-lpthread", "-ldl", "-lm"]


def flags_of(source: str) -> list[str]:
    """The command that compiled a file of llama.cpp, without its source and output files."""
    entries = json.loads((peers.objects() / "compile_commands.json").read_text())
    entry = next(entry for entry in entries if entry["file"] == str(tree() / source))
    words = shlex.split(entry["command"])
    return words[: words.index("-o")]


def run(command: list[str], folder: Path) -> str:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, f"{shlex.join(command)}\n{done.stderr[-3000:]}"
    return done.stdout
