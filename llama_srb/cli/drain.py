"""`llama-srb drain`: a running server takes no new requests, and finishes those that it has."""

from __future__ import annotations

from typing import Any

import click
import httpx

from llama_srb.client import ClientError, RequestRefused
from llama_srb.client.core import CONNECT_TIMEOUT, URL, Connection, as_client_errors, refusal

from . import Failed, Refused, say


def _drain(url: str, api_key: str | None, wait: float, undo: bool) -> None:
    if wait and undo:
        raise click.UsageError("--wait and --undo exclude each other.", click.get_current_context())
    keys = (api_key or "").split()  # the server's variable may have several
    server = Connection(url, keys[0] if keys else None)
    try:
        state = _ask(server, wait, "DELETE" if undo else "POST")
    except ClientError as error:
        raise (Refused if isinstance(error, RequestRefused) else Failed)(error) from error
    requests, sockets = state["requests_open"], state["websockets_open"]
    left = f"{requests} requests and {sockets} WebSockets are open"
    say(f"{server.url} is {state['status']}: {left}")
    if wait and (requests or sockets):
        raise Failed(f"{left} after {wait:g} s")


def _ask(server: Connection, wait: float, method: str) -> Any:
    timeout, query = (
        httpx.Timeout(CONNECT_TIMEOUT, read=wait + CONNECT_TIMEOUT),
        {"wait": wait} if wait else {},
    )
    with as_client_errors(server.url), httpx.Client(timeout=timeout) as http:
        response = http.request(method, f"{server.url}/drain", params=query, headers=server.headers)
    if response.status_code != 200:
        raise refusal(response)
    return response.json()


COMMAND = click.Command(
    "drain",
    callback=_drain,
    params=[
        click.Option(["--url"], default=URL, metavar="URL", show_default=True, help="The server."),
        click.Option(["--api-key"], envvar="LLAMA_SRB_API_KEY", metavar="KEY",
                     help="A key with the scope admin; LLAMA_SRB_API_KEY has it, too."),
        click.Option(["--wait"], type=click.FloatRange(0, 3600), default=0, metavar="SECONDS",
                     help="Wait so long until nothing is open; if something is left, the exit code is 1."),
        click.Option(["--undo"], is_flag=True, help="Serve requests again."),
    ],
    help="Let a server finish what it has, and take no new requests: its /health/ready turns 503, new "
    "requests get 503 with Retry-After, running ones and open WebSockets go on.",
)  # fmt: skip
