"""Measures which texts the rankers choose, and how much texts differ by method: tables of docs/diversity.md.

With the bundled model, or with another storyteller:

.venv/bin/python benchmarks/diversity/rankers.py [--model FILE] [SECTION…]    # votes, moods, winners, methods
"""

from __future__ import annotations

import argparse
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
from tests.support.places import STORYTELLER  # noqa: E402
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
    "certainty": "certainty",
    "medoid": "medoid",
}
GLAD = re.compile(r"\b(happy|happily|glad|smiled|laughed|fun|hugged|proud)\b")
GRIM = re.compile(r"\b(sad|sadly|cried|cry|crying|scared|angry|hurt|lonely)\b")
JUDGED = "{text}\n\nAt the end of the day everybody felt very"
JUDGES: dict[str, list[str]] = {"happy": [" happy", " sad"], "sad": [" sad", " happy"]}
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
    names = ("logprob", "certainty", "medoid")
    ways = {"one draw": "", **{name: name for name in names}, "vote": {"vote": {"regex": COLOUR}}}
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


def moods(server: Server) -> None:
    """Of 16 stories the happiest and the saddest for a judge: how often glad words, or grim ones, prevail."""
    rows: dict[str, list[tuple[float, float]]] = {}
    for prompt, seed in itertools.product(PROMPTS, range(20)):
        body = {"prompt": prompt, "n": 16, "max_tokens": 48, "seed": 1000 * seed, "diversity": "none"}
        found = {"any one": first_of(asked(server, **body, rank_by="logprob"), drawn=True)[1]}
        for name, answers in JUDGES.items():
            judge = {"prompt": JUDGED, "answers": answers}
            found[f"judge: {name}"] = first_of(asked(server, **body, rank_by={"judge": judge}))[1]
        for name, text in found.items():
            more = len(GLAD.findall(text)) - len(GRIM.findall(text))
            rows.setdefault(name, []).append((float(more > 0), float(more < 0)))
    for name, each in rows.items():
        print(f"| {name} | " + " | ".join(shown(list(column)) for column in zip(*each, strict=True)) + " |")


def winners(server: Server) -> None:
    """The first of 16 by each ranker: its figures, and its overlap with 16 other texts of the prompt."""
    (served,) = server.json("GET", "/v1/models")[1]["data"]
    rankers = RANKERS | {"medoid by embeddings": {"medoid": {"by": "embeddings", "model": served["id"]}}}
    rows: dict[str, list[tuple[float, ...]]] = {}
    for prompt, seed in itertools.product(PROMPTS, range(8)):
        body = {"prompt": prompt, "n": 16, "max_tokens": 48, "seed": 1000 * seed, "diversity": "none"}
        others = [choice["text"] for choice in asked(server, **body | {"seed": 1000 * seed + 500})["choices"]]
        for name, ranker in rankers.items():
            scores, text = first_of(asked(server, **body, rank_by=ranker or "logprob"), drawn=not ranker)
            alike = mean(overlap(text, other) for other in others)
            rows.setdefault(name, []).append((scores["mean_logprob"], scores["distinct_2"], alike))
    for name, each in rows.items():
        print(f"| {name} | " + " | ".join(shown(list(column)) for column in zip(*each, strict=True)) + " |")
    for name in ("logprob", "typical", "certainty", "diversity", "medoid"):
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


def first_of(answer: Json, *, drawn: bool = False) -> tuple[Json, str]:
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


SECTIONS: dict[str, Callable[[Server], None]] = {
    "votes": votes,
    "moods": moods,
    "winners": winners,
    "methods": methods,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("sections", nargs="*", metavar="SECTION", default=list(SECTIONS))
    parser.add_argument("--model", type=Path, default=STORYTELLER)
    options = parser.parse_args()
    with serving("--model", str(options.model), "--ctx", "16384", "--parallel", "16") as server:
        for name in options.sections:
            print(f"\n{name}", flush=True)
            SECTIONS[name](server)


if __name__ == "__main__":
    main()
