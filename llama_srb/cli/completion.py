"""Completion in a shell: `llama-srb completion bash` prints click's script; values that are names of models.

A shell asks at each TAB, so nothing here waits for long, and a fault is no name.
"""

from __future__ import annotations

import contextlib

import click
from click.shell_completion import CompletionItem, get_completion_class

from . import MAIN

SHELLS = ("bash", "zsh", "fish")
TIMEOUT = 1.0  # seconds for a server to answer


def models(context: click.Context, parameter: click.Parameter, start: str) -> list[CompletionItem]:
    """Completes a model: with --url a name that the server knows, else a model of a hub, or a file."""
    if url := context.params.get("url"):
        return _items(_of_server(url if isinstance(url, str) else url[0]), start)  # `batch` takes several
    return [*hub_models(context, parameter, start), CompletionItem(start, type="file")]


def hub_models(context: click.Context, parameter: click.Parameter, start: str) -> list[CompletionItem]:
    """Completes a model of a hub that is here."""
    from llama_srb.config import folders
    from llama_srb.models.cache import Cache

    with contextlib.suppress(OSError):
        return _items([str(one.name) for one in Cache(folders.hub_models()).all()], start)
    return []


def _of_server(url: str) -> list[str]:
    from llama_srb.client import Client, ClientError

    with contextlib.suppress(ClientError), Client(url, timeout=TIMEOUT) as client:
        return sorted({name for model in client.models() for name in (model.id, *model.aliases)})
    return []


def _items(names: list[str], start: str) -> list[CompletionItem]:
    return [CompletionItem(name) for name in names if name.startswith(start)]


def _completion(shell: str) -> None:
    script = get_completion_class(shell)
    assert script is not None
    click.echo(script(MAIN, {}, "llama-srb", "_LLAMA_SRB_COMPLETE").source())


COMMAND = click.Command(
    "completion",
    callback=_completion,
    params=[click.Argument(["shell"], type=click.Choice(SHELLS))],
    help="""Print the script that completes llama-srb's commands, options and files.

\b
bash:  eval "$(llama-srb completion bash)"         in ~/.bashrc
zsh:   eval "$(llama-srb completion zsh)"          in ~/.zshrc
fish:  llama-srb completion fish | source          in ~/.config/fish/config.fish""",
)
