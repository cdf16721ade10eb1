"""Measures how good and how different texts are by sampler: the table of docs/samplers.md.

.venv/bin/python benchmarks/samplers/quality.py [--model FILE] [-n 32] [SETTING…]

Each setting alone, all others off: n texts of at most 200 tokens for each of ten prompts. A row has the mean
log-probability of a token under the model as it is, the share of groups of four words that stand once among a
prompt's texts (distinct-4), and the share of texts in which eight words in a row come again.
"""

from __future__ import annotations

import argparse
import sys
from itertools import chain
from pathlib import Path
from statistics import mean
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT)]

from tests.support.places import STORYTELLER  # noqa: E402
from tests.support.serving import Server, serving  # noqa: E402

PROMPTS = (
    "Once upon a time,", "Lily and her dog", "The old man", "One day, Tim", "In the forest", "The fox said,",
    "Mia was sad because", "There was a small boat", "Ben and Sue wanted to", "It was raining, so",
)  # fmt: skip
OFF = {
    "temperature": 1, "top_k": 0, "top_p": 1, "min_p": 0, "repeat_penalty": 1, "max_tokens": 200,
    "stream": False, "seed": 1, "diversity": "none", "logprobs": 0,
}  # fmt: skip
SETTINGS: dict[str, dict[str, Any]] = {
    "everything off": {},
    "`temperature` 0.7": {"temperature": 0.7},
    "`temperature` 1.3": {"temperature": 1.3},
    "`temperature` 1.3, `min_p` 0.1": {"temperature": 1.3, "min_p": 0.1},
    "`temperature` 1.3, then `min_p` 0.1": {"samplers": "temperature:1.3 > min_p:0.1"},
    "`smoothing_factor` 0.3": {"smoothing_factor": 0.3},
    "`smoothing_factor` 0.3, `smoothing_curve` 3": {"smoothing_factor": 0.3, "smoothing_curve": 3},
    "`skew` 1": {"skew": 1},
    "`skew` -1": {"skew": -1},
    "`top_k` 40": {"top_k": 40},
    "`top_p` 0.9": {"top_p": 0.9},
    "`min_p` 0.1": {"min_p": 0.1},
    "`typical_p` 0.9": {"typical_p": 0.9},
    "`top_n_sigma` 1": {"top_n_sigma": 1},
    "`top_a` 0.3": {"top_a": 0.3},
    "`tfs` 0.9": {"tfs": 0.9},
    "`epsilon_cutoff` 30": {"epsilon_cutoff": 30},
    "`eta_cutoff` 30": {"eta_cutoff": 30},
    "`xtc_probability` 0.5": {"xtc_probability": 0.5, "min_p": 0.05},
    "`adaptive_target` 0.5": {"adaptive_target": 0.5, "min_p": 0.05},
    "`mirostat` 2, `mirostat_tau` 3": {"mirostat": 2, "mirostat_tau": 3},
    "`repeat_penalty` 1.1": {"repeat_penalty": 1.1},
    "`repetition_decay` 256": {"repeat_penalty": 1.1, "repetition_decay": 256},
    "`presence_penalty` 0.5": {"presence_penalty": 0.5},
    "`dry_multiplier` 0.8": {"dry_multiplier": 0.8},
    "`no_repeat_ngram_size` 4": {"no_repeat_ngram_size": 4},
    "`encoder_repetition_penalty` 1.1": {"encoder_repetition_penalty": 1.1},
    "`temperature` 0": {"temperature": 0},
    "`temperature` 0, `dry_multiplier` 0.8": {"temperature": 0, "dry_multiplier": 0.8},
    "`temperature` 0, `no_repeat_ngram_size` 4": {"temperature": 0, "no_repeat_ngram_size": 4},
}  # fmt: skip
PASSAGE = 8  # words


def groups(text: str, size: int) -> list[tuple[str, ...]]:
    words = text.split()
    return list(zip(*(words[i:] for i in range(size)), strict=False))


def row(server: Server, fields: dict[str, Any], n: int) -> tuple[float, float, float]:
    """Mean log-probability, distinct-4, share of texts with a passage that comes again."""
    logprobs: list[float] = []
    distinct, repeated = [], []
    for prompt in PROMPTS:
        status, answer = server.json("POST", "/v1/completions", OFF | {"prompt": prompt, "n": n} | fields)
        assert status == 200, answer
        texts = [choice["text"] for choice in answer["choices"]]
        logprobs += chain.from_iterable(one["logprobs"]["token_logprobs"] for one in answer["choices"])
        fours = [four for text in texts for four in groups(text, 4)]
        distinct.append(len(set(fours)) / max(1, len(fours)))
        for text in texts:
            passages = groups(text, PASSAGE)
            repeated.append(len(set(passages)) < len(passages))
    return mean(logprobs), mean(distinct), mean(repeated)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("settings", nargs="*")
    parser.add_argument("--model", type=Path, default=STORYTELLER)
    parser.add_argument("-n", type=int, default=32)
    given = parser.parse_args()
    print("| setting | log-probability | distinct-4 | repeated |\n| -- | -- | -- | -- |")
    with serving("--model", str(given.model), "--parallel", str(given.n), "--ctx", "16384") as server:
        for name, fields in SETTINGS.items():
            if not given.settings or name in given.settings:
                logprob, distinct, repeated = row(server, fields, given.n)
                print(f"| {name} | {logprob:.2f} | {distinct:.3f} | {repeated:.0%} |", flush=True)


if __name__ == "__main__":
    main()
