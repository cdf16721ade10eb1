"""Measures what `finish`, `prune` and certainty are worth, and what they cost: tables of docs/diversity.md.

.venv/bin/python benchmarks/diversity/finish.py cloze [--stories FILE] [--questions N]
.venv/bin/python benchmarks/diversity/finish.py cost [--model FILE]

cloze: from held-out stories, each followed by a line <|endoftext|>: a sentence in which somebody is named,
of those whom the story has named, up to the name. 16 texts end with their sentence, and vote for the name
that they have last. cost: the time of a decode step with and without certainty, in turns.
"""

from __future__ import annotations

import argparse
import random
import re
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, median
from typing import Any, TypeAlias

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT)]

from tests.support.lines import Lines  # noqa: E402
from tests.support.serving import Server, serving  # noqa: E402

Json: TypeAlias = dict[str, Any]
HELD_OUT = ROOT.parent / "shared" / "corpus" / "tinystories_heldout_val.txt"
N, MOST, MARKS, KEEP = 16, 40, (4, 8), 4
NAME = re.compile(r"(?<=[a-z,] )[A-Z][a-z]{2,}\b")  # within a sentence


@dataclass(frozen=True)
class Question:
    prompt: str
    names: tuple[str, ...]
    right: str

    @property
    def pattern(self) -> str:
        return r"\b(" + "|".join(self.names) + r")\b"

    def answer(self, text: str) -> str | None:
        return (re.findall(self.pattern, text) or [None])[-1]


@dataclass(frozen=True)
class Text:
    text: str
    length: int
    mean_logprob: float


def questions(stories: list[str], n: int) -> list[Question]:
    """Stories with two or more names that come at least twice each, up to the last name."""
    found = []
    for story in stories:
        matches = list(NAME.finditer(story))
        counts = Counter(match.group() for match in matches)
        names = tuple(name for name, count in counts.most_common(4) if count > 1)
        last = [match for match in matches if match.group() in names and 300 < match.start() < 2000][-1:]
        if len(names) > 1 and last:
            sentence = max(story.rfind(mark, 0, last[0].start()) for mark in ".!?") + 1
            found.append(Question(story[:sentence], names, last[0].group()))
    return found[:n]


def asked(server: Server, **body: Any) -> Json:
    status, answer = server.json("POST", "/v1/completions", {"stream": False, **body})
    assert status == 200, answer
    return dict(answer)


def winner(question: Question, texts: list[Text]) -> str | None:
    """The answer of most texts; of as many the one with the likeliest text."""
    votes: dict[str, list[Text]] = {}
    for one in texts:
        if (answer := question.answer(one.text)) is not None:
            votes.setdefault(answer, []).append(one)
    best = {answer: (len(each), max(t.mean_logprob for t in each)) for answer, each in votes.items()}
    return max(best, key=best.__getitem__) if best else None


def at_random(texts: list[Text], seed: int) -> tuple[list[Text], int]:
    """As prune, but any text may end at a mark: those that are left, and the tokens of all."""
    dice, left, tokens = random.Random(seed), list(texts), sum(one.length for one in texts)
    for mark in MARKS:
        ended = [one for one in left if one.length <= mark]
        running = [one for one in left if one.length > mark]
        kept = dice.sample(running, min(len(running), max(0, KEEP - len(ended))))
        tokens -= sum(one.length - mark for one in running if one not in kept)
        left = ended + kept
    return left, tokens


def cloze(server: Server, stories: list[str], n: int) -> None:
    prune = {"at": MARKS, "keep": KEEP}
    ways: dict[str, Json] = {
        "all 16": {},
        "first 4": {"finish": {"first": 4}},
        "first 8": {"finish": {"first": 8}},
        "vote decided": {"finish": {"vote_decided": True}},
        "pruned by certainty": {"prune": prune | {"by": "certainty"}},
        "pruned by logprob": {"prune": prune | {"by": "logprob"}},
    }
    rows: dict[str, list[tuple[bool, int, float]]] = {}
    for seed, question in enumerate(questions(stories, n)):
        body: Json = {
            "prompt": question.prompt,
            "n": N,
            "max_tokens": MOST,
            "seed": 100 * seed,
            "stop": [".", "!", "?"],
        }
        body |= {"temperature": 1.0, "top_k": 0, "top_p": 1, "min_p": 0, "diversity": "none"}
        body["rank_by"] = {"vote": {"regex": question.pattern}}
        for name, fields in ways.items():
            answer = asked(server, **body | fields)
            texts = [
                Text(one["text"], one["scores"]["length"], one["scores"]["mean_logprob"])
                for one in answer["choices"]
                if one["finish_reason"] in ("stop", "length")
            ]
            if name == "all 16":
                left, tokens = at_random(sorted(texts, key=lambda one: one.text), seed)
                rows.setdefault("pruned at random", []).append(outcome(question, left, tokens))
                one = random.Random(seed).choice(texts)
                rows.setdefault("one draw", []).append(outcome(question, [one], one.length))
            tokens = answer["usage"]["completion_tokens"]
            rows.setdefault(name, []).append(outcome(question, texts, tokens))
    for name, each in rows.items():
        right, tokens, lengths = zip(*each, strict=True)
        print(f"| {name} | {mean(right):.1%} | {mean(tokens):.0f} | {mean(lengths):.1f} |", flush=True)
    print(f"{len(each)} questions")


def outcome(question: Question, texts: list[Text], tokens: int) -> tuple[bool, int, float]:
    """Whether the vote is right, the tokens of all texts, the mean length of those that have ended."""
    length = mean([one.length for one in texts] or [0])
    return winner(question, texts) == question.right, tokens, length


def cost(model: Path | None) -> None:
    """Decode time of a step, the median of 9 pairs of runs."""
    with Lines("-c", "8192", "-np", "32", **({"model": model} if model else {})) as engine:
        for n in (8, 32):
            times: dict[bool, list[float]] = {False: [], True: []}
            for run in range(9):
                for certainty in (False, True) if run % 2 else (True, False):
                    fields = {"prompt": "Once upon a time", "n": n, "max_tokens": 65, "certainty": certainty}
                    fields["sampling"] = {"seed": run, "ignore_eos": True, "temperature": 1.5}
                    (answer,) = engine.answers(engine.send({"op": "generate", **fields}))
                    times[certainty].append(answer.done["timings"]["decode_ms"] / 64)
            plain, with_it = median(times[False]), median(times[True])
            ratio = median(b / a for a, b in zip(times[False], times[True], strict=True))
            print(f"| {n} | {plain:.3f} ms | {with_it:.3f} ms | {ratio - 1:+.1%} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("section", choices=("cloze", "cost"))
    parser.add_argument("--stories", type=Path, default=HELD_OUT)
    parser.add_argument("--questions", type=int, default=200)
    parser.add_argument("--model", type=Path)
    options = parser.parse_args()
    if options.section == "cost":
        cost(options.model)
        return
    stories = [" ".join(one.split()) for one in options.stories.read_text().split("<|endoftext|>")]
    with serving("--ctx", "16384", "--parallel", "16") as server:
        cloze(server, stories, options.questions)


if __name__ == "__main__":
    main()
