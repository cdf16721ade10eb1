"""Runs ./api.py as a process, for tests that call it as clients do."""

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

from tests.support import forked
from tests.support.places import ROOT

LASTING = ("--override-kv", "llama.context_length=int:8192")
"""Engine flags for streams of seconds: sequences may be longer than the model was trained for."""


@dataclass(frozen=True)
class Server:
    """A running server at http://127.0.0.1:PORT."""

    url: str
    pid: int

    def connect(self) -> http.client.HTTPConnection:
        """A new connection, so that requests can overlap."""
        at = urlsplit(self.url)
        assert at.hostname
        return http.client.HTTPConnection(at.hostname, at.port, timeout=60)

    def call(
        self, method: str, path: str, body: Any = None, sent_as: str = "application/json", **headers: str
    ) -> tuple[int, http.client.HTTPMessage, bytes]:
        """Status, headers and body of one request. Bytes are sent as they are, any other body as JSON."""
        data = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        with contextlib.closing(self.connect()) as connection:
            connection.request(method, path, data, {"Content-Type": sent_as, **headers})
            response = connection.getresponse()
            return response.status, response.headers, response.read()

    def json(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        status, _, data = self.call(method, path, body)
        return status, json.loads(data)

    def events(self, body: Any, path: str = "/v1/completions") -> list[dict[str, Any]]:
        """The frames of a stream, without comments and [DONE]."""
        status, _, data = self.call("POST", path, body)
        assert status == 200, data
        *parts, rest = data.decode().split("\n\n")
        assert rest == "", "the last frame is complete"
        return [json.loads(part.removeprefix("data: ")) for part in parts if part[:7] == "data: {"]


@contextlib.contextmanager
def serving(*arguments: str) -> Iterator[Server]:
    """Runs ./api.py on a free port for the length of the block."""
    command = [sys.executable, str(ROOT / "api.py"), "--port", "0", "--stop-grace", "0", *arguments]
    with forked.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        try:
            assert process.stdout
            line = process.stdout.readline()
            assert line.startswith("http://"), f"{command} did not start: exit code {process.wait()}"
            yield Server(line.split()[0], process.pid)
        finally:
            process.terminate()


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """A server with the bundled model. A folder's conftest.py imports this fixture."""
    with serving("--ctx", "8192") as server:
        yield server


@pytest.fixture(scope="module")
def lasting() -> Iterator[Server]:
    """A server whose streams last long enough to be cancelled or extended."""
    with serving("--ctx", "16384", "--", *LASTING) as server:
        yield server
