"""`llama-srb cluster up` as a process, and questions to its smg and its workers."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from tests.support.waiting import PATIENCE

NO_REUSE = httpx.Limits(max_keepalive_connections=0)
"""smg may close a connection behind a refused body, and a request that was sent on it meanwhile is lost."""


@dataclass
class Cluster:
    """A running cluster. workers: addresses by name. metrics: the address of smg's own.

    key: the one that it has made; empty if it was given one.
    """

    url: str
    workers: dict[str, str]
    metrics: str
    pid: int
    key: str = ""
    http: httpx.Client = field(default_factory=lambda: httpx.Client(timeout=PATIENCE, limits=NO_REUSE))

    def __post_init__(self) -> None:
        if self.key:
            self.http.headers["Authorization"] = f"Bearer {self.key}"

    def ask(self, path: str = "/v1/completions", at: str = "", **body: Any) -> httpx.Response:
        """One request to the gateway, or to another address."""
        return self.http.post((at or self.url) + path, json={"model": "storyteller", **body})

    @contextlib.contextmanager
    def stream(self, path: str = "/v1/completions", **body: Any) -> Iterator[tuple[str, Iterator[str]]]:
        """A stream by the gateway: its worker's name, and its frames without `data: `."""
        given = {"model": "storyteller", "stream": True, **body}
        with self.http.stream("POST", self.url + path, json=given) as response:
            assert response.status_code == 200, response.read()
            lines = response.iter_lines()
            frames = (line.removeprefix("data: ") for line in lines if line.startswith("data: "))
            yield response.headers["X-Worker"], frames

    def healthy(self) -> set[str]:
        """The names of the workers that smg sends requests to."""
        found = self.http.get(f"{self.url}/workers").json()["workers"]
        urls = {one["url"] for one in found if one["is_healthy"]}
        return {name for name, url in self.workers.items() if url in urls}

    def loads(self, metric: str) -> dict[str, float]:
        """What smg's metrics say of each worker; NaN: nothing yet."""
        text = self.http.get(f"{self.metrics}/metrics").text
        found = dict(re.findall(rf'^smg_engine_{metric}{{.*?worker="(.*?)".*}} (\S+)$', text, re.M))
        return {name: float(found.get(url, "nan")) for name, url in self.workers.items()}

    def generated(self) -> dict[str, int]:
        """The tokens that each worker has generated."""
        stats = {name: self.http.get(f"{url}/v1/stats").json() for name, url in self.workers.items()}
        return {name: one["completion_tokens"] for name, one in stats.items()}

    def pids(self) -> dict[str, int]:
        """The processes of the command by name: w1, …, and smg."""
        found = {}
        for pid in Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text().split():
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                words = Path(f"/proc/{pid}/cmdline").read_text().split("\0")
                is_worker = "--worker-name" in words
                found[words[words.index("--worker-name") + 1] if is_worker else "smg"] = int(pid)
        return found

    def kill(self, name: str) -> int:
        """Ends a process by SIGKILL; returns its id."""
        pid = self.pids()[name]
        os.kill(pid, signal.SIGKILL)
        return pid

    def recover(self, name: str, killed: int) -> None:
        """Waits until a killed process is there again, and smg has found all workers."""
        at = self.workers.get(name, self.url)
        eventually(lambda: self.pids().get(name, killed) != killed)
        eventually(lambda: self._is_well(at))
        eventually(lambda: self.healthy() == self.workers.keys())

    def _is_well(self, at: str) -> bool:
        with contextlib.suppress(httpx.TransportError):
            return self.http.get(f"{at}/health").status_code == 200
        return False


def eventually(condition: Callable[[], object]) -> None:
    """Polls until the condition holds."""
    until = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < until, "it did not happen in time"
        time.sleep(0.05)


@contextlib.contextmanager
def cluster(*arguments: str) -> Iterator[Cluster]:
    """Runs `llama-srb cluster up` on free ports for the length of the block, whose processes all end."""
    command = [sys.executable, "-m", "llama_srb.cli", "cluster", "up", "--port=0", "--worker-port=0"]
    command += ["--metrics-port=0", "--drain=0", *arguments]
    with (
        tempfile.TemporaryFile("w+") as told,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=told, text=True) as process,
    ):
        try:
            assert process.stdout
            url = process.stdout.readline().strip()
            told.seek(0)
            text = told.read()
            assert url.startswith("http://"), f"{command} did not start: {text}"
            workers = dict(re.findall(r"(w\d+) (http://127\.0\.0\.1:\d+)", text))
            (metrics,) = re.findall(r"metrics of smg: (\S+)/metrics", text)
            made = re.findall(r"clients need this one until the end: (\S+)", text)
            running = Cluster(url, workers, metrics, process.pid, "".join(made))
            with running.http:
                yield running
            pids = running.pids().values()
        finally:
            process.terminate()
            process.wait(PATIENCE)
        assert [pid for pid in pids if Path(f"/proc/{pid}").exists()] == []
