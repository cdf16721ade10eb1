"""Measures what `finish`, `prune` and certainty are worth, and what they cost: tables of docs/diversity.md.

.venv/bin/python benchmarks/diversity/finish.py cloze [--stories FILE] [--questions N]
.venv/bin/python benchmarks/diversity/finish.py arithmetic [--questions N]
.venv/bin/python benchmarks/diversity/finish.py cost [--model FILE] [--pairs N]

cloze: from held-out stories, each followed by a line <|endoftext|>: a sentence in which somebody is named,
of those whom the story has named, up to the name. 16 texts end with their sentence, and vote for the name
that they have last. arithmetic: sums that models/sums.gguf has not seen; 16 texts vote for the sum that they
end with. cost: the time of a decode step with and without certainty, in turns.
"""

from __future__ import annotations

import argparse
import math
import random
import re
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, median
from typing import Any, TypeAlias

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT)]

from models.train.sums import held_out  # noqa: E402
from tests.support.lines import Lines  # noqa: E402
from tests.support.serving import Server, serving  # noqa: E402

Json: TypeAlias = dict[str, Any]
HELD_OUT = ROOT.parent / "shared" / "corpus" / "tinystories_heldout_val.txt"
N, KEEP = 16, 4
NAME = re.compile(r"(?<=[a-z,] )[A-Z][a-z]{2,}\b")  # within a sentence


@dataclass(frozen=True)
class Question:
    prompt: str
    pattern: str
    right: str

    def answer(self, text: str) -> str | None:
        found: list[str] = re.findall(self.pattern, text)
        return found[-1] if found else None


@dataclass(frozen=True)
class Task:
    """Questions, how their texts end, and where they are pruned."""

    questions: list[Question]
    marks: tuple[int, ...]
    most: int
    stop: tuple[str, ...] = ()


@dataclass(frozen=True)
class Text:
    text: str
    length: int
    mean_logprob: float


def cloze(options: argparse.Namespace) -> Task:
    """Stories with two or more names that come at least twice each, up to the sentence of the last name."""
    found = []
    for story in (" ".join(one.split()) for one in options.stories.read_text().split("<|endoftext|>")):
        matches = list(NAME.finditer(story))
        counts = Counter(match.group() for match in matches)
        names = tuple(name for name, count in counts.most_common(4) if count > 1)
        last = [match for match in matches if match.group() in names and 300 < match.start() < 2000][-1:]
        if len(names) > 1 and last:
            sentence = max(story.rfind(mark, 0, last[0].start()) for mark in ".!?") + 1
            found.append(Question(story[:sentence], rf"\b({'|'.join(names)})\b", last[0].group()))
    return Task(found[: options.questions], marks=(4, 8), most=40, stop=(".", "!", "?"))


def arithmetic(options: argparse.Namespace) -> Task:
    """Texts end by themselves, after about 40 tokens."""
    sums = held_out(options.questions, seed=2)
    return Task([Question(sum, r"so (\d+)$", right) for sum, right in sums], marks=(10, 20), most=96)


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


def at_random(texts: list[Text], marks: tuple[int, ...], seed: int) -> tuple[list[Text], int]:
    """As prune, but any text may end at a mark: those that are left, and the tokens of all."""
    dice, left, tokens = random.Random(seed), list(texts), sum(one.length for one in texts)
    for mark in marks:
        ended = [one for one in left if one.length <= mark]
        running = [one for one in left if one.length > mark]
        kept = dice.sample(running, min(len(running), max(0, KEEP - len(ended))))
        tokens -= sum(one.length - mark for one in running if one not in kept)
        left = ended + kept
    return left, tokens


