"""A real server as a process of its own, for tests that talk to it as its users do."""

from __future__ import annotations

import contextlib
import http.client
import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.support.places import ROOT

LASTING = ("--override-kv", "llama.context_length=int:8192")
"""Flags of the engine: a sequence may be longer than the model was trained for, and last for seconds."""


@dataclass(frozen=True)
class Server:
    """Where it listens: http://127.0.0.1:PORT."""

    url: str
    pid: int

    def connect(self) -> http.client.HTTPConnection:
        """A connection of one's own, so that requests can overlap."""
        at = urlsplit(self.url)
        assert at.hostname
        return http.client.HTTPConnection(at.hostname, at.port, timeout=60)

    def call(self, method: str, path: str, body: Any = None) -> tuple[int, http.client.HTTPMessage, bytes]:
        """Status, headers and body of one request; bytes go as they are, all else as JSON."""
        data = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        with contextlib.closing(self.connect()) as connection:
            connection.request(method, path, data, {"Content-Type": "application/json"})
            response = connection.getresponse()
            return response.status, response.headers, response.read()

    def json(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        status, _, data = self.call(method, path, body)
        return status, json.loads(data)

    def events(self, body: Any, path: str = "/v1/completions") -> list[dict[str, Any]]:
        """The frames of a stream; comments and [DONE] left out."""
        status, _, data = self.call("POST", path, body)
        assert status == 200, data
        *parts, rest = data.decode().split("\n\n")
        assert rest == "", "the last frame is whole"
        return [json.loads(part.removeprefix("data: ")) for part in parts if part[:7] == "data: {"]


@contextlib.contextmanager
def serving(*arguments: str) -> Iterator[Server]:
    """Runs ./api.py on a free port until the end of the block."""
    command = [sys.executable, str(ROOT / "api.py"), "--port", "0", "--stop-grace", "0", *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        try:
            assert process.stdout
            line = process.stdout.readline()
            assert line.startswith("http://"), f"{command} did not start: exit code {process.wait()}"
            yield Server(line.split()[0], process.pid)
        finally:
            process.terminate()


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """One with the bundled model; conftest.py of a folder imports it."""
    with serving("--ctx", "8192") as server:
        yield server


@pytest.fixture(scope="module")
def lasting() -> Iterator[Server]:
    """One whose streams are still running when something is done about them."""
    with serving("--ctx", "16384", "--", *LASTING) as server:
        yield server
