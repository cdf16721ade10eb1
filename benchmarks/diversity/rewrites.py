"""Measures whether what follows a passage finds the true one among rewrites: a table of docs/diversity.md.

.venv/bin/python benchmarks/diversity/rewrites.py [--stories FILE] [--questions N]

From held-out stories, each followed by a line <|endoftext|>: a sentence of the middle is taken out, and the
model writes 15 others behind the text before it, each to the end of a sentence. The 16 are ordered by the
mean log-probability of the next 60 words behind each (`rank_by.following`), and as plain continuations: by
their own. How often is the true one among the first 4? By chance in a quarter.
"""

from __future__ import annotations

import argparse
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT)]

from tests.support.serving import Server, serving  # noqa: E402

Json: TypeAlias = dict[str, Any]
HELD_OUT = ROOT.parent / "shared" / "corpus" / "tinystories_heldout_val.txt"
N, FIRST, WORDS, MOST_TOKENS = 15, 4, 60, 100
SENTENCE = re.compile(r"""\s*[^.!?]+[.!?]+["']?(?=\s|$)""")
ORDERS = ("what follows", "own logprob")


@dataclass(frozen=True)
class Passage:
    before: str
    true: str
    behind: str


def passages(stories: list[str], n: int) -> list[Passage]:
    """Of each story with a beginning and an end of enough words, the sentence in its middle."""
    found = []
    for story in stories:
        sentences = list(SENTENCE.finditer(story.strip()))
        if len(sentences) < 6:
            continue
        middle = sentences[len(sentences) // 2]
        text = story.strip()
        one = Passage(text[: middle.start()], middle[0], text[middle.end() :])
        follows = re.match(rf"(?:\s+\S+){{{WORDS}}}", one.behind)
        if follows and one.true.startswith(" "):  # within a paragraph
            found.append(Passage(one.before, one.true, follows[0]))
        if len(found) == n:
            break
    return found


def posted(server: Server, path: str, **body: Any) -> Json:
    status, answer = server.json("POST", path, body)
    assert status == 200, answer
    return dict(answer)


def means(server: Server, prompt: str, texts: list[str]) -> list[float]:
    answer = posted(server, "/v1/score", prompt=prompt, texts=texts)
    return [float(one["mean"]) for one in answer["data"]]


def places(server: Server, one: Passage, seed: int) -> list[int]:
    """The place of the true sentence in each order, from 0 on; of equal ones it is the last."""
    made = posted(server, "/v1/completions", prompt=one.before, n=N, seed=seed, max_tokens=MOST_TOKENS,
                  stream=False, end={"sentences": 1}, diversity="arithmetic")  # fmt: skip
    texts = [one.true, *(choice["text"] for choice in made["choices"])]
    follow = [means(server, one.before + text, [one.behind])[0] for text in texts]
    scores = (follow, means(server, one.before, texts))
    return [sum(value >= true for value in others) for true, *others in scores]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--stories", type=Path, default=HELD_OUT)
    parser.add_argument("--questions", type=int, default=50)
    options = parser.parse_args()
    stories = options.stories.read_text().split("<|endoftext|>")
    asked = passages(stories, options.questions)
    with serving() as server:
        found = []
        for seed, one in enumerate(asked):
            found.append(places(server, one, seed))
            print(seed, *found[-1], repr(one.true), file=sys.stderr)
    n = len(found)
    print(f"{n} sentences, {N} rewrites beside each\n")
    print(f"| ordered by | true one among the first {FIRST} | first | by chance |\n|---|---|---|---|")
    for order, ranks in zip(ORDERS, zip(*found, strict=True), strict=True):
        hits, first = sum(rank < FIRST for rank in ranks), sum(rank == 0 for rank in ranks)
        print(f"| {order} | {hits} of {n} | {first} | {n * FIRST / (N + 1):.1f} |")


if __name__ == "__main__":
    main()
