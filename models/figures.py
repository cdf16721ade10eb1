#!/usr/bin/env python3
"""The figures of models/README.md: .venv/bin/python models/figures.py CORPUS [MODEL…]

All is asked of the engine (build/bin/llama-batched): how likely it finds the held-out stories, and what
it writes after one prompt. CORPUS holds *heldout*.txt, and *train*.txt and *extra*.txt to look for copies in.
Bits per byte: the stories of the held-out file, a token of end after each, in windows that each begin with
one; divided by the stories' own bytes, so that the ends cost but do not count.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import re
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
END = "<|endoftext|>"
PROMPT = "Once upon a time,"
TEMPERATURES = (0.7, 0.85, 1.0)
SAMPLES = 40  # a temperature
LONGEST = 400  # tokens in which a story should have ended
COPIED = 13  # words in a row that count as copied
SHOWN = (0.0, 0.7, 1.2)  # temperatures of the stories printed
STORY = """\
Once upon a time, there was a little fox named Finn. Finn lived in a small red house near the river with \
his mom. One day, he found a shiny blue stone under a tree. "Look, Mom! I found a treasure!" he said. His \
mom smiled and said, "It is very pretty, Finn. But maybe somebody lost it." Finn was sad, because he \
wanted to keep the stone. Then he saw a little duck who was crying by the water. "What is wrong?" asked \
Finn. "I lost my blue stone," said the duck. Finn gave the stone back to her. The duck was so happy that \
she gave him a big hug. They played together by the river all day, and from then on they were best \
friends."""

Event = dict[str, Any]


class Engine:
    """One llama-batched, asked one thing at a time."""

    def __init__(self, model: Path, *flags: str) -> None:
        argv = [str(ROOT / "build/bin/llama-batched"), "-m", str(model), *flags]
        self._process = subprocess.Popen(
            argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        self.ready = next(event for event in self._events() if event["event"] == "ready")

    def __enter__(self) -> Engine:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: TracebackType | None) -> None:
        self._process.communicate()  # the end of its input ends it

    def _events(self) -> Iterator[Event]:
        assert self._process.stdout
        for line in self._process.stdout:
            yield json.loads(line)
        raise SystemExit(f"llama-batched ended with {self._process.wait()}")

    def ask(self, op: str, **fields: Any) -> list[Event]:
        assert self._process.stdin
        self._process.stdin.write(json.dumps({"op": op, "id": "1", **fields}) + "\n")
        self._process.stdin.flush()
        events = []
        for event in self._events():
            events.append(event)
            if event["event"] == "error":
                raise SystemExit(event["message"])
            if event["event"] in ("done", "result"):
                break
        return events


def stories(files: list[Path]) -> list[str]:
    parts = (part.strip() for file in files for part in file.read_text(encoding="utf-8").split(END))
    return [part for part in parts if part]


def bits_per_byte(engine: Engine, texts: list[str], window: int) -> float:
    """Over all of `texts`, packed into windows of that many tokens."""
    ids: list[int] = []
    for text in texts:
        ids += [*engine.ask("tokenize", text=text, add_special=False)[-1]["tokens"], 0]
    cuts = [ids[i : i + window - 1] for i in range(0, len(ids), window - 1)]
    nats = 0.0
    for i in range(0, len(cuts), 8):
        scored = engine.ask("score", tokens=[0], texts=cuts[i : i + 8], cache=False)
        nats -= sum(event["logprob"] for event in scored if event["event"] == "score")
    return nats / math.log(2) / sum(len(text.encode()) for text in texts)


def samples(engine: Engine, n: int, **sampling: float) -> tuple[list[str], float]:
    """n continuations of PROMPT, and the share that ended by itself."""
    events = engine.ask("generate", prompt=PROMPT, n=n, max_tokens=LONGEST, sampling={"seed": 1} | sampling)
    texts = [PROMPT] * n
    for event in events:
        if event["event"] == "stream":
            texts[event["index"]] += event["text"]
    ended = [event["finish_reason"] == "stop" for event in events if event["event"] == "stop"]
    return texts, sum(ended) / n


def words(text: str) -> list[str]:
    return re.findall(r"\w+|[^\w\s]", text)


def grams(tokens: list[str], n: int) -> list[tuple[str, ...]]:
    return list(zip(*(tokens[i:] for i in range(n)), strict=False))


def bleu(text: list[str], others: list[list[str]]) -> float:
    """BLEU-4 (Papineni et al. 2002) of one text against the others."""
    logs = 0.0
    for n in range(1, 5):
        bound: Counter[tuple[str, ...]] = Counter()
        for other in others:
            bound |= Counter(grams(other, n))
        own = Counter(grams(text, n))
        logs += math.log(max((own & bound).total(), 1e-9) / max(own.total(), 1)) / 4
    nearest = min((abs(len(other) - len(text)), len(other)) for other in others)[1]
    return math.exp(logs + min(0.0, 1 - nearest / max(len(text), 1)))


def self_bleu(texts: list[str]) -> float:
    """The mean BLEU-4 of each text against all others (Zhu et al. 2018): 1 when all are the same."""
    split = [words(text) for text in texts]
    return sum(bleu(text, split[:i] + split[i + 1 :]) for i, text in enumerate(split)) / len(split)


class Copies:
    """Finds what of a text stands in the training stories word by word."""

    def __init__(self, texts: list[str]) -> None:
        split = [words(text) for text in texts]
        self._known = {hash(gram) for tokens in split for gram in grams(tokens, COPIED)}
        self._joined = " ".join(f" {END} ".join(" ".join(tokens) for tokens in split).split(" "))

    def measure(self, texts: list[str]) -> tuple[float, int]:
        """The share of 13-grams that occur in the training stories, and the longest run in words."""
        hits, total, longest = 0, 0, 0
        for tokens in map(words, texts):
            places = grams(tokens, COPIED)
            found = [i for i, gram in enumerate(places) if hash(gram) in self._known]
            hits, total = hits + len(found), total + len(places)
            for i in found:
                length = max(longest, COPIED)
                while i + length <= len(tokens) and " ".join(tokens[i : i + length]) in self._joined:
                    longest, length = length, length + 1
        return hits / total, longest


def report(model: Path, held_out: list[str], copies: Copies, windows: list[int]) -> None:
    print(f"{model}: {model.stat().st_size:,} bytes, sha256 {hashlib.sha256(model.read_bytes()).hexdigest()}")
    with Engine(model, "-c", "16384", "-np", "40") as engine:
        for window in (size for size in windows if size <= engine.ready["model"]["n_ctx_train"]):
            print(f"  bits per byte, windows of {window}: {bits_per_byte(engine, held_out, window):.4f}")
        print(f"  bits per byte of the story of a fox: {bits_per_byte(engine, [STORY], max(windows)):.4f}")
        for temperature in TEMPERATURES:
            texts, ended = samples(engine, SAMPLES, temperature=temperature)
            share, longest = copies.measure(texts)
            print(
                f"  temperature {temperature}: {ended:.0%} of {SAMPLES} end within {LONGEST} tokens,"
                f" self-BLEU of 8 {self_bleu(texts[:8]):.3f},"
                f" {COPIED}-grams copied {share:.2%}, longest run {longest} words"
            )
        for temperature in SHOWN:
            print(f"\nTemperature {temperature}:\n\n{samples(engine, 1, temperature=temperature)[0][0]}")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("corpus", type=Path)
    parser.add_argument("models", type=Path, nargs="*", default=[ROOT / "models/storyteller.gguf"])
    parser.add_argument("--windows", type=int, nargs="*", default=[768, 1024])
    options = parser.parse_args()
    held_out = stories(sorted(options.corpus.glob("*heldout*.txt")))
    copies = Copies(stories([*options.corpus.glob("*train*.txt"), *options.corpus.glob("*extra*.txt")]))
    share, longest = copies.measure(held_out[:200])
    print(f"held-out stories themselves: {COPIED}-grams copied {share:.2%}, longest run {longest} words")
    for model in options.models:
        report(model, held_out, copies, options.windows)


if __name__ == "__main__":
    main()
