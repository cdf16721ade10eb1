#!/usr/bin/env python3
"""Compares builds of the engine: .venv/bin/python benchmarks/builds.py NAME=DIR/llama-batched NAME=…

Builds run alternately, each by its pipe, without a server. For each row it prints each build's median rates,
and the median ratio to the first build within a round. Each round starts new processes, since one
process is up to 5 % faster than another as long as it lives.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from dataclasses import replace
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parent.parent)]

from benchmarks import peers  # noqa: E402
from benchmarks.answers import Ask, words  # noqa: E402
from benchmarks.run import Row  # noqa: E402
from benchmarks.sides.table import Load, Side, our_engine, piped  # noqa: E402

ROWS = {
    row.name: row
    for row in (
        Row("0.5b", 512, 1, 64),
        Row("0.5b", 512, 8, 48),
        Row("0.5b", 512, 8, 48, settings="top_p"),
        Row("0.5b", 512, 32, 32),
        Row("0.5b", 8192, 8, 32),
        Row("1.5b", 512, 1, 32),
        Row("1.5b", 512, 8, 24),
        Row("1.5b", 512, 32, 16),
        *(Row(model, 512, n, 32) for model in ("gemma-270m", "experts") for n in (1, 8, 32)),
        *(
            Row("gemma-270m", 512, n, 32, settings=one)
            for one in ("plain", "top_p", "writer")
            for n in (8, 32)
        ),
        Row("15m", 256, 8, 256),
        Row("15m", 256, 32, 128),
    )
}


def rates(engine: Path, load: Load, row: Row) -> dict[str, float]:
    """Tokens per second of a new process, and ms until the first token of a known prompt."""
    side = Side(str(engine), lambda load: [str(engine.resolve()), *our_engine(load)[1:]], piped)
    with side.started(load) as pipe:
        ask = row.ask()
        pipe.ask(Ask(words(16, "wake up"), load.parallel, 4))
        first = pipe.rates(ask)
        decode = statistics.mean([first["decode"], pipe.rates(ask)["decode"]])
        with pipe.running.awake():
            known = min(pipe.ask(replace(ask, tokens=2)).first for _ in range(5))
        return first | {"decode": decode, "known prompt, ms": 1000 * known}


def compare(builds: dict[str, Path], name: str, rounds: int, folder: Path) -> None:
    row = ROWS[name]
    load = row.load(folder)
    found: dict[str, list[dict[str, float]]] = {build: [] for build in builds}
    for i in range(rounds):
        for build in reversed(builds) if i % 2 else builds:
            found[build].append(rates(builds[build], load, row))
    base = next(iter(builds))
    for phase in ("decode", "prefill", "known prompt, ms"):
        cells = []
        for build, figures in found.items():
            own = [one[phase] for one in figures]
            ratios = [one[phase] / other[phase] for one, other in zip(figures, found[base], strict=True)]
            cells.append(f"{build} {statistics.median(own):,.2f} ({statistics.median(ratios):.3f})")
        print(f"{name} {phase}: " + ", ".join(cells), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("builds", nargs="+", metavar="NAME=ENGINE")
    parser.add_argument("--row", choices=ROWS, action="append", help="may be repeated (default: all)")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--models", type=Path, default=peers.cache() / "models", help="folder of the models")
    given = parser.parse_args()
    builds = {name: Path(path) for name, _, path in (build.partition("=") for build in given.builds)}
    for row in given.row or ROWS:
        compare(builds, row, given.rounds, given.models)


if __name__ == "__main__":
    main()
