"""Scripts that say nothing of forms get the event stream: of curl, requests and JavaScript's fetch."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable
from typing import Any

import requests

from tests.clients.captured import Captured, read
from tests.support.rows import each_row
from tests.support.serving import Server

BODIES: list[dict[str, Any]] = [
    {"prompt": "Once upon a time,", "max_tokens": 4},
    {"prompt": "Once upon a time,", "max_tokens": 4, "n": 2, "temperature": 0.7},
]
FETCH = """
const answer = await fetch(process.argv[1], {method: "POST", body: process.argv[2]});
process.stdout.write(await answer.text());
"""


def ask_by_curl(url: str, body: dict[str, Any]) -> str:
    return subprocess.check_output(["curl", "-sN", url, "-d", json.dumps(body)], text=True, timeout=60)


def ask_by_node(url: str, body: dict[str, Any]) -> str:
    command = ["node", "--input-type=module", "-e", FETCH, url, json.dumps(body)]
    return subprocess.check_output(command, text=True, timeout=60)


def ask_by_requests(url: str, body: dict[str, Any]) -> str:
    return requests.post(url, json=body, timeout=60).text


PROGRAMS: dict[str, Callable[[str, dict[str, Any]], str]] = {"curl": ask_by_curl, "node": ask_by_node}
HERE = [ask for name, ask in PROGRAMS.items() if shutil.which(name)] + [ask_by_requests]


@each_row("body", BODIES, ids=["prompt", "samplers"])
@each_row("ask", HERE, ids=lambda ask: str(ask.__name__))
def test_a_real_client_gets_events(
    server: Server, ask: Callable[[str, dict[str, Any]], str], body: dict[str, Any]
) -> None:
    answer = ask(server.url + "/v1/completions", body)
    assert answer.startswith('data: {"event": "start"')
    assert '"event": "done"' in answer


@each_row("one", read("http_clients.json"), ids=str)
def test_what_a_client_once_sent_gets_events(server: Server, one: Captured) -> None:
    status, headers, data = one.send(server)
    assert (status, headers.get_content_type(), headers["X-Form-Rule"]) == (
        200,
        "text/event-stream",
        "default",
    )
    assert data.startswith(b'data: {"event": "start"')
