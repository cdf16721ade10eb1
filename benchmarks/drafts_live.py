"""What guesses save beside llama-server, with one text at a time of the bundled model's own.

.venv/bin/python benchmarks/drafts_live.py [--rounds 7] [--tokens 600] [--ours]

Both answer the same requests of llama-server's /completion, without and with guesses: llama-server with each
of its drafters that need no model, by their usual settings. "loops" are texts at temperature 0 without an
end, as small models write them: they go round in circles after a while. "stories" are drawn at 0.8, with
another seed in each round, and repeat little. No guess of ours comes from another round, nor from the texts
without guesses: each has a cache_salt of its own. ms a token by the client's clock, medians over rounds of
sums over all prompts, the sides in turns, each stopped while another one answers; the time of a first round
counts nothing. Nothing else should run beside it.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import json
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT)]

from benchmarks.sides.asked import Http  # noqa: E402
from benchmarks.sides.table import SIDES, Load, llama_server  # noqa: E402

DRAFTERS = ("none", "ngram-simple", "ngram-map-k", "ngram-map-k4v", "ngram-mod", "ngram-cache")
PROMPTS = (
    "Once upon a time, a little fox found a door in an old tree. Behind the door",
    "Mia and her grandpa had built a boat. One windy morning",
    "It was late, and all the toys were asleep but one. He",
    "Tom saw a big dog in the park. The dog",
)
SETS: dict[str, dict[str, Any]] = {"loops": {"temperature": 0}, "stories": {"temperature": 0.8}}


@dataclass(frozen=True)
class Asked:
    """A side, and fields of its own."""

    side: Http
    fields: dict[str, Any]

    def round(self, number: int, tokens: int, fields: dict[str, Any]) -> tuple[float, int, int]:
        """Of all prompts: seconds, tokens that were guessed, and those that were right."""
        spent, guessed, right = 0.0, 0, 0
        for prompt in PROMPTS:
            body = {"prompt": prompt, "n_predict": tokens, "ignore_eos": True, "cache_prompt": True}
            body |= {"seed": number} | fields | self.fields
            with self.side.running.awake():
                began = time.perf_counter()
                with self.side.post("/completion", body) as response:
                    timings = json.loads(response.read())["timings"]
                spent += time.perf_counter() - began
            guessed += timings.get("draft_n", 0)
            right += timings.get("draft_n_accepted", 0)
        return spent, guessed, right


def guessing(kind: str, load: Load) -> list[str]:
    """llama-server with one of its drafters."""
    return [*llama_server(load), "--spec-type", kind]


def measure(name: str, asked: dict[str, Asked], rounds: int, tokens: int) -> None:
    """Prints the rows of one set."""
    found: dict[str, list[tuple[float, int, int]]] = {label: [] for label in asked}
    for number in range(rounds + 1):
        for label in list(asked)[:: 1 if number % 2 else -1]:
            salt = {"cache_salt": f"{number} {label}"}  # which llama-server does not know
            found[label].append(asked[label].round(number, tokens, SETS[name] | salt))
    for label, made in found.items():
        spent, guessed, right = zip(*made[1:], strict=True)
        all_tokens = tokens * len(PROMPTS)
        print(
            f"| {name} | {label} | {1000 * median(spent) / all_tokens:.3f} | "
            f"{sum(right) / rounds / all_tokens:.2f}, {sum(right) / max(1, sum(guessed)):.2f} |",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--tokens", type=int, default=600)
    parser.add_argument("--ours", action="store_true", help="without llama-server")
    given = parser.parse_args()
    load = Load(ROOT / "models/storyteller.gguf", 1, 2048)
    with contextlib.ExitStack() as stack:
        ours = stack.enter_context(SIDES["ours"].started(load))
        asked = {
            "llama-srb, none": Asked(ours, {"draft": False}),
            "llama-srb": Asked(ours, {"draft": True}),
        }
        for kind in DRAFTERS * (not given.ours):
            theirs = replace(SIDES["server"], command=functools.partial(guessing, kind))
            asked[f"llama-server, {kind}"] = Asked(stack.enter_context(theirs.started(load)), {})
        print("| set | side | ms a token | of its tokens by guesses, right |")
        print("| -- | -- | -- | -- |")
        for name in SETS:
            measure(name, asked, given.rounds, given.tokens)


if __name__ == "__main__":
    main()
