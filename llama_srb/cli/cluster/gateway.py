"""smg in front of the workers: its command line, and when it is ready."""

from __future__ import annotations

import asyncio
import sys
from dataclasses import dataclass
from urllib.parse import urlsplit

import httpx

from .programs import Process, Program

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
INTERVAL = 0.1  # seconds between two questions whether it is ready


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
        return Program("smg", self._command(), self._has_workers)

    def _command(self) -> list[str]:
        at = urlsplit(self.address)
        given = {
            "--host": at.hostname,
            "--port": at.port,
            "--prometheus-host": at.hostname,
            "--prometheus-port": self.metrics_port,
            "--policy": self.policy,
            "--shutdown-grace-period-secs": self.drain,
            **({} if self.key is None else {"--api-key": self.key}),
            **SETTINGS,
        }
        pairs = (str(word) for pair in given.items() for word in pair)
        launch = [sys.executable, "-P", "-m", "smg", "launch", "--disable-tokenizer-autoload", *pairs]
        return [*launch, "--worker-urls", *self.workers]

    async def _has_workers(self, process: Process) -> bool:
        headers = {} if self.key is None else {"Authorization": f"Bearer {self.key}"}
        async with httpx.AsyncClient(headers=headers, trust_env=False) as http:
            while process.returncode is None:
                try:
                    found = (await http.get(f"{self.address}/workers")).json()["workers"]
                    if sum(one["is_healthy"] for one in found) == len(self.workers):
                        return True
                except (httpx.HTTPError, KeyError, ValueError):
                    pass  # it does not answer yet
                await asyncio.sleep(INTERVAL)
        return False
