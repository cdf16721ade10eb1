"""nginx in front of a server, as docs/install.md and docs/cluster.md have it."""

from __future__ import annotations

import contextlib
import os
import re
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.places import ROOT
from tests.support.processes import installed
from tests.support.waiting import PATIENCE

AROUND = """
{user} daemon off; pid {folder}/pid; error_log stderr; worker_processes 1;
events {{ worker_connections 64; }}
http {{
  access_log off;
  client_body_temp_path {folder}/a; proxy_temp_path {folder}/b; fastcgi_temp_path {folder}/c;
  uwsgi_temp_path {folder}/d; scgi_temp_path {folder}/e;
  server {{ listen 127.0.0.1:{port}; {location} }}
}}
"""


def documented(*servers: str, page: str = "install", holds: str = "location /llm/") -> str:
    """The recipe of a page of docs/ that holds this text, to servers at these addresses, in its order."""
    found = re.findall(r"```nginx\n(.*?)```", (ROOT / "docs" / f"{page}.md").read_text(), re.S)
    (recipe,) = (block for block in found if holds in block)
    addresses = iter(servers)
    replaced = re.sub(r"(?<=proxy_pass )\S+?(?=/?;)", lambda _: next(addresses), str(recipe))
    assert next(addresses, None) is None, "each server is in the recipe"
    return replaced


@contextlib.contextmanager
def nginx(folder: Path, location: str) -> Iterator[str]:
    """Runs nginx with this location; yields its address. It is installed as root on Debian."""
    program = installed("nginx-light", "nginx", "/usr/sbin/nginx")
    if program is None:
        pytest.skip("no nginx here; as root on Debian the tests install it")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    user = "" if os.geteuid() else "user root;"  # else its workers may not enter a test's folder
    file = folder / "nginx.conf"
    file.write_text(AROUND.format(user=user, folder=folder, port=port, location=location))
    with subprocess.Popen([program, "-c", str(file), "-p", str(folder)]) as process:
        try:
            _wait_for(port)
            yield f"http://127.0.0.1:{port}"
        finally:
            process.terminate()


def _wait_for(port: int) -> None:
    until = time.monotonic() + PATIENCE
    while True:
        with contextlib.suppress(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", port)).close()
            return
        assert time.monotonic() < until, "nginx does not listen"
        time.sleep(0.01)
