"""`llama-srb models FILE…`: the facts in the headers of GGUF files."""

from __future__ import annotations

import json
from dataclasses import asdict

import click
from rich.console import Console
from rich.table import Table

from llama_srb.models import gguf_header
from llama_srb.models.gguf_header import ModelFileError, ModelInfo

from . import say

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


COMMAND = click.Command(
    "models",
    callback=_models,
    params=[
        click.Argument(["files"], nargs=-1, required=True, metavar="FILE…", type=click.Path()),
        click.Option(["--json", "as_json"], is_flag=True, help="A JSON list."),
    ],
    help="Say what GGUF files hold: a table on a terminal, else one line a file, fields separated by tabs ("
    + ", ".join(COLUMNS)
    + "). Unreadable files: a line on stderr each, exit code 1.",
)
