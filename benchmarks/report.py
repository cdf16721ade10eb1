"""Medians, ratios, tables and plots from single figures, which are in results.json."""

from __future__ import annotations

import datetime
import json
import math
import os
import platform
import shlex
import statistics
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeAlias

from benchmarks import peers

Labels: TypeAlias = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Sample:
    """The figures of one side in one round of one run."""

    part: str
    row: str
    side: str
    run: int
    round: int
    figures: dict[str, float]


class Results:
    """results.json: runs (date, machine, commit), commands, samples."""

    def __init__(self, folder: Path, keep: bool) -> None:
        self._path = folder / "results.json"
        found = json.loads(self._path.read_text()) if keep and self._path.exists() else {}
        self._runs: list[dict[str, Any]] = found.get("runs", [])
        self._commands: dict[str, dict[str, str]] = found.get("commands", {})
        self.samples = [Sample(**sample) for sample in found.get("samples", [])]
        self._runs_before = len(self._runs)

    def add(self, part: str, row: str, side: str, round_: int, figures: dict[str, float]) -> None:
        if len(self._runs) == self._runs_before:
            self._runs.append(this_run())
        self.samples.append(Sample(part, row, side, len(self._runs), round_, figures))
        shown = ", ".join(f"{name} {value:.4g}" for name, value in figures.items())
        print(f"{part} {row} {side}: {shown}", file=sys.stderr)

    def command(self, part: str, row: str, side: str, argv: Sequence[str]) -> None:
        """Adds a side's command, without this machine's folders."""
        words = [Path(word).name if os.sep in word else word for word in argv]
        self._commands.setdefault(f"{part} {row}", {})[side] = shlex.join(words)

    def save(self) -> None:
        samples = [asdict(sample) for sample in self.samples]
        content = {"runs": self._runs, "commands": self._commands, "samples": samples}
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._path.write_text(json.dumps(content, indent=1) + "\n")


