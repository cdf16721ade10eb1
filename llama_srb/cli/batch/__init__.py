"""`llama-srb batch`: answers a file of requests, by running servers or by a server of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import click

from llama_srb.batch import formats
from llama_srb.batch.formats import FileError
from llama_srb.batch.lines import PATHS
from llama_srb.batch.output import Output, OutputError
from llama_srb.batch.run import PATIENCE, BatchStopped, Counts, Run
from llama_srb.batch.servers import Server
from llama_srb.batch.source import Scan, Source
from llama_srb.cli import Failed, Refused, say
from llama_srb.cli.batch.progress import Progress
from llama_srb.cli.complete import until_a_signal
from llama_srb.cli.options import ENGINE_SETTINGS, Command, Option, refuse_engine_options, setting_options
from llama_srb.client.core import address_of
from llama_srb.config import Settings

MOST_SHOWN = 10  # errors of an input


@dataclass(frozen=True, slots=True)
class _Asked:
    """The servers to ask: running ones, or one that is started."""

    addresses: Sequence[str] = ()
    key: str | None = None
    model: str | None = None
    settings: Settings | None = None
    concurrency: int | None = None
    patience: float = PATIENCE


def _batch(
    source: Path,
    output: Path,
    url: tuple[str, ...],
    api_key: str | None,
    concurrency: int | None,
    patience: float,
    retry_failed: bool,
    config_file: str | None,
    **options: Any,
) -> None:
    limits: dict[str, Any] = {"concurrency": concurrency, "patience": patience}
    if url:
        refuse_engine_options({**options, "config_file": config_file})
        asked = _Asked([*map(_address, url)], api_key, options["model"], **limits)
        run: Callable[[Coroutine[Any, Any, None]], None] = asyncio.run
    else:
        from llama_srb.cli.batch import own_server  # takes half a second, which --url does not need

        settings = own_server.settings_of(options, config_file)
        asked, run = _Asked(settings=settings, **limits), own_server.run
    try:
        path = formats.lines_of(output)
        with formats.opened(source) as file, Output(path, retry_failed=retry_failed) as out:
            lines = Source(file)
            scan = _scan(lines, out, source)
            counts = Counts(scan.count, len(out.done), out.failed)
            if scan.order:
                run(until_a_signal(lambda: _run(asked, lines, scan, out, counts)))
            else:
                say(f"all {counts.total} lines are done: {out.path}")
            out.sync()
            formats.finish(output)
    except (FileError, OutputError) as error:
        raise Refused(error) from error
    except BatchStopped as error:
        raise Failed(f"{error}. The same command sends the lines that are left") from error
    except OSError as error:
        raise Failed(f"{error.filename or path}: {error.strerror}") from error
    if counts.failed:
        raise Failed(f"{counts.failed} of {counts.total} lines failed: {out.errors}")


def _address(url: str) -> str:
    """The address as it was given, once it is known to be one."""
    address, _ = address_of(url)
    if not urlsplit(address).hostname or urlsplit(address).scheme not in ("http", "https"):
        message = f"--url is {url!r}; it must be an address as http://localhost:9090 or unix:FILE"
        raise click.UsageError(message, click.get_current_context())
    return url


def _server(given: str, headers: Mapping[str, str], window: int | None) -> Server:
    url, socket = address_of(given)
    return Server(url, headers, path=socket, window=window)


def _scan(lines: Source, out: Output, source: Path) -> Scan:
    """Reads the input and opens the output; Refused if a line is wrong."""
    out.read()
    scan = lines.scan(out.done)
    for error in scan.errors[:MOST_SHOWN]:
        say(f"{source}: {error}")
    if scan.errors:
        raise Refused(f"{source} has errors; nothing was sent")
    out.begin(scan.fingerprint)
    return scan


async def _run(asked: _Asked, lines: Source, scan: Scan, out: Output, counts: Counts) -> None:
    async with AsyncExitStack() as stack:
        addresses, key = asked.addresses, asked.key
        if asked.settings is not None:
            from llama_srb.cli.batch import own_server

            address, key = await stack.enter_async_context(own_server.running(asked.settings))
            addresses = [address]
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        servers = [_server(address, headers, asked.concurrency) for address in addresses]
        for server in servers:
            await stack.enter_async_context(server)
        progress = stack.enter_context(Progress(counts))
        run = Run(
            lines, scan.order, out, servers, counts,
            model=asked.model, patience=asked.patience, on_change=progress.show,
        )  # fmt: skip
        await run.run()


COMMAND = Command(
    "batch",
    callback=_batch,
    params=[
        click.Argument(["source"], metavar="IN", type=click.Path(path_type=Path)),
        click.Argument(["output"], metavar="OUT", type=click.Path(path_type=Path)),
        Option(
            ["--url"],
            "Servers",
            multiple=True,
            metavar="URL",
            help="Ask this server instead of starting one; repeatable. --model is then a name for lines "
            "without one.",
        ),
        Option(
            ["--api-key"],
            "Servers",
            envvar="LLAMA_SRB_API_KEY",
            metavar="KEY",
            help="The key for these servers; LLAMA_SRB_API_KEY has it, too.",
        ),
        Option(
            ["--concurrency"],
            "Servers",
            type=click.IntRange(min=1),
            metavar="NUMBER",
            help="Sequences that a server has at once  [default: twice as many as it generates at once]",
        ),
        Option(
            ["--patience"],
            "Servers",
            type=click.FloatRange(min=0),
            default=PATIENCE,
            metavar="SECONDS",
            show_default=True,
            help="Stop when no server has been well for so long.",
        ),
        Option(
            ["--retry-failed"],
            "Output",
            is_flag=True,
            help="Send lines again that failed in an earlier run.",
        ),
        *setting_options(ENGINE_SETTINGS, "Engine (without --url)"),
    ],
    help=f"""Answer each line of IN, and write the answers to OUT, and lines that failed to OUT.errors.jsonl.

A line is {{"custom_id": "1", "method": "POST", "url": "/v1/completions", "body": {{…}}}}, and the url one of
{PATHS}.

The same command goes on where an earlier one has stopped: each line is answered once. IN and OUT may end with
.parquet.

Without --url a server is started for this one call, with the settings of serve; arguments after -- go to its
engine (-ngl, -fa, …).""",
    epilog="Exit codes: 0 all lines are answered, 1 some failed or it had to stop, 2 wrong usage or a wrong "
    "file, 130 after ^C.",
    context_settings={"max_content_width": 110},
)
