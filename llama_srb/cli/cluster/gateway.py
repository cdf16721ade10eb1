"""smg in front of the workers: its command line, and when it is ready."""

from __future__ import annotations

import asyncio
import contextlib
import sys
import time
from dataclasses import dataclass
from urllib.parse import urlsplit

import httpx

from .programs import NotStarted, Process, Program

INSTALL = "pip install 'llama-srb[cluster]'"
POLICIES = (
    "cache_aware", "power_of_two", "least_load", "prefix_hash", "consistent_hashing", "round_robin", "random",
)  # fmt: skip
SETTINGS = {  # of smg, which the command line of a cluster does not have
    "--health-check-interval-secs": 2,  # its 60 would send requests to a worker that drains for a minute
    "--health-failure-threshold": 2,
    "--health-success-threshold": 1,
    "--load-monitor-interval": 2,  # between two looks at /v1/loads
    "--retry-max-retries": 5,  # of requests that failed before their answer began, with another worker
    "--log-level": "warn",
}
LAUNCH = """\
import os, sys
from smg.cli import main
key = os.environ.get("SMG_KEY")
main([*sys.argv[1:], *(() if key is None else ("--api-key", key))])
"""  # smg has its key only as an option; as one of this program's it would stand in the list of processes
INTERVAL = 0.1  # seconds between two questions whether it is ready
PATIENCE = 60.0  # seconds for smg to find workers that are ready, which takes it less than one


@dataclass(frozen=True, slots=True)
class Gateway:
    """smg in front of workers. drain: seconds for requests at its end. key: of itself and of the workers."""

    address: str
    metrics_port: int
    workers: tuple[str, ...]
    policy: str
    drain: int
    key: str | None

    def program(self) -> Program:
        """Its process, which is ready when it has found every worker."""
        secrets = {} if self.key is None else {"SMG_KEY": self.key}
        return Program("smg", self._command(), self._has_workers, sys.stderr, secrets)

    def _command(self) -> list[str]:
        at = urlsplit(self.address)
        given = {
            "--host": at.hostname,
            "--port": at.port,
            "--prometheus-host": at.hostname,
            "--prometheus-port": self.metrics_port,
            "--policy": self.policy,
            "--shutdown-grace-period-secs": self.drain,
            **SETTINGS,
        }
        pairs = (str(word) for pair in given.items() for word in pair)
        launch = [sys.executable, "-P", "-c", LAUNCH, "launch", "--disable-tokenizer-autoload", *pairs]
        return [*launch, "--worker-urls", *self.workers]

    async def check(self) -> None:
        """NotStarted if a worker does not tell smg its load: it would wait for it without an end."""
        async with self._client() as http:
            for worker in self.workers:
                try:
                    status = (await http.get(f"{worker}/v1/loads")).status_code
                except httpx.HTTPError as error:
                    raise NotStarted(f"{worker} does not answer: {error}") from None
                if status in (401, 403):
                    raise NotStarted(
                        f"{worker} answers {status} to smg: --api-key must be a key of the workers with the "
                        "scope metrics and those of the clients"
                    )

    async def _has_workers(self, process: Process) -> bool:
        found, until = 0, time.monotonic() + PATIENCE
        async with self._client() as http:
            while process.returncode is None:
                with contextlib.suppress(httpx.HTTPError, KeyError, ValueError):  # it does not answer yet
                    workers = (await http.get(f"{self.address}/workers")).json()["workers"]
                    found = sum(one["is_healthy"] for one in workers)
                if found == len(self.workers):
                    return True
                if time.monotonic() > until:
                    raise NotStarted(f"smg found {found} of {len(self.workers)} workers in {PATIENCE:g} s")
                await asyncio.sleep(INTERVAL)
        return False

    def _client(self) -> httpx.AsyncClient:
        headers = {} if self.key is None else {"Authorization": f"Bearer {self.key}"}
        return httpx.AsyncClient(headers=headers, trust_env=False)
