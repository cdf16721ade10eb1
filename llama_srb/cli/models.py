"""`llama-srb models`: the facts in the headers of GGUF files; `list`, `pull` and `rm` for models of a hub."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import asdict
from functools import wraps
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from llama_srb.config import folders
from llama_srb.models import gguf_header
from llama_srb.models.cache import PREFIX, Cache, HubError, HubName, name_from
from llama_srb.models.gguf_header import ModelFileError, ModelInfo

from . import Refused, fetching, say
from .completion import hub_models

COLUMNS = ("path", "name", "architecture", "parameters", "quantisation", "context", "size_bytes")
NUMBERS = ("parameters", "context", "size")


def _models(files: tuple[str, ...], as_json: bool) -> None:
    found = [model for file in files if (model := _read(file)) is not None]
    console = Console()
    if as_json:
        click.echo(json.dumps([_row(model) for model in found], ensure_ascii=False, indent=2))
    elif console.is_terminal and found:
        console.print(_table(found))
    else:
        for model in found:
            click.echo("\t".join(_plain(value) for value in _row(model).values()))
    if len(found) < len(files):
        click.get_current_context().exit(1)


def _read(file: str) -> ModelInfo | None:
    try:
        return gguf_header.read(file)
    except ModelFileError as error:
        say(str(error))
        return None


def _row(model: ModelInfo) -> dict[str, object]:
    facts = asdict(model)
    return {name: str(facts[name]) if name == "path" else facts[name] for name in COLUMNS}


def _plain(value: object) -> str:
    """One field of a line. A file's metadata may hold any characters, so white space becomes spaces."""
    return "" if value is None else " ".join(str(value).split())


def _table(models: list[ModelInfo]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("file", "name", "architecture", "parameters", "quantisation", "context", "size"):
        if name in ("file", "name"):
            table.add_column(name, overflow="fold")  # so that a path can be copied
        else:
            table.add_column(name, justify="right" if name in NUMBERS else "left", no_wrap=True)
    for model in models:
        context = "" if model.context is None else f"{model.context:,}"
        size = _scaled(model.size_bytes, 1024, ("B", "KiB", "MiB", "GiB", "TiB"))
        parameters = _scaled(model.parameters, 1000, ("", "K", "M", "B", "T"))
        facts = (model.path, model.name, model.architecture, parameters, model.quantisation, context, size)
        table.add_row(*(_plain(fact).replace("[", r"\[") for fact in facts))
    return table


def _scaled(number: float, step: int, units: tuple[str, ...]) -> str:
    """Three digits and a unit: 3.17 M."""
    at = 0
    while number >= 999.5 and at < len(units) - 1:
        number, at = number / step, at + 1
    return f"{number:.3g} {units[at]}".strip()


# ----------------------------------------------------------------------------------------------------
# Models of a hub
# ----------------------------------------------------------------------------------------------------


def _named(text: str) -> HubName:
    return name_from(text if text.startswith(PREFIX) else PREFIX + text)


def _refusing(work: Callable[..., None]) -> Callable[..., None]:
    """The same command, which ends with one line on stderr at a HubError."""

    @wraps(work)
    def refusing(**options: Any) -> None:
        try:
            work(**options)
        except HubError as error:
            raise Refused(error) from error

    return refusing


@_refusing
def _pull(names: tuple[str, ...]) -> None:
    for name in [_named(text) for text in names]:
        click.echo(fetching.fetch(name, newest=True))


@_refusing
def _remove(names: tuple[str, ...]) -> None:
    for name in [_named(text) for text in names]:
        Cache(folders.hub_models()).remove(name)


@_refusing
def _list(as_json: bool) -> None:
    kept = Cache(folders.hub_models()).all()
    rows = [(str(one.name), one.size_bytes, _date(one.used), str(one.path)) for one in kept]
    console, columns = Console(), ("name", "size_bytes", "last_use", "path")
    if as_json:
        click.echo(json.dumps([dict(zip(columns, row, strict=True)) for row in rows], indent=2))
    elif console.is_terminal and rows:
        table = Table("name", "size", "last use", "path", box=None, pad_edge=False, header_style="bold")
        for name, size, used, path in rows:
            shown = _scaled(size, 1024, ("B", "KiB", "MiB", "GiB", "TiB"))
            table.add_row(*(text.replace("[", r"\[") for text in (name, shown, used, path)))
        console.print(table)
    else:
        for row in rows:
            click.echo("\t".join(map(_plain, row)))


def _date(seconds: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))


NAMES = click.Argument(["names"], nargs=-1, required=True, metavar="NAME…")
KEPT = click.Argument(["names"], nargs=-1, required=True, metavar="NAME…", shell_complete=hub_models)
JSON = click.Option(["--json", "as_json"], is_flag=True, help="A JSON list.")
HUB_COMMANDS = {
    "list": click.Command(
        "list", callback=_list, params=[JSON],
        help="List the models of a hub that are here: name, size in bytes, last use and path.",
    ),
    "pull": click.Command(
        "pull", callback=_pull, params=[NAMES],
        help="Download models, hf:USER/REPO[:QUANT or FILE], or their newest versions; print their paths. "
        "A download that was interrupted goes on.",
    ),
    "rm": click.Command("rm", callback=_remove, params=[KEPT], help="Remove models that were downloaded."),
}  # fmt: skip


class _Models(click.Command):
    """The command for files, or the one of HUB_COMMANDS if that is the first word."""

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        if args and (command := HUB_COMMANDS.get(args[0])):
            return command.make_context(f"{info_name} {args[0]}", args[1:], parent, **extra)
        return super().make_context(info_name, args, parent, **extra)


COMMAND = _Models(
    "models",
    callback=_models,
    params=[
        click.Argument(["files"], nargs=-1, required=True, metavar="FILE…", type=click.Path()),
        JSON,
    ],
    help="Say what GGUF files hold: a table on a terminal, else one line a file, fields separated by tabs ("
    + ", ".join(COLUMNS)
    + "). Unreadable files: a line on stderr each, exit code 1.",
    epilog="Models of a hub: llama-srb models list, pull NAME…, rm NAME…; a file named list is ./list.",
)
