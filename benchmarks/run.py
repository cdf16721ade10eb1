#!/usr/bin/env python3
"""The whole comparison: .venv/bin/python benchmarks/run.py [--part decode] [--only '0.5b:512:*'] [--merge]

Sides are measured alternately (ours, theirs, ours, …). Tables are printed; all figures, the machine and the
commands are written to results.json, plots beside it. Nothing else should run meanwhile. The first run takes
ten minutes longer, since it compiles llama.cpp's own programs (benchmarks/peers.py).
"""

from __future__ import annotations

import argparse
import contextlib
import fnmatch
import functools
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias

sys.path[:0] = [str(Path(__file__).resolve().parent.parent)]

from benchmarks import models, peers, report  # noqa: E402
from benchmarks.answers import Answer, Ask, Figures, words  # noqa: E402
from benchmarks.sides.asked import Asked, Pipe  # noqa: E402
from benchmarks.sides.table import SIDES, Load, Side  # noqa: E402

Record: TypeAlias = Callable[[str, int, Figures], None]


@dataclass(frozen=True, slots=True)
class Row:
    """One row of a table. Bare loops prefill the prompt each time: they run in every bare_every-th round."""

    model: str
    prompt: int
    n: int
    tokens: int
    rounds: int = 3
    bare_every: int = 1
    settings: str = "defaults"

    @property
    def name(self) -> str:
        words = (Path(self.model).name.removesuffix(".gguf"), self.prompt, self.n, self.settings)
        return ":".join(map(str, words[:3] if self.settings == "defaults" else words))

    def load(self, folder: Path) -> Load:
        return Load(model_file(self.model, folder), self.n, self.prompt + self.n * self.tokens)

    def ask(self, *seed: object) -> Ask:
        sampling = tuple(SETTINGS[self.settings].items())
        return Ask(words(self.prompt, (self.name, *seed)), self.n, self.tokens, sampling)


@dataclass(frozen=True, slots=True)
class Crowd:
    """Many clients at once with one request each; a new one arrives every `apart` seconds."""

    model: str
    clients: int
    n: int
    tokens: int
    lengths: tuple[int, ...]
    apart: float
    rounds: int = 3

    @property
    def name(self) -> str:
        return f"{Path(self.model).name.removesuffix('.gguf')}:{self.clients}x{self.n}"

    def load(self, folder: Path) -> Load:
        cells = sum(len(ask.prompt) + ask.n * ask.tokens for ask in self.asks())
        return Load(model_file(self.model, folder), self.clients * self.n, cells)

    def asks(self, *seed: object) -> list[Ask]:
        lengths = [self.lengths[i % len(self.lengths)] for i in range(self.clients)]
        sampling = tuple(SETTINGS["defaults"].items())
        return [
            Ask(words(length, (i, seed)), self.n, self.tokens, sampling) for i, length in enumerate(lengths)
        ]


NO_LIMITS = {"temperature": 1.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0}
SETTINGS: dict[str, dict[str, float]] = {  # all that matters is said: the sides' defaults differ
    "defaults": {"temperature": 0.8, "top_k": 40, "top_p": 0.95, "min_p": 0.05},
    "greedy": NO_LIMITS | {"temperature": 0.0},
    "plain": NO_LIMITS,
    "min_p": NO_LIMITS | {"min_p": 0.05},
    "top_p": NO_LIMITS | {"top_p": 0.95},
    "writer": NO_LIMITS
    | {"min_p": 0.05, "xtc_probability": 0.5, "xtc_threshold": 0.1, "dry_multiplier": 0.8},
}