def compare(server: Server, task: Task) -> None:
    """Of each way to end texts: right answers, tokens of a question, mean length of the texts that vote."""
    prune = {"at": task.marks, "keep": KEEP}
    ways: dict[str, Json] = {
        "all 16": {},
        "first 4": {"finish": {"first": 4}},
        "first 8": {"finish": {"first": 8}},
        "vote decided": {"finish": {"vote_decided": True}},
        "pruned by certainty": {"prune": prune | {"by": "certainty"}},
        "pruned by logprob": {"prune": prune | {"by": "logprob"}},
    }
    rows: dict[str, list[tuple[bool, int, float]]] = {}
    for seed, question in enumerate(task.questions):
        body: Json = {
            "prompt": question.prompt,
            "n": N,
            "max_tokens": task.most,
            "seed": 100 * seed,
            "stop": task.stop,
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
                left, spent = at_random(sorted(texts, key=lambda one: one.text), task.marks, seed)
                rows.setdefault("pruned at random", []).append(outcome(question, left, spent))
                one = random.Random(seed).choice(texts)
                rows.setdefault("one draw", []).append(outcome(question, [one], one.length))
            tokens = answer["usage"]["completion_tokens"]
            rows.setdefault(name, []).append(outcome(question, texts, tokens))
    for name, each in rows.items():
        right, tokens, lengths = zip(*each, strict=True)
        share = mean(right)
        error = 2 * math.sqrt(share * (1 - share) / len(right))
        print(
            f"| {name} | {share:.1%} ± {error:.1%} | {mean(tokens):.0f} | {mean(lengths):.1f} |", flush=True
        )
    print(f"{len(task.questions)} questions")


def outcome(question: Question, texts: list[Text], tokens: int) -> tuple[bool, int, float]:
    """Whether the vote is right, the tokens of all texts, the mean length of those that have ended."""
    length = mean([one.length for one in texts] or [0])
    return winner(question, texts) == question.right, tokens, length


def cost(model: Path | None, pairs: int) -> None:
    """Decode time of a step: medians without and with certainty, and the median ratio of pairs of runs."""
    with Lines("-c", "8192", "-np", "32", **({"model": model} if model else {})) as engine:
        step_ms(engine, n=8, seed=0, certainty=True)  # the first run is slower
        for n in (8, 32):
            times: dict[bool, list[float]] = {False: [], True: []}
            for run in range(pairs):
                for certainty in (False, True) if run % 2 else (True, False):
                    times[certainty].append(step_ms(engine, n, run, certainty))
            plain, with_it = median(times[False]), median(times[True])
            ratio = median(b / a for a, b in zip(times[False], times[True], strict=True))
            print(f"| {n} | {plain:.3f} ms | {with_it:.3f} ms | {ratio - 1:+.1%} |", flush=True)


def step_ms(engine: Lines, n: int, seed: int, certainty: bool) -> float:
    fields: Json = {"prompt": "Once upon a time", "n": n, "max_tokens": 65, "certainty": certainty}
    fields["sampling"] = {"seed": seed, "ignore_eos": True, "temperature": 1.5}
    (answer,) = engine.answers(engine.send({"op": "generate", **fields}))
    return float(answer.done["timings"]["decode_ms"]) / 64


TASKS: dict[str, tuple[Callable[[argparse.Namespace], Task], str]] = {
    "cloze": (cloze, "models/storyteller.gguf"),
    "arithmetic": (arithmetic, "models/sums.gguf"),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("section", choices=(*TASKS, "cost"))
    parser.add_argument("--stories", type=Path, default=HELD_OUT)
    parser.add_argument("--questions", type=int, default=200)
    parser.add_argument("--pairs", type=int, default=9, help="of runs, for cost")
    parser.add_argument("--model", type=Path)
    options = parser.parse_args()
    if options.section == "cost":
        cost(options.model, options.pairs)
        return
    make, model = TASKS[options.section]
    with serving(
        "--model", str(options.model or ROOT / model), "--ctx", "16384", "--parallel", "16", "--", "-t", "1"
    ) as server:
        compare(server, make(options))


if __name__ == "__main__":
    main()
