"""`llama-srb cluster`: several servers on this machine behind smg, Shepherd Model Gateway.

It starts and watches processes: requests go from smg to a server, and never through this one.
"""

from __future__ import annotations

import asyncio
import socket
import sys
from collections.abc import Sequence
from contextlib import AsyncExitStack, ExitStack
from dataclasses import dataclass
from importlib.util import find_spec

import click
from click.core import ParameterSource

from llama_srb import config
from llama_srb.cli import Failed, Refused, say
from llama_srb.cli.complete import until_a_signal
from llama_srb.cli.options import Command

from . import gateway
from .programs import NotStarted, Program, kept, prints_address, stopped

HOST, MOST = "127.0.0.1", 64  # workers
OURS = {  # options of serve that a worker gets from here: the reason why they are refused
    "--host": f"workers listen on {HOST}",
    "--api-prefix": "smg asks workers for paths without a prefix; a proxy in front of smg may have one",
    "--grpc": "several workers cannot listen on one port",
    "--reuse-port": "each worker has a port of its own",
    "--tls-cert": "smg and workers talk on this machine; a proxy in front of smg has the certificate",
    "--worker-name": "workers are named w1, w2 and so on",
}


@dataclass(frozen=True, slots=True)
class _Plan:
    """A cluster before it is started. server: more arguments of each worker's serve."""

    workers: dict[str, int]  # by name: its port
    server: tuple[str, ...]
    gateway: gateway.Gateway

    def program(self, name: str) -> Program:
        """The process of a worker."""
        own = ["--host", HOST, "--port", str(self.workers[name]), "--worker-name", name, "--api-prefix", ""]
        ours, engine = config.split_arguments(self.server)
        more = () if engine is None else ("--", *engine)
        command = [sys.executable, "-P", "-m", "llama_srb.cli", "serve", *ours, *own, *more]
        return Program(name, command, prints_address)


def _up(
    workers: int, port: int, worker_port: int, metrics_port: int, policy: str, drain: int,
    api_key: str | None, server: tuple[str, ...],
) -> None:  # fmt: skip
    context = click.get_current_context()
    server = (*server, *(() if context.obj is None else ("--", *context.obj)))
    _refuse_ours(server, context)
    if find_spec("smg") is None:
        raise Refused(f"cluster needs the package smg: {gateway.INSTALL}")
    is_given = context.get_parameter_source("api_key") is ParameterSource.COMMANDLINE
    if is_given and not any(word.startswith("--api-key-file") for word in server):
        server = ("--api-key", str(api_key), *server)  # with a file it is a key of the file
    ports = _ports([port, metrics_port, *(worker_port and worker_port + i for i in range(workers))])
    named = {f"w{i}": each for i, each in enumerate(ports[2:], 1)}
    keys = (api_key or "").split()  # the server's variable may have several
    front = gateway.Gateway(
        address=f"http://{HOST}:{ports[0]}",
        metrics_port=ports[1],
        workers=tuple(f"http://{HOST}:{each}" for each in named.values()),
        policy=policy,
        drain=drain,
        key=keys[0] if keys else None,
    )
    try:
        asyncio.run(until_a_signal(lambda: _run(_Plan(named, server, front))))
    except NotStarted as error:
        raise Failed(error) from None
    except ExceptionGroup as group:
        if (others := group.split(NotStarted)[1]) is not None:
            raise others from None
        raise Failed(group.exceptions[0]) from None


def _refuse_ours(server: Sequence[str], context: click.Context) -> None:
    for argument in server:
        if argument == "--":
            return
        if (reason := OURS.get(argument.partition("=")[0])) is not None:
            raise click.UsageError(f"{argument} is not for a cluster: {reason}.", context)


def _ports(wanted: Sequence[int]) -> list[int]:
    """The ports, with free ones in place of 0; Refused if one of them is in use."""
    found = []
    with ExitStack() as stack:
        for port in wanted:
            listening = stack.enter_context(socket.socket())
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                listening.bind((HOST, port))
            except OSError as error:
                raise Refused(f"cannot listen on {HOST}:{port}: {error.strerror}") from None
            found.append(listening.getsockname()[1])
    return found


async def _run(plan: _Plan) -> None:
    """Runs a cluster until it is cancelled. The gateway ends first, while its requests have their workers."""
    workers, front = [plan.program(name) for name in plan.workers], plan.gateway.program()
    async with AsyncExitStack() as stack:
        for programs in (workers, [front]):
            stack.push_async_callback(stopped, programs)
            async with asyncio.TaskGroup() as starting:
                for program in programs:
                    starting.create_task(program.start())
            if programs is workers:
                await plan.gateway.check()
        listed = ", ".join(f"{name} http://{HOST}:{port}" for name, port in plan.workers.items())
        say(f"workers: {listed}; metrics of smg: http://{HOST}:{plan.gateway.metrics_port}/metrics")
        print(plan.gateway.address, flush=True)
        await kept([*workers, front])


PORT = click.IntRange(0, 65535)
COMMAND = click.Group(
    "cluster",
    help="Run several servers on this machine behind one address.",
    commands=[
        Command(
            "up",
            callback=_up,
            params=[
                click.Option(["--workers"], type=click.IntRange(1, MOST), default=3, metavar="NUMBER",
                             show_default=True, help="Servers; each has an engine and memory of its own."),
                click.Option(["--port"], type=PORT, default=9090, metavar="NUMBER", show_default=True,
                             help="Port of the gateway; 0 is any free port, here and in the next two."),
                click.Option(["--worker-port"], type=click.IntRange(0, 65535 - MOST), default=9101,
                             metavar="NUMBER", show_default=True,
                             help="Port of the first worker; the others have those after it."),
                click.Option(["--metrics-port"], type=PORT, default=9100, metavar="NUMBER",
                             show_default=True, help="Port of the gateway's own /metrics."),
                click.Option(["--policy"], type=click.Choice(gateway.POLICIES), default=gateway.POLICIES[0],
                             show_default=True, help="How smg chooses the worker of a request."),
                click.Option(["--drain"], type=click.IntRange(0, 3600), default=30, metavar="SECONDS",
                             show_default=True, help="Seconds that requests may take to finish at the end."),
                click.Option(["--api-key"], envvar="LLAMA_SRB_API_KEY", metavar="KEY",
                             help="The one key of gateway and workers; LLAMA_SRB_API_KEY has it, too. With "
                             "--api-key-file one of that file, with the scope metrics."),
                click.Argument(["server"], nargs=-1, type=click.UNPROCESSED, metavar="[OPTION OF SERVE]…"),
            ],
            help="Start servers, w1, w2 and so on, and smg in front of them, on 127.0.0.1; start each again "
            "that ends; end all of them with this command. Other options and files are those of serve, and "
            "each server gets them: --model, --ctx, --config, also llama-server's flags.",
            context_settings={"max_content_width": 110, "ignore_unknown_options": True},
        ),
    ],
)  # fmt: skip
