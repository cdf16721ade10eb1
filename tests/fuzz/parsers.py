"""Fuzzes the targets of targets.py, guided by coverage.

    pip install atheris && python -m tests.fuzz.parsers [-max_total_time=60]

It takes libFuzzer's options.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["llama_srb"]):
    from tests.fuzz.targets import corpus, one_input


def written(folder: Path) -> Path:
    for i, data in enumerate(corpus()):
        (folder / str(i)).write_bytes(data)
    return folder


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        atheris.Setup([*sys.argv, "-max_len=4096", str(written(Path(folder)))], one_input)
        atheris.Fuzz()
