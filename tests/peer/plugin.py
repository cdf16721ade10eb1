"""A pytest plugin for llama.cpp's tests: the tested server, free ports, no download, PEER_RESULTS."""

from __future__ import annotations

import json
import os
import socket
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import utils  # of llama.cpp's tests
from stand_in import Popen

RANKS = ("passed", "skipped", "failed")  # of several phases of a test the worst counts
results: dict[str, str] = {}
start = utils.ServerProcess.start


def start_on_free_port(server: Any, timeout_seconds: int = utils.DEFAULT_HTTP_TIMEOUT) -> None:
    os.environ.pop("PYTHONPATH", None)  # the tests' own, which pytest has read
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        server.server_port = probe.getsockname()[1]
    start(server, timeout_seconds)


utils.ServerProcess.start = start_on_free_port
utils.subprocess = SimpleNamespace(**{**vars(subprocess), "Popen": Popen})
utils.ServerPreset.load_all = staticmethod(lambda: None)  # it downloads all models


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    before = results.get(report.nodeid, RANKS[0])
    results[report.nodeid] = max(before, report.outcome, key=RANKS.index)


def pytest_sessionfinish(session: pytest.Session) -> None:
    if not hasattr(session.config, "workerinput"):  # not in the processes of xdist
        Path(os.environ["PEER_RESULTS"]).write_text(json.dumps(results, indent=1, sort_keys=True) + "\n")
