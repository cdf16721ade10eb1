"""The command line: `llama-srb serve` is `./api.py`.

Exit codes: 0 done, 1 failed while running, 2 wrong usage or cannot start (one line on stderr).
"""

from __future__ import annotations

import asyncio
import logging
import shlex
import sys
from collections.abc import Callable, Coroutine
from logging.handlers import MemoryHandler
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn

from llama_srb import __version__, config, server
from llama_srb.config import OPTIONS, Option, Settings, SettingsError
from llama_srb.model_info import ModelFileError
from llama_srb.pool import EngineError
from llama_srb.server import StartError

CANNOT_START = (SettingsError, ModelFileError, EngineError, StartError)


def _click_option(option: Option) -> click.Option:
    """One setting as an option; values are checked by config, so that all sources get the same messages."""
    if isinstance(option.default, bool):
        return click.Option(
            [f"{option.flag}/--no-{option.flag[2:]}", option.name], default=None, help=option.meaning
        )
    shown = _shown_default(option.default)
    return click.Option(
        [option.flag, option.name],
        metavar="|".join(option.choices) or option.kind,
        help=option.meaning + (f"  [default: {shown}]" if shown else ""),
    )


def _shown_default(default: object) -> str:
    if isinstance(default, Path):
        return str(default.relative_to(config.CHECKOUT))
    return " ".join(default) if isinstance(default, tuple) else "" if default is None else str(default)


def _serve(config_file: str | None, **options: object) -> None:
    engine_args = click.get_current_context().obj
    settings = config.load({**options, "engine_args": engine_args}, config=config_file)
    log, bar = _Log(settings.log_level), _LoadingBar(settings)

    def greet(address: str) -> None:
        log.open()
        body = shlex.quote('{"prompt": "Once upon a time,"}')
        print(f"{address}   try: curl -N {address}/v1/completions -d {body}", flush=True)

    try:
        _run(server.serve(settings, on_loading=bar.show, on_ready=greet))
    except CANNOT_START:
        log.drop()
        raise
    finally:
        bar.close()


SERVE = click.Command(
    "serve",
    callback=_serve,
    params=[
        *map(_click_option, OPTIONS),
        click.Option(["--config", "config_file"], metavar="FILE", help="TOML file with the same settings."),
    ],
    help="Serve a model over HTTP. Arguments after -- go to llama-batched (-ngl, -fa, -t, --lora, …).",
    short_help="Serve a model over HTTP.",
    epilog="Each option is also a variable (LLAMA_SRB_PORT) and a line of the --config file (port = 9090).",
    context_settings={"max_content_width": 110},
)


def _version(context: click.Context, option: click.Parameter, wanted: bool) -> None:
    if wanted:
        click.echo(f"llama-srb {__version__}")
        context.exit()


VERSION = click.Option(["--version"], is_flag=True, is_eager=True, expose_value=False, callback=_version)
MAIN = click.Group(
    "llama-srb",
    commands=[SERVE],
    params=[VERSION],
    help="n continuations of one prompt, all streaming at once, from one llama.cpp engine.",
)


class _LoadingBar:
    """A progress bar on stderr while the model loads; nothing when stderr is no terminal."""

    def __init__(self, settings: Settings) -> None:
        console = Console(stderr=True)
        self._progress = Progress(
            TextColumn("loading {task.description}"),
            BarColumn(),
            TextColumn("{task.percentage:>3.0f} %"),
            console=console,
            transient=True,
            disable=not console.is_terminal,
        )
        self._task = self._progress.add_task(settings.model.name, total=1.0)

    def show(self, progress: float) -> None:
        """progress goes from 0 to 1; at 1 the bar disappears."""
        if progress >= 1.0:
            return self.close()
        self._progress.start()
        self._progress.update(self._task, completed=progress)
        return None

    def close(self) -> None:
        """Takes the bar away; a second time does nothing."""
        self._progress.stop()


class _Log:
    """Log lines on stderr; until open() they are held back, since a failed start is told in one line."""

    def __init__(self, level: str) -> None:
        stderr = logging.StreamHandler(sys.stderr)
        stderr.setFormatter(logging.Formatter("%(asctime)s %(levelname).1s %(name)s: %(message)s"))
        self._held = MemoryHandler(10_000, flushLevel=logging.CRITICAL, target=stderr, flushOnClose=False)
        logging.basicConfig(level=level.upper(), handlers=[self._held])
        logging.getLogger("asyncio").setLevel(logging.WARNING)
        if level == "debug":
            self.open()

    def open(self) -> None:
        """Writes what was held back; from now on each line comes at once."""
        self._held.flush()
        self._held.flushLevel = logging.NOTSET

    def drop(self) -> None:
        """Forgets what is still held back."""
        self._held.setTarget(None)


def _run(main: Coroutine[Any, Any, None]) -> None:
    with asyncio.Runner(loop_factory=_fast_loop()) as runner:
        runner.run(main)


def _fast_loop() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """uvloop's where it exists (not on Windows)."""
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop


def main() -> None:
    """The entry point of `llama-srb` and of `python -m llama_srb.cli`."""
    ours, engine_args = config.split_arguments(config.arguments())
    try:
        MAIN.main(ours, prog_name="llama-srb", obj=engine_args)
    except CANNOT_START as error:
        print(f"llama-srb: {' '.join(str(error).split())}", file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main()
