"""Clusters of Ray on this computer. scripts/check-ray runs these tests; without Ray none is collected."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.support.places import ROOT
from tests.support.serving import LASTING, Server

HAS_RAY = importlib.util.find_spec("ray") is not None
collect_ignore_glob = [] if HAS_RAY else ["test_*.py"]
LOOPBACK = {
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
    "RAY_USAGE_STATS_ENABLED": "0",
}  # as docs/ray.md has them
if HAS_RAY:
    os.environ |= LOOPBACK  # which are read with the modules
    with warnings.catch_warnings(action="ignore"):  # their models use what newer pydantics warn of
        importlib.import_module("ray.serve")
FLAGS = ("--chat-template", "chatml", "--threads", "1")
STORE = 100 << 20
START = 120.0  # seconds until an application answers


@pytest.fixture(autouse=True)
def no_orphans() -> None:
    """Ray's processes live as long as the module's cluster, which ends them."""


@contextlib.contextmanager
def cluster_of(cpus: int) -> Iterator[Any]:
    """A cluster of one node, on loopback, with room for so many servers."""
    with tempfile.TemporaryDirectory(prefix="srb-", dir="/tmp") as folder:  # paths of sockets are short
        os.environ |= {**LOOPBACK, "RAY_TMPDIR": folder, "PYTHONPATH": str(ROOT)}
        from ray.cluster_utils import Cluster  # it reads the variables

        made = Cluster(initialize_head=True, head_node_args=node(num_cpus=cpus))
        try:
            yield made
        finally:
            made.shutdown()


def open_at(served: Server, worker: str) -> int:
    """How many requests a server has."""
    status, stats = served.json("GET", f"/w/{worker}/v1/stats")
    assert status == 200
    return int(stats["requests_open"])


def open_at_all(served: Server) -> int:
    return sum(open_at(served, worker) for worker in workers_of(served))


def node(**arguments: Any) -> dict[str, Any]:
    return {"object_store_memory": STORE, "include_dashboard": False, **arguments}


@contextlib.contextmanager
def application(
    cluster: Any, workers: int, args: Mapping[str, Any] | None = None, **changes: Any
) -> Iterator[Server]:
    """Runs `serve run` with packaging/ray.yaml: so many servers and two ingresses, on a free port.

    args: more settings of the servers. changes: of their autoscaling.
    """
    import yaml

    port = free_port()
    asked = yaml.safe_load((ROOT / "packaging/ray.yaml").read_text())
    asked["http_options"]["port"] = port
    (app,) = asked["applications"]
    app["args"] |= {"ctx": 8192, "engine_args": [*LASTING, *FLAGS], **(args or {})}
    servers, ingress = app["deployments"]
    servers["autoscaling_config"] |= {"min_replicas": workers, "max_replicas": workers, **changes}
    ingress["num_replicas"] = 2
    with tempfile.TemporaryDirectory() as folder:
        file, log = Path(folder) / "ray.yaml", Path(folder) / "log"
        file.write_text(yaml.safe_dump(asked))
        command = [str(Path(sys.executable).parent / "serve"), "run", "--address", cluster.address, str(file)]
        with log.open("wb") as written, subprocess.Popen(command, stdout=written, stderr=written) as process:
            served = Server(f"http://127.0.0.1:{port}", process.pid)
            try:
                until(lambda: len(workers_of(served)) >= workers, lambda: log.read_text(errors="replace"))
                yield served
            finally:
                process.send_signal(signal.SIGINT)


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port


def until(condition: Any, why: Any = lambda: "") -> None:
    """Polls until the condition holds."""
    deadline = time.monotonic() + START
    while not condition():
        assert time.monotonic() < deadline, why()[-4000:]
        time.sleep(0.05)


def workers_of(served: Server) -> list[str]:
    """The names of the servers that run; none while there is no answer."""
    with contextlib.suppress(OSError, ValueError):
        status, answer = served.json("GET", "/w")
        return list(answer["workers"]) if status == 200 else []
    return []