# fmt: off
SMALL = ((1, 256), (8, 256), (32, 128), (64, 64))  # sequences, and tokens of each
DECODE = (
    Row("0.5b", 512, 1, 64), Row("0.5b", 512, 8, 48), Row("0.5b", 512, 32, 32), Row("0.5b", 512, 64, 24),
    Row("0.5b", 4096, 1, 48, bare_every=2), Row("0.5b", 4096, 8, 32, bare_every=2),
    Row("0.5b", 8192, 8, 32, bare_every=2),
    *(Row(it, 512, n, tokens, bare_every=2) for it in ("1b", "1.5b")
      for n, tokens in ((1, 32), (8, 24), (32, 16), (64, 16))),
    Row("gemma-270m", 512, 1, 64), Row("gemma-270m", 512, 8, 48), Row("gemma-270m", 512, 32, 32),
    *(  # the bare loop has no settings
        Row("gemma-270m", 512, n, 32, bare_every=3, settings=one)
        for one in SETTINGS if one != "defaults" for n in (8, 32)
    ),
    Row("experts", 512, 1, 64), Row("experts", 512, 8, 48), Row("experts", 512, 32, 32),
    *(Row(it, 256, n, tokens) for it in ("15m", "bundled") for n, tokens in SMALL),
)
FIRST = (Row("0.5b", 512, 8, 16), Row("15m", 256, 8, 32), Row("bundled", 256, 8, 32))
PROMPTS = (
    *(Row(model, 512, n, 8) for model in ("0.5b", "gemma-270m") for n in (1, 8, 32)),
    Row("1.5b", 512, 1, 8), Row("experts", 512, 1, 8),
    *(Row(model, 8192, 1, 8, rounds=1) for model in ("0.5b", "1.5b", "gemma-270m", "experts")),
)
IDLE = (Row("0.5b", 512, 8, 48), Row("15m", 256, 32, 128), Row("bundled", 256, 8, 256))
SPINS = (Row("0.5b", 512, 8, 48), Row("15m", 256, 8, 256), Row("bundled", 256, 8, 256))
STARTS = (Row("0.5b", 64, 8, 32), Row("experts", 64, 8, 32), Row("8b", 64, 8, 16))
CELLS = (Row("0.5b", 4096, 8, 32), Row("0.5b", 8192, 8, 32), Row("0.5b", 8192, 1, 32))
OPENVINO = (  # the architectures and types that it reads
    Row("0.5b", 512, 1, 64), Row("0.5b", 512, 8, 48), Row("0.5b", 512, 32, 32), Row("0.5b", 512, 64, 24),
    Row("0.5b", 8192, 8, 32),
    Row("1.5b", 512, 1, 32), Row("1.5b", 512, 8, 24), Row("1.5b", 512, 32, 16),
)
OPENVINO_FIRST = (
    Row("0.5b", 512, 1, 16), Row("0.5b", 8192, 1, 16, rounds=2),
    Row("1.5b", 512, 1, 16), Row("1.5b", 8192, 1, 16, rounds=1),
)
CLIENTS = (
    Crowd("0.5b", 16, 4, 32, (64, 128, 256, 512, 1024), 0.25),
    Crowd("gemma-270m", 16, 4, 32, (64, 128, 256, 512, 1024), 0.25),
    Crowd("15m", 16, 4, 128, (64, 128, 256, 512, 1024), 0.05),
    Crowd("bundled", 16, 4, 128, (64, 128, 256, 512), 0.05),
)
# fmt: on
IDLE_PROMPT = 512  # tokens


# Measurements of the sides of a row; each calls record(side, round, figures).


def decode(row: Row, sides: Sequence[str], folder: Path, record: Record) -> None:
    """Tokens per second. Servers prefill the prompt only in the first round; odd rounds run in reverse."""
    with all_started(sides, row.load(folder)) as started:
        order = list(started.items())
        for i in range(row.rounds):
            for name, it in reversed(order) if i % 2 else order:
                if isinstance(it, Asked) or i % row.bare_every == 0:
                    record(name, i, it.rates(row.ask()))


def idle(row: Row, sides: Sequence[str], folder: Path, record: Record) -> None:
    """Tokens per second while idle prompts fill all cells that they may hold.

    Each round starts new processes, since one is up to 5 % faster than another as long as it lives.
    """
    for i in range(row.rounds):
        with all_started(sides, row.load(folder)) as started:
            facts = {name: filled(it) if name == "full" else {} for name, it in started.items()}
            rates = [{name: it.rates(row.ask())["decode"] for name, it in started.items()} for _ in range(4)]
            for name in started:  # without the first rate, which includes the prefill
                decode = statistics.median(rate[name] for rate in rates[1:])
                record(name, i, {"decode": decode} | facts[name])


