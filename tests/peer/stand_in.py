"""Stands in for llama-server in llama.cpp's tests: it takes the same arguments and is the tested server.

The tests name models of a hub, which this machine need not reach. The stand-in replaces the name by the file
that PEER_MODELS gives for it; other arguments stay as they are. PEER_SERVER is the command of the server.
Without a model llama-server is a router: it gets the arguments of PEER_ROUTER, which name its models.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from typing import Any

from tests.support import forked

NAMES = ("--hf-repo", "--hf-file", "--model-url", "--model")  # a model's name follows
ALONE = ("--offline",)
PRESET = "--models-preset"  # a file of the test's own, with its own models


def command(
    server: Sequence[str], models: dict[str, str], router: Sequence[str], arguments: Sequence[str]
) -> list[str]:
    """The server's command line. models: files by the beginning of a name; "" is the file for all others.

    router: the arguments of a server without a model.
    """
    kept: list[str] = []
    names: list[str] = []
    rest = iter(arguments)
    for argument in rest:
        if argument in NAMES:
            names.append(next(rest))
        elif argument not in ALONE:
            kept.append(argument)
    if not names and PRESET not in arguments:
        kept[:0] = router
    if names:
        name = ":".join(names)
        best = max((start for start in models if name.startswith(start)), key=len)
        kept[:0] = ["--model", models[best]]
    return [*server, *kept]


class Popen(forked.Popen):
    """Starts the tested server when llama-server shall be started."""

    def __init__(self, line: Sequence[str], **options: Any) -> None:
        given = (json.loads(os.environ[f"PEER_{name}"]) for name in ("SERVER", "MODELS", "ROUTER"))
        super().__init__(command(*given, line[1:]), **options)
