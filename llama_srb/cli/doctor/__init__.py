"""`llama-srb doctor`: whether `serve` with the same options can start, with advice if it cannot."""

from __future__ import annotations

import click

from llama_srb.cli import Refused
from llama_srb.cli.doctor import checks
from llama_srb.cli.options import Command, load_settings, model_files, setting_options
from llama_srb.config import SettingsError
from llama_srb.memory import tables as memories
from llama_srb.models import defaults


def _doctor(config_file: str | None, files: tuple[str, ...], **options: object) -> None:
    try:
        settings = load_settings(options, config_file, files)
        defaults.check(settings)
        memories.read(settings)
    except SettingsError as error:
        raise Refused(error) from error
    is_bad = False
    for name, found in checks.examine(settings):
        is_bad = is_bad or found.verdict == "bad"
        click.echo(f"{found.verdict:4}  {name:12}  {found.what}")
        if found.advice:
            click.echo(f"{'':20}-> {found.advice}")
    click.get_current_context().exit(int(is_bad))


COMMAND = Command(
    "doctor",
    callback=_doctor,
    params=[model_files(), *setting_options()],
    llama_server=True,
    help="Check compiler, engine, GPU, model, port, keys and limits for a server with these options.",
    epilog="Exits with 1 if the server cannot start.",
    context_settings={"max_content_width": 110},
)
