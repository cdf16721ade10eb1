#!/usr/bin/env python3
"""Stands in for llama-server in llama.cpp's tests: it takes the same arguments and becomes the tested server.

The tests name models of a hub, which this machine need not reach. The stand-in replaces the name by the file
that PEER_MODELS gives for it; other arguments stay as they are. PEER_SERVER is the command of the server.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence

NAMES = ("--hf-repo", "--hf-file", "--model-url", "--model")  # a model's name follows
ALONE = ("--offline",)


def command(server: Sequence[str], models: dict[str, str], arguments: Sequence[str]) -> list[str]:
    """The server's command line. models: files by the beginning of a name; "" is the file for all others."""
    kept: list[str] = []
    names: list[str] = []
    rest = iter(arguments)
    for argument in rest:
        if argument in NAMES:
            names.append(next(rest))
        elif argument not in ALONE:
            kept.append(argument)
    if names:  # a server without a model is llama-server's router
        name = ":".join(names)
        best = max((start for start in models if name.startswith(start)), key=len)
        kept[:0] = ["--model", models[best]]
    return [*server, *kept]


if __name__ == "__main__":
    line = command(json.loads(os.environ["PEER_SERVER"]), json.loads(os.environ["PEER_MODELS"]), sys.argv[1:])
    os.environ.pop("PYTHONPATH")  # of the tests' pytest
    os.execv(line[0], line)
