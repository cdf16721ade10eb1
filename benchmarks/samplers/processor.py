#!/usr/bin/env python3
"""What an operator's own logits processor costs: .venv/bin/python benchmarks/samplers/processor.py

One engine with the shape of 0.5B (151,936 tokens). Requests alternate: without the processor, with one that
changes nothing, with one that scales whole rows, and without it beside a request whose processor takes half
a second for each row. It prints medians of tokens per second, and of the processor's own time a step.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path[:0] = [str(ROOT)]

from benchmarks import peers  # noqa: E402
from benchmarks.answers import words  # noqa: E402
from benchmarks.run import model_file  # noqa: E402
from llama_srb.config import load  # noqa: E402
from tests.support.lines import Lines  # noqa: E402

PROMPT, TOKENS = 128, 48
MODULE = """
import time

class Own:
    def apply(self, rows, sequences):
        if sequences[0].arguments.get("scales"):
            rows *= 0.9
        time.sleep(sequences[0].arguments.get("sleeps", 0))

def make(vocabulary):
    return Own()
"""
WISHES: dict[str, object] = {"without": False, "nothing": True, "whole rows": {"scales": True}}


def asked(n: int, wish: object, seed: object) -> dict[str, Any]:
    sampling = {"temperature": 0.8, "top_k": 40, "seed": 7, "ignore_eos": True}
    return {
        "op": "generate", "tokens": words(PROMPT, seed), "n": n, "max_tokens": TOKENS, "sampling": sampling,
        "logits_processor": wish,
    }  # fmt: skip


def rate(engine: Lines, n: int, wish: object, seed: object) -> tuple[float, float]:
    """Tokens per second, and ms of the processor a step."""
    timings = engine.generate(**asked(n, wish, seed)).done["timings"]
    own = timings.get("logits_processor_ms", 0.0) / TOKENS
    return 1000 * n * (TOKENS - 1) / timings["decode_ms"], own


def beside_a_slow_one(engine: Lines, n: int, seed: object) -> float:
    """The rate without a processor while another client's sequences wait for theirs."""
    (slow,) = engine.send(asked(1, {"sleeps": 0.5}, (seed, "slow")) | {"client": "slow"})
    time.sleep(1.0)
    found, _ = rate(engine, n, False, seed)
    engine.send({"op": "cancel", "id": slow})
    engine.answers([slow])
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--models", type=Path, default=peers.cache() / "models", help="folder of the models")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "own_rows.py").write_text(MODULE)
        sys.path[:0] = [folder]
        command = load({"logits_processor": "own_rows:make"}, environ={}).engine_command
        flags = command[command.index("--logits-processor") :]
        model = model_file("0.5b", given.models)
        with Lines(*flags, "-np", "33", "-c", "8192", model=model) as engine:
            for n in (1, 8, 32):
                measure(engine, n, given.rounds)


def measure(engine: Lines, n: int, rounds: int) -> None:
    rates: dict[str, list[float]] = {name: [] for name in (*WISHES, "beside a slow one")}
    own: dict[str, list[float]] = {name: [] for name in WISHES}
    for i in range(rounds):
        for name in reversed(WISHES) if i % 2 else WISHES:
            found, ms = rate(engine, n, WISHES[name], (n, i, name))
            rates[name].append(found)
            own[name].append(ms)
        rates["beside a slow one"].append(beside_a_slow_one(engine, n, (n, i)))
    plain = statistics.median(rates["without"])
    for name, found in rates.items():
        share = statistics.median(found) / plain
        ms = f", {statistics.median(own[name]):.2f} ms a step" if name in own else ""
        print(
            f"n = {n}, {name}: {statistics.median(found):.1f} tokens per second ({share:.3f}){ms}", flush=True
        )


if __name__ == "__main__":
    main()
