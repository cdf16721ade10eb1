"""The command line. Each command is a module, imported only when it is called, so that --help is quick.

Exit codes: 0 success; 1 failed while running; 2 wrong usage, a refused request, or it cannot start (one line
on stderr); 130 after ^C; 141 if stdout's reader has left.
"""

from __future__ import annotations

import difflib
import gc
import os
import sys
from importlib import import_module
from typing import Any, NoReturn

import click

from llama_srb import __version__

COMMANDS = {
    "batch": "Answer a file of requests, in OpenAI's batch format.",
    "cluster": "Run several servers behind one address.",
    "complete": "Continue a prompt n times, side by side.",
    "completion": "Print the script that completes llama-srb's options in a shell.",
    "config": "Check the file of --config.",
    "drain": "Let a server finish what it has, and take no new requests.",
    "doctor": "Check whether a server can start here, and say what to do.",
    "keys": "Make, list and revoke the keys of a server; sign tokens (JWT).",
    "memory": "Put documents into the memories of a server; rebuild their vectors.",
    "models": "Say what GGUF files hold; list, pull and remove models of a hub.",
    "perplexity": "Say how well a model predicts a text.",
    "serve": "Serve a model over HTTP.",
}
INTERRUPTED, READER_LEFT = 130, 141  # 128 + SIGINT, 128 + SIGPIPE


class Failed(click.ClickException):
    """The command failed while it ran: one line on stderr."""

    exit_code = 1

    def __init__(self, reason: object) -> None:
        super().__init__(str(reason))


class Refused(Failed):
    """The command cannot start, or the request was refused: a line on stderr, or a line and a list."""

    exit_code = 2


def say(message: str) -> None:
    """Prints one line on stderr."""
    print(f"llama-srb: {message}", file=sys.stderr, flush=True)


class _Group(click.Group):
    """The group of COMMANDS; it imports the module of a command when it is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in COMMANDS:
            return None
        gc.disable()  # modules live as long as the process: a collection would find nothing
        command: click.Command = import_module(f".{name}", __name__).COMMAND
        gc.freeze()
        gc.enable()
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        return super().parse_args(ctx, args or ["--help"])

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0] not in COMMANDS and not args[0].startswith("-"):
            nearest = difflib.get_close_matches(args[0], COMMANDS, n=1)
            hint = f" Did you mean {nearest[0]!r}?" if nearest else ""
            raise click.UsageError(f"No such command {args[0]!r}.{hint}", ctx)
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            super().invoke(ctx)
            sys.stdout.flush()
        except BrokenPipeError:
            # Python flushes stdout once more at exit, which would raise again.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            ctx.exit(READER_LEFT)


def _version(context: click.Context, option: click.Parameter, wanted: bool) -> None:
    if wanted:
        click.echo(f"llama-srb {__version__}")
        context.exit()


MAIN = _Group(
    "llama-srb",
    params=[
        click.Option(
            ["--version"], is_flag=True, is_eager=True, expose_value=False, callback=_version,
            help="Show the version and exit.",
        ),
    ],
    help="n continuations of one prompt, all streaming at once, from one llama.cpp engine.",
    epilog='Shell completion: eval "$(llama-srb completion bash)"; also for zsh and fish.',
)  # fmt: skip


def _fail(error: click.ClickException) -> NoReturn:
    message = error.format_message()
    if isinstance(error, click.UsageError) and error.ctx is not None:
        end = "" if message.endswith((".", "?")) else "."
        message += f"{end} See {error.ctx.command_path} --help."
    lines = message.split("\n") if isinstance(error, Refused) else [message]
    say("\n  ".join(" ".join(line.split()) for line in lines))
    sys.exit(error.exit_code)


def main() -> None:
    """The entry point of `llama-srb` and of `python -m llama_srb.cli`."""
    try:
        code = MAIN.main(prog_name="llama-srb", standalone_mode=False)
    except click.ClickException as error:
        _fail(error)
    except (click.Abort, KeyboardInterrupt):
        code = INTERRUPTED
    sys.exit(code)
