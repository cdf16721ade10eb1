"""Measures which texts the rankers choose, and how much texts differ by method: tables of docs/diversity.md.

With the bundled model on this machine:

.venv/bin/python benchmarks/diversity/rankers.py [SECTION…]    # votes, winners, methods
"""

from __future__ import annotations

import itertools
import math
import random
import re
import sys
from collections.abc import Callable
from pathlib import Path
from statistics import mean, stdev
from typing import Any, TypeAlias
from zlib import crc32

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT)]

from llama_srb.engine.ranking.candidates import n_grams, words  # noqa: E402
from tests.support.serving import Server, serving  # noqa: E402

Json: TypeAlias = dict[str, Any]

COLOURS = ("red", "blue", "green", "yellow", "pink", "purple", "black", "white")
THINGS = ("ball", "hat", "car", "kite", "dress", "boat", "bag", "cup")
COLOUR = r"\b(" + "|".join(COLOURS) + r")\b"
PROMPTS = ("Once upon a time,", "Lily and her dog", "The old man", "One day, Tim", "In the forest")
RANKERS: dict[str, str | Json] = {
    "none: any one": "",
    "logprob": "logprob",
    "typical": "typical",
    "medoid": "medoid",
    "medoid by embeddings": {"medoid": {"by": "embeddings", "model": "storyteller"}},
}
METHODS: dict[str, Json] = {
    "temperature 0.5": {"temperature": 0.5},
    "none": {"diversity": "none"},
    "arithmetic": {"diversity": "arithmetic"},
    "distinct first tokens": {"first_token": "distinct"},
    "arithmetic, distinct first tokens": {"diversity": "arithmetic", "first_token": "distinct"},
    "temperature 1.2, min_p 0.1": {"temperature": 1.2, "min_p": 0.1, "top_k": 0, "top_p": 1},
    "XTC 0.5, 0.1": {"xtc_probability": 0.5, "xtc_threshold": 0.1},
}


def asked(server: Server, **body: Any) -> Json:
    status, answer = server.json("POST", "/v1/completions", {"stream": False, **body})
    assert status == 200, answer
    return dict(answer)


def shown(values: list[float]) -> str:
    """The mean, and twice its standard error."""
    return f"{mean(values):.3f} ± {2 * stdev(values) / math.sqrt(len(values)):.3f}"


def questions(n: int) -> list[tuple[str, str]]:
    """Stories in which somebody looks for a thing of a colour, up to where it is found, and the colour."""
    dice = random.Random(1)
    named = [(dice.choice(COLOURS), dice.choice(THINGS)) for _ in range(n)]
    return [
        (f"Sue lost her {colour} {thing}. She looked for the {colour} {thing} all day. "
         f"At last she saw something {colour} under the tree. It was a", colour)
        for colour, thing in named
    ]  # fmt: skip


def votes(server: Server) -> None:
    """Of 16 short answers: how often each way to choose one is right."""
    ways = {"one draw": "", "logprob": "logprob", "medoid": "medoid", "vote": {"vote": {"regex": COLOUR}}}
    right: dict[str, list[bool]] = {}
    for seed, (prompt, colour) in enumerate(questions(100)):
        body = {"prompt": prompt, "n": 16, "max_tokens": 8, "seed": 100 * seed, "diversity": "none"}
        body |= {"temperature": 1.0, "top_k": 0, "top_p": 1, "min_p": 0}
        greedy = asked(server, **body | {"n": 1, "temperature": 0})
        found = {"temperature 0": greedy["choices"][0]["text"]}
        for name, by in ways.items():
            found[name] = asked(server, **body, **{"rank_by": by} if by else {})["choices"][0]["text"]
        for name, text in found.items():
            right.setdefault(name, []).append(re.findall(COLOUR, text)[-1:] == [colour])
    for name, each in right.items():
        print(f"| {name} | {mean(each):.0%} |")


def winners(server: Server) -> None:
    """The first of 16 by each ranker: its figures, and its overlap with 16 other texts of the prompt."""
    rows: dict[str, list[tuple[float, ...]]] = {}
    for prompt, seed in itertools.product(PROMPTS, range(8)):
        body = {"prompt": prompt, "n": 16, "max_tokens": 48, "seed": 1000 * seed, "diversity": "none"}
        others = [choice["text"] for choice in asked(server, **body | {"seed": 1000 * seed + 500})["choices"]]
        for name, ranker in RANKERS.items():
            scores, text = first_of(asked(server, **body, rank_by=ranker or "logprob"), drawn=not ranker)
            alike = mean(overlap(text, other) for other in others)
            rows.setdefault(name, []).append((scores["mean_logprob"], scores["distinct_2"], alike))
    for name, each in rows.items():
        print(f"| {name} | " + " | ".join(shown(list(column)) for column in zip(*each, strict=True)) + " |")
    for name in ("logprob", "typical", "diversity", "medoid"):
        figures: list[tuple[float, ...]] = []
        for prompt, seed in itertools.product(PROMPTS, range(8)):
            body = {"prompt": prompt, "n": 4, "best_of": 16, "max_tokens": 48, "seed": 1000 * seed}
            answer = asked(server, **body, diversity="none", rank_by=name, diversity_stats=True)
            stats = answer["diversity_stats"]
            likely = mean(choice["scores"]["mean_logprob"] for choice in answer["choices"])
            figures.append((likely, stats["beginnings"], stats["mean_overlap"], stats["effective_number"]))
        print(
            f"| best 4 by {name} | " + " | ".join(shown(list(c)) for c in zip(*figures, strict=True)) + " |"
        )


def first_of(answer: Json, *, drawn: bool) -> tuple[Json, str]:
    """The scores and the text of the best choice; drawn: of one that does not depend on the order."""
    choices = answer["choices"]
    one = min(choices, key=lambda choice: crc32(choice["text"].encode())) if drawn else choices[0]
    return one["scores"], one["text"]


def overlap(one: str, other: str) -> float:
    """As llama_srb.engine.ranking.similarity has it, computed from sets."""
    first, second = grams(one), grams(other)
    return len(first & second) / len(first | second)


def grams(text: str) -> set[tuple[str, ...]]:
    return {gram for n in (1, 2, 3) for gram in n_grams(words(text), n)}


def methods(server: Server) -> None:
    """16 texts by each method: mean logprob of a token under the plain model, and diversity_stats."""
    for name, fields in METHODS.items():
        figures: list[tuple[float, ...]] = []
        for prompt, seed in itertools.product(PROMPTS, range(8)):
            body = {"prompt": prompt, "n": 16, "max_tokens": 32, "seed": 1000 * seed, "diversity": "none"}
            answer = asked(server, **body | fields, rank_by="logprob", diversity_stats=True)
            stats = answer["diversity_stats"]
            likely = mean(choice["scores"]["mean_logprob"] for choice in answer["choices"])
            figures.append((likely, stats["beginnings"], stats["mean_overlap"], stats["effective_number"]))
        print(f"| {name} | " + " | ".join(shown(list(c)) for c in zip(*figures, strict=True)) + " |")


SECTIONS: dict[str, Callable[[Server], None]] = {"votes": votes, "winners": winners, "methods": methods}


def main() -> None:
    with serving("--ctx", "16384", "--parallel", "16") as server:
        for name in sys.argv[1:] or SECTIONS:
            print(f"\n{name}")
            SECTIONS[name](server)


if __name__ == "__main__":
    main()