def filled(it: Pipe) -> Figures:
    with it.running.awake():
        for i in range(it.status()["cells"] // 4 // IDLE_PROMPT):
            it.prefix(words(IDLE_PROMPT, ("idle", i)))
        return {"idle cells": it.status()["cells_idle"]}


def first_token(row: Row, sides: Sequence[str], folder: Path, record: Record) -> None:
    """The first token of a new prompt, of the same prompt again, and of processes that are just started."""
    prompts(row, [name for name in sides if not SIDES[name].per_request], folder, record)
    load = row.load(folder)
    for i in range(row.rounds):
        for name in sides:
            record(name, i, from_its_start(SIDES[name], load, row.ask(i)))


def prompts(row: Row, sides: Sequence[str], folder: Path, record: Record) -> None:
    """The first token of a new prompt, and of the same prompt again."""
    with all_started(sides, row.load(folder)) as started:
        for i in range(row.rounds):
            for name, it in started.items():
                record(name, i, cold_and_warm(it, row.ask(i)))


def cold_and_warm(it: Asked, ask: Ask) -> Figures:
    with it.running.awake():
        cold = it.ask(ask)
        warm = it.ask(ask)
    steps = warm.first * warm.rate / ask.n
    return {"cold ms": 1000 * cold.first, "warm ms": 1000 * warm.first, "warm steps": steps}


def from_its_start(side: Side, load: Load, ask: Ask) -> Figures:
    """The time from the start of a process to the first token, in ms."""
    began = time.perf_counter()
    with side.started(load) as it:
        ready = 0.0 if side.per_request else time.perf_counter() - began
        start_ms = 1000 * (ready + it.ask(ask).first)
        facts: Figures = it.facts()
        return {"start ms": start_ms} | facts


def starts(row: Row, sides: Sequence[str], folder: Path, record: Record) -> None:
    """Processes one after another: start to the end of a request; then their decode rate and memory."""
    load = row.load(folder)
    for name in sides:  # until the end of its input it has written what later starts read
        subprocess.run(SIDES[name].argv(load), stdin=subprocess.DEVNULL, capture_output=True, check=True)
    for i in range(row.rounds):
        for name in sides:
            began = time.perf_counter()
            with SIDES[name].started(load) as it:
                it.ask(row.ask(i))
                start_ms = 1000 * (time.perf_counter() - began)
                record(name, i, {"start ms": start_ms} | it.rates(row.ask(i)) | it.facts())


def clients(crowd: Crowd, sides: Sequence[str], folder: Path, record: Record) -> None:
    """The figures of overlapping requests."""
    with all_started(sides, crowd.load(folder)) as started:
        for i in range(crowd.rounds):
            for name, it in started.items():
                with it.running.awake():
                    record(name, i, crowded(it, crowd.asks(i), crowd.apart))


def crowded(it: Asked, asks: Sequence[Ask], apart: float) -> Figures:
    """Tokens per second, and percentiles of times in ms, of all sequences together."""

    def arrive(i: int) -> tuple[float, Answer]:
        time.sleep(i * apart)
        return time.perf_counter(), it.ask(asks[i])

    with ThreadPoolExecutor(len(asks)) as pool:
        came = list(pool.map(arrive, range(len(asks))))
    took = max(at + answer.last for at, answer in came) - min(at for at, _ in came)
    first = [1000 * times[0] for _, answer in came for times in answer.times.values()]
    gaps = [1000 * gap for _, answer in came for gap in answer.gaps]
    return {
        "decode": sum(sum(answer.lengths.values()) for _, answer in came) / took,
        "first p50": report.percentile(first, 50), "first p99": report.percentile(first, 99),
        "gap p50": report.percentile(gaps, 50), "gap p99": report.percentile(gaps, 99),
    }  # fmt: skip


@contextlib.contextmanager
def all_started(sides: Sequence[str], load: Load) -> Iterator[dict[str, Any]]:
    """Starts all sides; each answers one request and is then stopped (SIGSTOP)."""
    with contextlib.ExitStack() as stack:
        started = {name: stack.enter_context(SIDES[name].started(load)) for name in sides}
        for it in started.values():
            if isinstance(it, Asked):
                with it.running.awake():
                    it.ask(Ask(words(16, "wake up"), load.parallel, 4))
        yield started


def model_file(name: str, folder: Path) -> Path:
    """The path of a model; one that is not bundled is written if it is missing."""
    if name == "bundled":
        return peers.ROOT / "models/storyteller.gguf"
    if name.endswith(".gguf"):
        return Path(name)
    path, shape = folder / f"{name}.gguf", models.SHAPES[name]
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        vocabularies = Path(peers.setting("CMAKE_HOME_DIRECTORY")) / "models"
        unfinished = path.with_suffix(".new")
        models.write(shape, vocabularies / f"ggml-vocab-{shape.vocabulary}.gguf", unfinished)
        unfinished.replace(path)
    return path


# The run


@dataclass(frozen=True, slots=True)
class Part:
    """A part of the comparison: its measurement, rows and sides."""

    run: Callable[[Any, Sequence[str], Path, Record], None]
    rows: Sequence[Row | Crowd]
    sides: tuple[str, ...]
    by_name: bool = False  # only if --part names it: one of its sides is downloaded


PARTS = {
    # sides that are compared with each other are neighbours
    "decode": Part(decode, DECODE, ("server+", "server", "ours", "pipe", "pipe, empty", "bare+", "bare")),
    "first": Part(first_token, FIRST, ("ours", "alone", "least", "pipe", "server", "server+")),
    "prompts": Part(prompts, PROMPTS, ("ours", "server")),
    "clients": Part(clients, CLIENTS, ("ours", "server", "server+")),
    "idle": Part(idle, IDLE, ("empty", "full")),
    "spins": Part(decode, SPINS, ("bare", "bare, few spins", "server", "server, few spins")),
    "start": Part(starts, STARTS, ("pipe", "pipe, packed")),
    "cells": Part(decode, CELLS, ("pipe", "pipe, q8_0", "pipe, q4_0")),
    "openvino": Part(decode, OPENVINO, ("ours", "openvino"), by_name=True),
    "openvino first": Part(first_token, OPENVINO_FIRST, ("ours", "openvino"), by_name=True),
}
QUICK = ("15m:256:8", "bundled:*:8", "bundled:16x4")


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--part", choices=PARTS, action="append", help="one part; may be repeated (default: all)")
    add("--only", metavar="ROW", action="append", help="rows like 0.5b:8192:8, also with *; may be repeated")
    add("--side", choices=SIDES, action="append", help="one side; may be repeated (default: the part's)")
    add("--rounds", type=int, help="instead of each row's own number")
    add("--quick", action="store_true", help="few rows, two rounds")
    add("--merge", action="store_true", help="add to the figures in results.json instead of beginning anew")
    add(
        "--resume",
        action="store_true",
        help="as --merge, without rows that results.json has of all sides",
    )
    add("--report", action="store_true", help="only print tables and draw plots of results.json")
    add("--model", metavar="FILE", help="all rows on this GGUF file instead of the models of the tables")
    add("--models", type=Path, default=peers.cache() / "models", help="folder of the models")
    add(
        "--results",
        type=Path,
        default=Path(__file__).parent / "results",
        help="folder of results.json and plots",
    )
    given = parser.parse_args()
    if given.quick:
        given.only, given.rounds = given.only or QUICK, given.rounds or 2
    return given


def measure(given: argparse.Namespace, results: report.Results) -> list[str]:
    """Runs the measurements and returns the rows that failed; their figures so far are kept."""
    failed = []
    known = {(one.part, one.row, one.side) for one in results.samples} if given.resume else set()
    for name, row, sides in wanted(given):
        if known >= {(name, row.name, side) for side in sides}:
            continue
        try:
            for side in sides:
                results.command(name, row.name, side, SIDES[side].argv(row.load(given.models)))
            PARTS[name].run(row, sides, given.models, functools.partial(results.add, name, row.name))
        except (OSError, RuntimeError, subprocess.SubprocessError) as error:
            failed.append(f"{name} {row.name}: {error}")
        finally:
            results.save()
    return failed


def wanted(given: argparse.Namespace) -> Iterator[tuple[str, Row | Crowd, list[str]]]:
    """The part, row and sides of each measurement that is asked for."""
    for name in given.part or (name for name, part in PARTS.items() if not part.by_name):
        sides = [side for side in PARTS[name].sides if side in (given.side or SIDES)]
        for row in rows_of(name, given.model) if sides else ():
            if any(fnmatch.fnmatch(row.name, only) for only in given.only or ("*",)):
                yield name, row if given.rounds is None else replace(row, rounds=given.rounds), sides


def rows_of(part: str, file: str | None) -> Sequence[Row | Crowd]:
    """The rows of a part; with a file those that its name tells apart."""
    if file is None:
        return PARTS[part].rows
    rows = [replace(row, model=str(Path(file).resolve())) for row in PARTS[part].rows]
    return list({row.name: row for row in reversed(rows)}.values())[::-1]


def leave(number: int, _: object) -> None:
    """Exits, which ends all processes; a second signal (timeout sends two) must not interrupt that."""
    for ignored in (signal.SIGTERM, signal.SIGINT):
        signal.signal(ignored, signal.SIG_IGN)
    sys.exit(128 + number)


def main() -> None:
    given = options()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, leave)
    results = report.Results(given.results, keep=given.merge or given.resume or given.report)
    failed = [] if given.report else measure(given, results)
    labels = {name: side.label for name, side in SIDES.items()}
    print(report.tables(results.samples, labels))
    report.plots(results.samples, labels, given.results)
    if failed:
        sys.exit("run.py: " + "; ".join(failed))


if __name__ == "__main__":
    main()
