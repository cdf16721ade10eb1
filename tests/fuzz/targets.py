"""Targets of the Python fuzzer: the parsers of bodies, messages, lines and headers of model files.

Any exception but the parser's own error is a finding. The targets know nothing of a fuzzer.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from llama_srb.dialects import messages
from llama_srb.dialects.tasks import turns
from llama_srb.engine.codec import Lines, ProtocolError, parse
from llama_srb.models import gguf_header
from llama_srb.models.gguf_header import ModelFileError
from llama_srb.request.parse import parse_body
from llama_srb.request.values import RequestError
from tests.support.hostile import requests
from tests.support.parsers import PARSERS

READERS = tuple(PARSERS.values())


def read_body(data: bytes) -> None:
    with contextlib.suppress(RequestError):
        READERS[data[0] % len(READERS)](parse_body(data[1:]))


def read_message(data: bytes) -> None:
    with contextlib.suppress(RequestError):
        messages.parse(data)
    with contextlib.suppress(RequestError):
        turns.parse(data)


def read_lines(data: bytes) -> None:
    with contextlib.suppress(ProtocolError):
        for line in Lines().feed(data + b"\n"):
            parse(line)


def read_model(data: bytes) -> None:
    with tempfile.NamedTemporaryFile(suffix=".gguf") as file:
        file.write(b"GGUF" + data)
        file.flush()
        with contextlib.suppress(ModelFileError):
            gguf_header.read(Path(file.name))


TARGETS: tuple[Callable[[bytes], None], ...] = (
    read_body,
    read_body,
    read_body,
    read_message,
    read_lines,
    read_model,
)


def one_input(data: bytes) -> None:
    if len(data) > 1:
        TARGETS[data[0] % len(TARGETS)](data[1:])


def corpus() -> Iterator[bytes]:
    """Bodies to start from, for every parser: a fuzzer does not find JSON by chance."""
    for i, (_, body) in enumerate(requests(20 * len(READERS), seed=8)):
        yield bytes([i % len(TARGETS), i % len(READERS)]) + body