def this_run() -> dict[str, Any]:
    commit = subprocess.run(
        ["git", "describe", "--always", "--dirty"],
        cwd=peers.ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    return {
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "commit": commit.stdout.strip() or "unknown",
        "llama.cpp": Path(peers.setting("CMAKE_HOME_DIRECTORY")).name,
        "processor": processor(),
        "cores": os.cpu_count(),
        "system": platform.platform(),
    }


def processor() -> str:
    """The processor's name, if the system has it."""
    path = Path("/proc/cpuinfo")
    lines = path.read_text().splitlines() if path.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


# Statistics


def percentile(values: Sequence[float], percent: float) -> float:
    """The smallest value that at least this percentage of the values do not exceed."""
    return sorted(values)[max(0, math.ceil(len(values) * percent / 100) - 1)]


@dataclass(frozen=True, slots=True)
class Figure:
    """One figure of one part, for tables and ratios."""

    samples: Sequence[Sample]
    part: str
    name: str

    def rows(self) -> list[str]:
        """The rows, in the order of their first measurement."""
        return list(dict.fromkeys(sample.row for sample in self._found()))

    def sides(self) -> set[str]:
        return {sample.side for sample in self._found()}

    def values(self, row: str, side: str) -> dict[tuple[int, int], float]:
        """The values of a side, by run and round."""
        chosen = (sample for sample in self._found() if (sample.row, sample.side) == (row, side))
        return {(sample.run, sample.round): sample.figures[self.name] for sample in chosen}

    def median(self, row: str, side: str) -> float | None:
        return median(self.values(row, side).values())

    def ratio(self, row: str, side: str, other: str) -> float | None:
        """The median ratio over rounds with both sides; if there are none, the ratio of medians."""
        ours, theirs = self.values(row, side), self.values(row, other)
        if ours.keys() & theirs.keys():
            return median(ours[key] / theirs[key] for key in ours.keys() & theirs.keys())
        return (
            statistics.median(ours.values()) / statistics.median(theirs.values()) if ours and theirs else None
        )

    def _found(self) -> Iterable[Sample]:
        return (one for one in self.samples if one.part == self.part and self.name in one.figures)


def median(values: Iterable[float]) -> float | None:
    listed = list(values)
    return statistics.median(listed) if listed else None


# Tables


@dataclass(frozen=True, slots=True)
class Table:
    """One table. With one figure it has a line for each row and a column for each side.

    With several figures it has a line for each row and side, and a column for each figure.
    """

    title: str
    part: str
    figures: tuple[str, ...]
    ratios: tuple[tuple[str, str], ...] = ()


BARS = (
    ("ours", "server"),
    ("ours", "server+"),
    ("ours", "bare"),
    ("pipe", "bare+"),
    ("pipe, empty", "bare+"),
)
TABLES = (
    Table("Decode: tokens per second over all sequences", "decode", ("decode",), BARS),
    Table("Time of a step outside the model, percent", "decode", ("around",)),
    Table("Prefill: prompt tokens per second", "decode", ("prefill",), BARS),
    Table("First token of a new prompt, ms", "first", ("cold ms",), BARS[:2]),
    Table("First token of a known prompt, ms", "first", ("warm ms",), (("ours", "server"),)),
    Table("First token of a known prompt, in decode steps", "first", ("warm steps",)),
    Table("First token of a process from its start (per-request: the request), ms", "first", ("start ms",)),
    Table("Resident memory and cells after one request", "first", ("server MB", "engine MB", "cells")),
    Table("First token of a new prompt by n and length, ms", "prompts", ("cold ms",), (("ours", "server"),)),
    Table("Many clients: tokens per second; first token and between tokens, ms", "clients",
          ("decode", "first p50", "first p99", "gap p50", "gap p99")),
    Table("Beside idle prompts: tokens per second", "idle", ("decode",), (("full", "empty"),)),
    Table("A process from its start: ms to the end of its first request, tokens per second, memory", "start",
          ("start ms", "decode", "engine MB")),
    Table("Cells of F16, Q8_0 and Q4_0: tokens per second", "cells", ("decode",),
          (("pipe, q8_0", "pipe"), ("pipe, q4_0", "pipe"))),
    Table("Beside OpenVINO GenAI: tokens per second", "openvino", ("decode",), (("ours", "openvino"),)),
    Table("Beside OpenVINO GenAI: first token of a new prompt, ms", "openvino first", ("cold ms",),
          (("ours", "openvino"),)),
    Table("GOMP_SPINCOUNT=6000 for llama.cpp's own programs: tokens per second", "spins", ("decode",),
          (("bare, few spins", "bare"), ("server, few spins", "server"))),
)  # fmt: skip


def tables(samples: Sequence[Sample], labels: Labels) -> str:
    """All tables that have figures, in Markdown."""
    made = [(table.title, cells(table, samples, labels)) for table in TABLES]
    return "\n".join(f"### {title}\n\n{markdown(lines)}" for title, lines in made if len(lines) > 1)


def cells(table: Table, samples: Sequence[Sample], labels: Labels) -> list[list[str]]:
    """A table's heads and lines."""
    figures = [Figure(samples, table.part, name) for name in table.figures]
    sides = [side for side in labels if any(side in figure.sides() for figure in figures)]
    rows = figures[0].rows()
    if len(figures) > 1:
        lines = [
            [row, labels[side], *(shown(one.median(row, side)) for one in figures)]
            for row in rows
            for side in sides
        ]
        return [["row", "side", *table.figures], *lines]
    (figure,) = figures
    ratios = [pair for pair in table.ratios if {*pair} <= {*sides}]
    heads = [labels[side] for side in sides] + [f"{labels[one]} / {labels[other]}" for one, other in ratios]
    lines = [
        [
            row,
            *(shown(figure.median(row, side)) for side in sides),
            *(shown(figure.ratio(row, *pair)) for pair in ratios),
        ]
        for row in rows
    ]
    return [["model:prompt:n", *heads], *lines]


def shown(value: float | None) -> str:
    """A number with three significant digits."""
    if value is None:
        return ""
    return f"{value:,.{max(0, 2 - math.floor(math.log10(abs(value))))}f}" if value else "0"


def markdown(lines: Sequence[Sequence[str]]) -> str:
    heads, *rest = lines
    marked = [heads, ["---"] * len(heads), *rest]
    return "".join(f"| {' | '.join(line)} |\n" for line in marked)


# Plots


@dataclass(frozen=True, slots=True)
class Plot:
    """A plot of decode speed by n or by prompt length; its rows, model:prompt:n, differ only in that."""

    name: str
    title: str
    over: str  # n or prompt
    rows: tuple[str, ...]


PLOTS = (
    Plot("n-0.5b", "0.5B model, prompt of 512 tokens", "n",
         ("0.5b:512:1", "0.5b:512:8", "0.5b:512:32", "0.5b:512:64")),
    Plot("n-15m", "15M model, prompt of 256 tokens", "n",
         ("15m:256:1", "15m:256:8", "15m:256:32", "15m:256:64")),
    Plot("n-bundled", "bundled model, prompt of 256 tokens", "n",
         ("bundled:256:1", "bundled:256:8", "bundled:256:32", "bundled:256:64")),
    Plot("prompt-0.5b", "0.5B model, n = 8", "prompt", ("0.5b:512:8", "0.5b:4096:8", "0.5b:8192:8")),
)  # fmt: skip
COLORS = {
    "ours": "C3",
    "server": "C0",
    "server+": "C9",
    "bare": "C7",
    "bare+": "C8",
}  # without the pipe, whose curve would hide ours


def plots(samples: Sequence[Sample], labels: Labels, folder: Path) -> None:
    """Writes the plots that have figures as PNG files."""
    try:
        from matplotlib.figure import Figure as Canvas
    except ImportError:
        print("no plots: matplotlib is missing (pip install 'llama-srb[bench]')", file=sys.stderr)
        return
    figure = Figure(samples, "decode", "decode")
    for plot in PLOTS:
        lines = {side: points(figure, plot, side) for side in COLORS}
        if max(map(len, lines.values())) < 2:
            continue
        canvas = Canvas(figsize=(6, 3.6), layout="constrained")
        axes = canvas.subplots()
        for side, at in lines.items():
            axes.plot(*zip(*at, strict=True), "o-", color=COLORS[side], label=labels[side]) if at else None
        axes.set(title=plot.title, xlabel={"n": "sequences", "prompt": "tokens of the prompt"}[plot.over])
        axes.set(
            ylabel="tokens per second, all sequences", ylim=(0, None), xticks=[x for x, _ in lines["ours"]]
        )
        axes.grid(alpha=0.3)
        axes.legend(frameon=False, loc="center left", bbox_to_anchor=(1, 0.5))  # beside the curves
        canvas.savefig(folder / f"{plot.name}.png", dpi=120, bbox_inches="tight")


def points(figure: Figure, plot: Plot, side: str) -> list[tuple[int, float]]:
    found = (
        (row.split(":")[{"prompt": 1, "n": 2}[plot.over]], figure.median(row, side)) for row in plot.rows
    )
    return [(int(x), y) for x, y in found if y is not None]
