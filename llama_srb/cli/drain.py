"""`llama-srb drain`: a running server takes no new requests, and finishes those that it has."""

from __future__ import annotations

import click

from llama_srb.client import Client, ClientError, RequestRefused
from llama_srb.client.core import CONNECT_TIMEOUT, URL, Call

from . import Failed, Refused, say


def _drain(url: str, api_key: str | None, wait: float, undo: bool) -> None:
    if wait and undo:
        raise click.UsageError("--wait and --undo exclude each other.", click.get_current_context())
    keys = (api_key or "").split()  # the server's variable may have several
    call = Call(f"/drain?wait={wait:g}", None, dict, method="DELETE" if undo else "POST")
    try:
        with Client(url, api_key=keys[0] if keys else None, timeout=wait + CONNECT_TIMEOUT) as server:
            state, place = server.ask(call), server.place
    except ClientError as error:
        raise (Refused if isinstance(error, RequestRefused) else Failed)(error) from error
    requests, sockets = state["requests_open"], state["websockets_open"]
    left = f"{requests} requests and {sockets} WebSockets are open"
    say(f"{place} is {state['status']}: {left}")
    if wait and (requests or sockets):
        raise Failed(f"{left} after {wait:g} s")


COMMAND = click.Command(
    "drain",
    callback=_drain,
    params=[
        click.Option(["--url"], default=URL, metavar="URL", show_default=True,
                     help="The server; also unix:FILE, its Unix socket."),
        click.Option(["--api-key"], envvar="LLAMA_SRB_API_KEY", metavar="KEY",
                     help="A key with the scope admin; LLAMA_SRB_API_KEY has it, too."),
        click.Option(["--wait"], type=click.FloatRange(0, 3600), default=0, metavar="SECONDS",
                     help="Wait so long until nothing is open; if something is left, the exit code is 1."),
        click.Option(["--undo"], is_flag=True, help="Serve requests again."),
    ],
    help="Let a server finish what it has, and take no new requests: its /health/ready turns 503, new "
    "requests get 503 with Retry-After, running ones and open WebSockets go on.",
)  # fmt: skip
