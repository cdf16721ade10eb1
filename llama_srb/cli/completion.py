"""`llama-srb completion bash`: prints click's completion script for a shell."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from . import MAIN

SHELLS = ("bash", "zsh", "fish")


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
