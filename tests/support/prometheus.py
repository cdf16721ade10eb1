"""Debian's Prometheus. As root on Debian it is installed if it is missing."""

from __future__ import annotations

import contextlib
import json
import socket
import subprocess
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.processes import installed
from tests.support.waiting import PATIENCE

SCRAPE = "1s"
TIMES = {"scrape_interval": SCRAPE, "scrape_timeout": SCRAPE, "evaluation_interval": SCRAPE}


def program(name: str) -> str:
    found = installed("prometheus", name)
    if found is None:
        pytest.skip("no Prometheus here; as root on Debian the tests install it")
    return found


@contextlib.contextmanager
def prometheus(folder: Path, config: dict[str, Any]) -> Iterator[str]:
    """Runs Prometheus in a folder, with scrapes each second; yields its address."""
    (folder / "prometheus.yml").write_text(json.dumps({**config, "global": TIMES}))
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"127.0.0.1:{free.getsockname()[1]}"
    command = [
        program("prometheus"),
        f"--config.file={folder}/prometheus.yml",
        f"--web.listen-address={address}",
    ]
    command += [f"--storage.tsdb.path={folder}/data", "--log.level=error"]
    with subprocess.Popen(command, cwd=folder) as process:
        try:
            deadline = time.monotonic() + PATIENCE
            while not _answers(f"http://{address}/-/ready"):
                assert process.poll() is None
                assert time.monotonic() < deadline
            yield f"http://{address}"
        finally:
            process.terminate()


def query(url: str, path: str, **words: str) -> Any:
    """The data of one of Prometheus' answers."""
    with urllib.request.urlopen(f"{url}{path}?{urllib.parse.urlencode(words)}", timeout=PATIENCE) as answer:
        return json.load(answer)["data"]


def _answers(url: str) -> bool:
    with contextlib.suppress(OSError), urllib.request.urlopen(url, timeout=PATIENCE) as answer:
        return bool(answer.status == 200)
    return False
