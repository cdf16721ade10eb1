#!/usr/bin/env python3
"""Scores beside llama-perplexity: .venv/bin/python benchmarks/loads/score.py MODEL.gguf TEXT

Both compute the log-probabilities of the second half of each 512 tokens of the text: the engine by the
command `score`, a text of 256 tokens behind a prompt of as many; llama-perplexity, unpatched and with our
patches, as it always does. Two more sides compute them of all 512, which are twice as many rows of logits:
`score` behind one token, and a generation with `echo`. Sides alternate, each round in new processes. Seconds
are those behind the first 2,048 tokens, without the load of the model. Prints tokens per second, medians, and
ratios of rounds.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path[:0] = [str(ROOT)]

from benchmarks import peers  # noqa: E402
from benchmarks.answers import messages  # noqa: E402
from benchmarks.sides.asked import Pipe  # noqa: E402
from benchmarks.sides.table import SIDES, Load  # noqa: E402

CHUNK, FIRST = 512, 4  # tokens; chunks that llama-perplexity computes at once
LONG = 12 * CHUNK  # characters: more than a chunk, and few enough for an answer in one read


class Scorer(Pipe):
    """llama-batched, for scores of tokens."""

    def tokens(self, text: str) -> list[int]:
        return next(
            list(one["tokens"]) for _, one in messages(self._call("tokenize", text=text)) if "tokens" in one
        )

    def score(self, tokens: list[int], known: int) -> None:
        """The log-probabilities of the tokens behind the known ones."""
        self._do("score", tokens=tokens[:known], texts=[tokens[known:]])

    def echo(self, tokens: list[int]) -> None:
        """The log-probabilities of all tokens, as a generation with `echo` gives them."""
        self._do("generate", tokens=tokens, n=1, max_tokens=0, echo=True, logprobs=0)

    def _do(self, op: str, **fields: Any) -> None:
        *_, (_, done) = messages(self._call(op, **fields, cache=False))
        if done["event"] != "done":
            raise RuntimeError(f"{op} failed: {done}")


WAYS: dict[str, Callable[[Scorer, list[int]], None]] = {
    "score": lambda engine, tokens: engine.score(tokens, CHUNK // 2),
    "score, every token": lambda engine, tokens: engine.score(tokens, 1),
    "echo, every token": Scorer.echo,
}


def ours(compute: Callable[[Scorer, list[int]], None], model: Path, text: Path, chunks: int) -> float:
    with SIDES["pipe"].started(Load(model, 4, 4 * CHUNK)) as pipe:
        engine = Scorer(pipe.running)
        with pipe.running.awake():
            whole = text.read_text()
            parts = [engine.tokens(whole[i * LONG : (i + 1) * LONG])[:CHUNK] for i in range(chunks)]
            for part in parts[:FIRST]:
                compute(engine, part)
            began = time.perf_counter()
            for part in parts[FIRST:]:
                compute(engine, part)
            return CHUNK * (chunks - FIRST) / (time.perf_counter() - began)


def theirs(kind: peers.Kind, model: Path, text: Path, chunks: int) -> float:
    program = peers.programs(kind) / "llama-perplexity"
    command = [program, "-m", model, "-f", text, "-c", str(CHUNK), "--chunks", str(chunks), "-fa", "on"]
    command += ["-t", str(os.cpu_count())]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as it:
        assert it.stdout
        said, began = b"", 0.0
        while part := os.read(it.stdout.fileno(), 1 << 16):  # "[1]12.3,[2]…", as chunks are over
            said += part
            if not began and b"[%d]" % FIRST in said:
                began = time.perf_counter()
            if b"[%d]" % chunks in said:
                return CHUNK * (chunks - FIRST) / (time.perf_counter() - began)
    raise RuntimeError(f"llama-perplexity ended after {said[-200:]!r}")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model", type=Path)
    parser.add_argument("text", type=Path)
    parser.add_argument("--chunks", type=int, default=12, help=f"a multiple of {FIRST}")
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    rates: dict[str, list[float]] = {}
    for _ in range(given.rounds):
        for way, compute in WAYS.items():
            rates.setdefault(way, []).append(ours(compute, given.model, given.text, given.chunks))
        for kind in get_args(peers.Kind):
            rates.setdefault(kind, []).append(theirs(kind, given.model, given.text, given.chunks))
    for side, found in rates.items():
        ratio = statistics.median(one / other for one, other in zip(rates["score"], found, strict=True))
        print(f"{side}: {statistics.median(found):,.1f} tokens per second, score / it {ratio:.2f}")


if __name__ == "__main__":
    main()
