"""`llama-srb perplexity`: how well a model predicts a text, by a running server or one of its own."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from llama_srb.client import AsyncClient, ClientError, RequestRefused
from llama_srb.client.core import Call
from llama_srb.config import Settings

from . import Failed, Refused, windows
from .complete import decoded, until_a_signal
from .options import ENGINE_SETTINGS, Command, Option, refuse_engine_options, setting_options
from .windows import Figures, Window

USUAL = 2048  # tokens of a window
LLAMA_CPPS = 512
AT_ONCE = 4  # windows


def _perplexity(
    file: Path,
    window: int | None,
    stride: int | None,
    llama_cpp: bool,
    as_json: bool,
    url: str | None,
    api_key: str | None,
    config_file: str | None,
    **options: Any,
) -> None:
    if llama_cpp and stride is not None:
        message = "--llama-cpp has no --stride: its windows stand one after the other."
        raise click.UsageError(message, click.get_current_context())
    try:
        text = decoded(file.read_bytes(), str(file))
    except OSError as error:
        raise Refused(f"cannot read {file}: {error.strerror}") from None
    settings: Settings | None = None
    run: Callable[[Coroutine[Any, Any, None]], None] = asyncio.run
    if url:
        refuse_engine_options({**options, "config_file": config_file})
    else:
        from llama_srb.cli.batch import own_server  # takes half a second, which --url does not need

        settings, run = own_server.settings_of(options, config_file), own_server.run
    found: dict[str, float] = {}

    async def work() -> None:
        async with AsyncExitStack() as stack:
            address, key = url or "", api_key
            if settings is not None:
                from llama_srb.cli.batch import own_server

                address, key = await stack.enter_async_context(own_server.running(settings))
            client = AsyncClient(address, api_key=key, model=options["model"] if url else None)
            await stack.enter_async_context(client)
            found.update(await _figures(client, text, window, stride, llama_cpp=llama_cpp))

    try:
        run(until_a_signal(work))
    except ClientError as error:
        raise (Refused if isinstance(error, RequestRefused) else Failed)(error) from error
    if found:
        _show(found, as_json=as_json)


def _show(found: Mapping[str, float], *, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps(found))
        return
    for name, value in found.items():
        click.echo(f"{name}\t{value}" if isinstance(value, int) else f"{name}\t{value:.6g}")


async def _figures(
    client: AsyncClient, text: str, window: int | None, stride: int | None, *, llama_cpp: bool
) -> dict[str, float]:
    tokens, whole = await client.tokenize(text), await client.tokenize(text, special=True)
    begin = whole[: whole.index(tokens[0])] if tokens and whole != tokens else []
    size = await _size(client, window, LLAMA_CPPS if llama_cpp else USUAL)
    if len(begin) + 2 > size:
        raise Refused(f"--window is {size}; it must be at least {len(begin) + 2}")
    if llama_cpp:
        plan, step = [*windows.halves(tokens, begin, size)], size
        if not plan:
            count = len(tokens) + len(begin)
            raise Refused(f"the file has {count} tokens; --llama-cpp needs as many as a window has, {size}")
    else:
        step = stride or max(1, size // 2)
        if step > size - len(begin):
            raise Refused(f"--stride is {step}; it must be at most {size - len(begin)}, which a window has")
        plan = [*windows.strided(tokens, begin, size, step)]
    figures = await _scored(client, plan)
    if not figures.logprobs:
        raise Refused("the file has no token behind another one, which a model predicts")
    told = figures.told(None if llama_cpp else len(text.encode()))
    return {**told, "windows": len(plan), "window": size, "stride": step}


async def _size(client: AsyncClient, window: int | None, usual: int) -> int:
    """The tokens of a window: as asked, else the usual ones; at most the context, if the server tells it."""
    most = await client.ask(Call("/v1/models", None, lambda answer: _context(answer, client.model)))
    if window is None:
        return min(usual, most or usual)
    if most is not None and window > most:
        raise Refused(f"--window is {window}; it must be at most {most}, the tokens of one sequence")
    return window


def _context(answer: Any, name: str | None) -> int | None:
    models = [one for one in answer["data"] if name in (None, one["id"], *one.get("aliases", ()))]
    most = models[0].get("max_model_len") if models else None
    return most if isinstance(most, int) else None


async def _scored(client: AsyncClient, plan: Sequence[Window]) -> Figures:
    """Scores the windows, a few at a time, with a bar on a terminal."""
    entries: dict[int, Mapping[str, Any]] = {}
    left = list(enumerate(plan))
    console = Console(stderr=True)
    is_shown = console.is_terminal and not console.is_dumb_terminal
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())

    async def work() -> None:
        while left:
            number, window = left.pop(0)
            entries[number] = await client.ask(_score(window))
            bar.advance(task)

    with Progress(*columns, console=console, transient=True, disable=not is_shown) as bar:
        task = bar.add_task("windows", total=len(plan))
        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(AT_ONCE):
                    group.create_task(work())
        except ExceptionGroup as failed:
            raise failed.exceptions[0] from None
    figures = Figures()
    for number in range(len(plan)):
        figures.take(entries[number])
    return figures


def _score(window: Window) -> Call[Mapping[str, Any]]:
    body: dict[str, Any] = {"texts": [list(window.scored)], "logprobs": 1, "certainty": True, "cache": False}
    if window.before:
        body["prompt"] = list(window.before)
    return Call("/v1/score", body, lambda answer: answer["data"][0])


COMMAND = Command(
    "perplexity",
    callback=_perplexity,
    params=[
        click.Argument(["file"], metavar="FILE", type=click.Path(path_type=Path)),
        Option(["--window"], "Method", type=click.IntRange(min=2), metavar="TOKENS",
               help=f"Tokens that the model reads at a time  [default: {USUAL}, at most the context]"),
        Option(["--stride"], "Method", type=click.IntRange(min=1), metavar="TOKENS",
               help="Tokens that are new in each window  [default: half a window]"),
        Option(["--llama-cpp"], "Method", is_flag=True,
               help="As llama.cpp's perplexity tool: windows one after the other, of which the second halves "
               f"count; the window is {LLAMA_CPPS} by default."),
        Option(["--json", "as_json"], "Output", is_flag=True, help="One JSON object."),
        Option(["--url"], "Server", metavar="URL",
               help="Ask this server instead of starting one; --model is then a name that it knows."),
        Option(["--api-key"], "Server", envvar="LLAMA_SRB_API_KEY", metavar="KEY",
               help="The key for this server; LLAMA_SRB_API_KEY has it, too."),
        *setting_options(ENGINE_SETTINGS, "Engine (without --url)"),
    ],
    help="""Say how well a model predicts the text of FILE: its perplexity, and what else scores know.

Prints a line a figure, its name, a tab, the number. A text of any length is read in windows that overlap:
each token counts once, and has at least window - stride tokens before it, but for those of the first window.

Without --url a server is started for this one call, with the settings of serve; arguments after -- go to its
engine (-ngl, -fa, …).""",
    epilog="Exit codes: 0 done, 1 failed while running, 2 wrong usage or refused, 130 after ^C.",
    context_settings={"max_content_width": 110},
)  # fmt: skip
