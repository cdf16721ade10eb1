"""`llama-srb serve`; ./api.py calls it, too."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import shlex
import signal
import sys
from collections.abc import Callable, Coroutine
from logging.handlers import MemoryHandler
from typing import Any

import click
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn

from llama_srb.config import Settings, SettingsError
from llama_srb.engine.exchange import EngineError
from llama_srb.models.cache import HubError
from llama_srb.models.gguf_header import ModelFileError
from llama_srb.server import lifetime as server
from llama_srb.serving.faults import StartError
from llama_srb.serving.observe import logs

from . import Refused, fetching
from .options import Command, load_settings, model_files, setting_options

log = logging.getLogger("llama_srb.server")  # this name is documented
SWITCH_INTERVAL = 0.0005
"""Seconds after which a thread with long work lets the event loop go on, which needs it at each call of the
system. With Python's own 5 ms the longest gap of a stream beside such work is two to three times as long."""
CANNOT_START = (SettingsError, HubError, ModelFileError, EngineError, StartError)


def _serve(config_file: str | None, files: tuple[str, ...], **options: object) -> None:
    context = click.get_current_context()
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # until the server has its own handler

    def reread() -> Settings:
        with context.scope(cleanup=False):  # a thread has no context of its own
            return fetching.with_models(load_settings(options, config_file, files), fetching.logged())

    try:
        _serve_with(fetching.with_models(load_settings(options, config_file, files)), reread)
    except CANNOT_START as error:
        raise Refused(error) from error


def _serve_with(settings: Settings, reread: Callable[[], Settings]) -> None:
    log, bar = _Log(settings), LoadingBar(settings)
    sys.setswitchinterval(SWITCH_INTERVAL)

    def greet(address: str) -> None:
        log.open()
        gc.collect()
        gc.freeze()  # later collections skip tables, which live as long as the process
        body = shlex.quote('{"prompt": "Once upon a time,"}')
        to = address
        if settings.socket is not None:
            to = f"--unix-socket {shlex.quote(str(settings.socket))} http://localhost{settings.api_prefix}"
        _say(f"{address}   try: curl -N {to}/v1/completions -d {body}")

    try:
        run(server.serve(settings, on_loading=bar.show, on_ready=greet, reread=reread))
    except CANNOT_START:
        log.drop()
        raise
    finally:
        bar.close()


def _say(line: str) -> None:
    """Prints a line. If the disk is full, the log has it instead: that stops no server."""
    try:
        print(line, flush=True)
    except BrokenPipeError:
        raise
    except OSError as error:
        log.warning("stdout cannot be written: %s; its line is: %s", error.strerror, line)
        # Python tries what is buffered once more at exit, which would raise again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


COMMAND = Command(
    "serve",
    callback=_serve,
    params=[model_files(), *setting_options()],
    llama_server=True,
    help="Serve a model over HTTP; or several, by FILE…, --models-dir or tables of the --config file. "
    "llama-server's flags (-m, -c, -ngl, --temp, …) work, too: docs/flags.md.",
    epilog="Each option is also a variable (LLAMA_SRB_PORT) and a line of the --config file (port = 9090).",
    context_settings={"max_content_width": 110},
)


class LoadingBar:
    """A progress bar on stderr while the model loads; nothing if stderr is no terminal."""

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
        self._task = self._progress.add_task(settings.default.model.name, total=1.0)

    def show(self, progress: float) -> None:
        """Shows the progress, from 0 to 1; at 1 the bar disappears."""
        if progress >= 1.0:
            return self.close()
        self._progress.start()
        self._progress.update(self._task, completed=progress)
        return None

    def close(self) -> None:
        """Removes the bar; may be called again."""
        self._progress.stop()


class _Log:
    """Log lines on stderr. They are held back until open(), since a failed start is reported in one line."""

    def __init__(self, settings: Settings) -> None:
        stderr, level = logs.Writer(sys.stderr.fileno()), settings.log_level
        stderr.setFormatter(logs.formatter(settings.log_format))
        logs.show_wire(settings.log_prompts)
        self._held = MemoryHandler(10_000, flushLevel=logging.CRITICAL, target=stderr, flushOnClose=False)
        logging.basicConfig(level=level.upper(), handlers=[self._held])
        logs.keep_quiet(level)
        if level == "debug":
            self.open()

    def open(self) -> None:
        """Writes the lines that were held back, and from now on each line at once."""
        self._held.flush()
        self._held.flushLevel = logging.NOTSET

    def drop(self) -> None:
        """Forgets the lines that are held back."""
        self._held.setTarget(None)


def run(main: Coroutine[Any, Any, None]) -> None:
    """Runs a coroutine on the fastest event loop that is here."""
    with asyncio.Runner(loop_factory=_fast_loop()) as runner:
        runner.run(main)


def _fast_loop() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """uvloop's event loop, if it is installed (not on Windows)."""
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop
