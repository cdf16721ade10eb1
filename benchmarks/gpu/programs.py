"""The carried programs as sides of a comparison: our server and engine, llama-server, the bare loop."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT)]

from benchmarks.sides.table import (  # noqa: E402
    Load,
    Side,
    bare_loop,
    llama_server,
    looping,
    our_server,
    piped,
    serving,
    serving_theirs,
)

WORK = Path(os.environ.get("GPU_WORK", "/tmp/llama-srb-gpu"))
SAMPLING = (("temperature", 0.8), ("top_k", 40), ("top_p", 0.95), ("min_p", 0.05))


def carried(command: Callable[[Load], list[str]], *flags: str) -> Callable[[Load], list[str]]:
    """A command of one of the carried programs, with flags behind it."""

    def write(load: Load) -> list[str]:
        program, *rest = command(load)
        return [str(WORK / "bin" / program), *rest, *flags]

    return write


def ours(layers: str) -> Side:
    """Our server with as many cells as llama-server gets."""

    def write(load: Load) -> list[str]:
        return [*our_server_before(load), "--ctx", str(2 * load.cells), *after(load), "-ngl", layers]

    return Side("llama-srb", write, serving)


def our_server_before(load: Load) -> list[str]:
    given = our_server(load)
    return given[: given.index("--")]


def after(load: Load) -> list[str]:
    given = our_server(load)
    return given[given.index("--") :]


def engine(layers: str, *flags: str) -> Side:
    """Our engine without a server, with the settings that a server gives it by default but for its cells."""

    def write(load: Load) -> list[str]:
        given = ["-m", str(load.model), "-np", str(load.parallel), "-c", str(load.cells), "-ngl", layers]
        return [str(WORK / "bin/llama-batched"), *given, *flags]

    return Side("llama-batched", write, piped)


def theirs(layers: str) -> dict[str, Side]:
    """llama-server, and with -bs, which samples on the GPU."""
    given = ("-ngl", layers, "--no-webui")
    return {
        "llama-server": Side("llama-server", carried(llama_server, *given), serving_theirs),
        "bs": Side("bs", carried(llama_server, *given, "-bs"), serving_theirs),
    }


def bare(layers: str) -> Side:
    return Side("bare loop", carried(bare_loop, "-ngl", layers), looping)


def attempt(name: str, work: Callable[[], Any]) -> Any:
    """One side's fault ends no other's figures."""
    try:
        return work()
    except Exception as error:  # a program that was carried may fail in any way; the line says how
        print(f"{name}: {type(error).__name__}: {str(error)[:300]}", flush=True)
        return None


def arguments(about: str, *positional: str, tokens: int) -> argparse.Namespace:
    """The arguments that all parts have: a model, layers on the GPU, tokens of each sequence."""
    parser = argparse.ArgumentParser(description=about)
    for name in (*positional, "model"):
        parser.add_argument(name)
    parser.add_argument("--ngl", default="99")
    parser.add_argument("--tokens", type=int, default=tokens)
    return parser.parse_args()
