#!/usr/bin/env python3
"""Times the engine's draws alone, on rows of Gaussian logits: .venv/bin/python benchmarks/samplers/run.py

Of 262,144 logits with a deviation of 4.5 the entropy is 2.4 nats, as in a real model's text; 3 gives 8, 2
gives 10.5. `build/bin/engine-tests --samplers` draws from n rows a step, on as many threads as the engine
has, as the engine does (`./build.sh --dev` compiles it). Prints for each row of settings a step's time and
how often the rows could be read in it. `--program` may be given several times, as for builds before and after
a change: they alternate, row by row. On a busy machine `--threads 1` is steadier: it takes the thread's own
time, of which t threads take about 1/t.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import statistics
import subprocess
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent.parent
PROGRAM = ROOT / "build/bin/engine-tests"
ORDER = [
    "penalties", "encoder_repetition_penalty", "no_repeat_ngram", "dry", "top_n_sigma", "top_k", "top_a",
    "tfs", "typ_p", "epsilon_cutoff", "eta_cutoff", "top_p", "min_p", "xtc", "temperature", "smoothing",
]  # fmt: skip
OFF: dict[str, Any] = {
    "samplers": ORDER, "seed": 1, "temperature": 1.0, "dynatemp_range": 0.0,
    "top_k": 0, "top_p": 1.0, "min_p": 0.0, "typical_p": 1.0, "top_n_sigma": -1.0, "min_keep": 0,
    "xtc_probability": 0.0, "xtc_threshold": 0.1,
    "repeat_penalty": 1.0, "repeat_last_n": 64, "presence_penalty": 0.0, "frequency_penalty": 0.0,
    "dry_multiplier": 0.0, "dry_base": 1.75, "dry_allowed_length": 2, "dry_penalty_last_n": -1,
    "mirostat": 0, "adaptive_target": -1.0, "ignore_eos": False,
}  # fmt: skip
LOGPROBS = "log probabilities"
ROWS: dict[str, dict[str, Any]] = {
    "defaults": OFF | {"top_k": 40, "top_p": 0.95, "min_p": 0.05, "temperature": 0.8},
    "top_k 64, top_p 0.95": OFF | {"top_k": 64, "top_p": 0.95},
    "greedy": OFF | {"temperature": 0.0},
    "temperature alone": OFF,
    "min_p 0.05": OFF | {"min_p": 0.05},
    "top_p 0.95": OFF | {"top_p": 0.95},
    "top_p 0.95, min_p 0.05": OFF | {"top_p": 0.95, "min_p": 0.05},
    "typical_p 0.95": OFF | {"typical_p": 0.95},
    "top_n_sigma 1": OFF | {"top_n_sigma": 1.0},
    "min_p, XTC, DRY": OFF | {"min_p": 0.05, "xtc_probability": 0.5, "dry_multiplier": 0.8},
    "repeat_penalty 1.1": OFF | {"repeat_penalty": 1.1},
    "smoothing_factor 0.2": OFF | {"smoothing_factor": 0.2},
    "top_a 0.1": OFF | {"top_a": 0.1},
    "tfs 0.95": OFF | {"tfs": 0.95},
    "epsilon_cutoff 3": OFF | {"epsilon_cutoff": 3.0},
    "eta_cutoff 3": OFF | {"eta_cutoff": 3.0},
    "skew 0.5": OFF | {"skew": 0.5},
    "no_repeat_ngram_size 3": OFF | {"no_repeat_ngram_size": 3},
    "encoder_repetition_penalty 1.1": OFF | {"encoder_repetition_penalty": 1.1},
    "repeat_penalty 1.1, repetition_decay 512": OFF | {"repeat_penalty": 1.1, "repetition_decay": 512},
    "repeat_penalty 1.1, rep_pen_slope 0.7": OFF | {"repeat_penalty": 1.1, "rep_pen_slope": 0.7},
    LOGPROBS: OFF,
}


class Timer:
    """A program that reads rows and writes their times."""

    def __init__(self, program: Path) -> None:
        self.process = subprocess.Popen(
            [program, "--samplers"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def time(self, row: dict[str, Any]) -> dict[str, float]:
        assert self.process.stdin
        assert self.process.stdout
        print(json.dumps(row), file=self.process.stdin, flush=True)
        answer: dict[str, float] = json.loads(self.process.stdout.readline())
        return answer


def measured(timers: list[Timer], row: dict[str, Any], rounds: int) -> list[tuple[float, float]]:
    """For each program the step's time in ms, and the same over that of one read."""
    seen: list[list[dict[str, float]]] = [[] for _ in timers]
    for _ in range(rounds):
        for timer, times in zip(timers, seen, strict=True):
            times.append(timer.time(row))
    return [
        (ms := statistics.median(t["ms"] for t in times),
         ms / statistics.median(t["read_ms"] for t in times))
        for times in seen
    ]  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--program", type=Path, action="append", help="default: build/bin/engine-tests")
    parser.add_argument("--vocab", type=int, nargs="+", default=[262144, 151936, 32000])
    parser.add_argument("--deviation", type=float, nargs="+", default=[4.5, 3.0, 2.0])
    parser.add_argument("-n", type=int, nargs="+", default=[8, 32], help="rows of a step")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--seconds", type=float, default=0.5, help="of a row, a program and a round")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", nargs="+", choices=ROWS, default=list(ROWS))
    options = parser.parse_args()
    timers = [Timer(program) for program in options.program or [PROGRAM]]
    print(f"| tokens | deviation | n | settings |{' ms | reads |' * len(timers)}")
    print(f"|---|---|---|---|{'---|---|' * len(timers)}")
    for n_vocab, deviation, n, name in itertools.product(
        options.vocab, options.deviation, options.n, options.only
    ):
        row = {"n_vocab": n_vocab, "deviation": deviation, "n": n, "threads": options.threads}
        row |= {"seconds": options.seconds, "sampling": ROWS[name], "logprobs": 5 if name == LOGPROBS else -1}
        columns = measured(timers, row, options.rounds)
        cells = "".join(f" {ms:.2f} | {reads:.1f} |" for ms, reads in columns)
        print(f"| {n_vocab:,} | {deviation} | {n} | {name} |{cells}", flush=True)


if __name__ == "__main__":
    main()
