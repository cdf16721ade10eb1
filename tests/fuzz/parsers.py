"""Fuzzes what reads bodies, messages, lines and headers of model files, led by coverage.

    pip install atheris && python -m tests.fuzz.parsers [-max_total_time=60]

Whatever is neither an answer nor the parser's own error is a finding; libFuzzer's options are taken.
"""

from __future__ import annotations

import contextlib
import sys
import tempfile
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["llama_srb"]):
    from llama_srb.dialects import messages
    from llama_srb.engine.codec import Lines, ProtocolError, parse
    from llama_srb.models import gguf_header
    from llama_srb.models.gguf_header import ModelFileError
    from llama_srb.request.parse import parse_body
    from llama_srb.request.values import RequestError
    from tests.support.hostile import requests
    from tests.support.parsers import PARSERS

READERS = tuple(PARSERS.values())
FILE = Path(tempfile.mkdtemp()) / "model.gguf"


def read_body(data: bytes) -> None:
    with contextlib.suppress(RequestError):
        READERS[data[0] % len(READERS)](parse_body(data[1:]))


def read_message(data: bytes) -> None:
    with contextlib.suppress(RequestError):
        messages.parse(data)


def read_lines(data: bytes) -> None:
    with contextlib.suppress(ProtocolError):
        for line in Lines().feed(data + b"\n"):
            parse(line)


def read_model(data: bytes) -> None:
    FILE.write_bytes(b"GGUF" + data)
    with contextlib.suppress(ModelFileError):
        gguf_header.read(FILE)


TARGETS = (read_body, read_body, read_body, read_message, read_lines, read_model)


def one_input(data: bytes) -> None:
    if len(data) > 1:
        TARGETS[data[0] % len(TARGETS)](data[1:])


def seeds(folder: Path) -> Path:
    """Bodies to begin with, for every parser: nobody comes upon JSON by chance."""
    folder.mkdir()
    for i, (_, body) in enumerate(requests(20 * len(READERS), seed=8)):
        (folder / str(i)).write_bytes(bytes([i % len(TARGETS), i % len(READERS)]) + body)
    return folder


if __name__ == "__main__":
    atheris.Setup([*sys.argv, "-max_len=4096", str(seeds(FILE.with_name("seeds")))], one_input)
    atheris.Fuzz()
