"""`llama-srb cluster`: several servers on this machine behind smg, Shepherd Model Gateway.

It starts and watches processes: requests go from smg to a server, and never through this one.
"""

from __future__ import annotations

import asyncio
import socket
import sys
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack, ExitStack
from dataclasses import dataclass
from importlib.util import find_spec

import click
from click.core import ParameterSource

from llama_srb import config
from llama_srb.cli import Failed, Refused, say
from llama_srb.cli.complete import until_a_signal
from llama_srb.cli.options import Command, load_settings, model_files, setting_options
from llama_srb.config import Settings
from llama_srb.serving.keys.api_keys import new_key

from . import gateway
from .programs import NotStarted, Program, kept, prints_address, stopped

HOST, MOST = "127.0.0.1", 64  # workers
SERVE = Command("serve", params=[model_files(), *setting_options()], llama_server=True)
OURS = {  # settings that a worker gets from here, or cannot have: the reason why they are refused
    "host": f"workers listen on {HOST}",
    "port": "the gateway has --port of cluster up, and workers have those from --worker-port on",
    "api_prefix": "smg asks workers for paths without a prefix; a proxy in front of smg may have one",
    "grpc": "several workers cannot listen on one port",
    "reuse_port": "each worker has a port of its own",
    "tls_cert": "smg and workers talk on this machine; a proxy in front of smg has the certificate",
    "worker_name": "workers are named w1, w2 and so on",
    "files_dir": "workers cannot share its folder; start a server of its own for files and batches",
}


@dataclass(frozen=True, slots=True)
class _Plan:
    """A cluster before it is started.

    server: more arguments of each worker's serve. secrets: variables of workers. made_key: the key that was
    made for this run, since none was given; empty if one was.
    """

    workers: dict[str, int]  # by name: its port
    server: tuple[str, ...]
    gateway: gateway.Gateway
    secrets: Mapping[str, str]
    made_key: str

    def program(self, name: str) -> Program:
        """The process of a worker."""
        own = ["--host", HOST, "--port", str(self.workers[name]), "--worker-name", name, "--api-prefix", ""]
        ours, engine = config.split_arguments(self.server)
        more = () if engine is None else ("--", *engine)
        command = [sys.executable, "-P", "-m", "llama_srb.cli", "serve", *ours, *own, *more]
        return Program(name, command, prints_address, secrets=self.secrets)


def _up(
    workers: int, port: int, worker_port: int, metrics_port: int, policy: str, drain: int,
    api_key: str | None, server: tuple[str, ...],
) -> None:  # fmt: skip
    context = click.get_current_context()
    server = (*server, *(() if context.obj is None else ("--", *context.obj)))
    settings = _settings_of(server)
    if find_spec("smg") is None:
        raise Refused(f"cluster needs the package smg: {gateway.INSTALL}")
    made_key = "" if api_key or _needs_key(settings) else new_key()
    is_given = context.get_parameter_source("api_key") is ParameterSource.COMMANDLINE
    secrets: dict[str, str] = {}
    if made_key or (is_given and settings.api_key_file is None):  # with a file it is a key of the file
        secrets = {"LLAMA_SRB_API_KEY": made_key or str(api_key)}
    ports = _ports([port, metrics_port, *(worker_port and worker_port + i for i in range(workers))])
    named = {f"w{i}": each for i, each in enumerate(ports[2:], 1)}
    keys = (api_key or made_key).split() or [key.get_secret_value() for key in settings.api_key]
    front = gateway.Gateway(
        address=f"http://{HOST}:{ports[0]}",
        metrics_port=ports[1],
        workers=tuple(f"http://{HOST}:{each}" for each in named.values()),
        policy=policy,
        drain=drain,
        key=keys[0] if keys else None,  # the server's setting may have several
    )
    try:
        asyncio.run(until_a_signal(lambda: _run(_Plan(named, server, front, secrets, made_key))))
    except NotStarted as error:
        raise Failed(error) from None
    except ExceptionGroup as group:
        if (others := group.split(NotStarted)[1]) is not None:
            raise others from None
        raise Failed(group.exceptions[0]) from None


def _needs_key(settings: Settings) -> bool:
    """Whether workers of these settings ask for a key.

    smg looks at no Host and no Origin, so it must ask for one, or web pages could add workers of their own.
    """
    return bool(settings.api_key or settings.api_key_file or settings.jwt_secret or settings.jwt_keys)


def _settings_of(server: Sequence[str]) -> Settings:
    """The settings that workers will have; Refused if one is wrong, or is not for a cluster."""
    with SERVE.make_context("llama-srb serve", list(server)) as context:
        options = dict(context.params)
        file, models = options.pop("config_file"), options.pop("files")
        try:
            settings = load_settings(options, file, models)
        except config.SettingsError as error:
            raise Refused(error) from None
    for name, reason in OURS.items():
        if (value := getattr(settings, name)) != Settings.model_fields[name].default:
            places = f"--{name.replace('_', '-')}, {config.PREFIX}{name.upper()} or the --config file"
            raise Refused(f"{name} is {value} ({places}); it is not for a cluster: {reason}")
    return settings


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
        if plan.made_key:
            say(f"no key was given; clients need this one until the end: {plan.made_key}")
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
                             "--api-key-file one of that file, with the scope metrics. Without keys one "
                             "is made and printed."),
                click.Argument(["server"], nargs=-1, type=click.UNPROCESSED, metavar="[OPTION OF SERVE]…"),
            ],
            help="Start servers, w1, w2 and so on, and smg in front of them, on 127.0.0.1; start each again "
            "that ends; end all of them with this command. Other options and files are those of serve, and "
            "each server gets them: --model, --ctx, --config, also llama-server's flags.",
            context_settings={"max_content_width": 110, "ignore_unknown_options": True},
        ),
    ],
)  # fmt: skip
