"""Mixed requests: 16 clients with n = 4 for some time, then one with n = 128 among them.

Prints the time to the first token of n = 128, alone and among the others, and the gaps between a sequence's
tokens: those while some prompt is computed, and the others.
"""

from __future__ import annotations

import functools
import itertools
import random
import statistics
import threading
import time
from pathlib import Path
from typing import Any

from programs import SAMPLING, arguments, attempt, ours, theirs

from benchmarks.answers import Answer, Ask, words
from benchmarks.sides.table import Load, Side

CLIENTS, FEW, MANY = 16, 4, 128
PROMPTS = (64, 512, 2048)
SECONDS = 14.0  # of the clients; with two sides, the start and the rest it is a minute


class Crowd:
    """Clients that ask one request after the other, and when each was sent and answered."""

    def __init__(self, server: Any, tokens: int) -> None:
        self._server, self._tokens = server, tokens
        self._until = time.perf_counter() + SECONDS
        self.answers: list[tuple[float, Answer]] = []
        self.failures: list[str] = []

    def run(self) -> Answer | None:
        """All clients; after half of the time also the one with many sequences, whose answer is returned."""
        clients = [threading.Thread(target=self._client, args=[i], daemon=True) for i in range(CLIENTS)]
        for client in clients:
            client.start()
        time.sleep(SECONDS / 2)
        many = self._ask(Ask(words(512, "many"), MANY, self._tokens, SAMPLING))
        for client in clients:
            client.join(SECONDS)
        return many

    def _client(self, number: int) -> None:
        draw = random.Random(number)
        while time.perf_counter() < self._until:
            prompt = words(draw.choice(PROMPTS), (number, time.perf_counter()))
            self._ask(Ask(prompt, FEW, self._tokens, SAMPLING))
            time.sleep(draw.random())  # a person reads

    def _ask(self, ask: Ask) -> Answer | None:
        began = time.perf_counter()
        try:
            answer: Answer = self._server.ask(ask)
        except (RuntimeError, OSError) as error:
            self.failures.append(str(error)[:200])
            return None
        self.answers.append((began, answer))
        return answer

    def gaps(self) -> tuple[list[float], list[float]]:
        """Seconds between tokens: while a prompt of any request was computed, and the others."""
        prompts = [(began, began + answer.first) for began, answer in self.answers]
        beside: list[float] = []
        alone: list[float] = []
        for began, answer in self.answers:
            for times in answer.times.values():
                for a, b in itertools.pairwise(times):
                    busy = any(begin < began + b and end > began + a for begin, end in prompts)
                    (beside if busy else alone).append(b - a)
        return beside, alone


def measure(name: str, side: Side, load: Load, tokens: int) -> None:
    with side.started(load) as server, server.running.awake():
        server.ask(Ask(words(64, "warm-up"), MANY, 4, SAMPLING))
        alone = server.ask(Ask(words(512, "alone"), MANY, tokens, SAMPLING))
        crowd = Crowd(server, tokens)
        many = crowd.run()
    among = f"{1000 * many.first:,.0f} ms" if many else "no answer"
    print(f"{name}: first token at n={MANY} alone {1000 * alone.first:,.0f} ms, among the others {among}")
    print(f"{name}: {len(crowd.answers)} requests, {len(crowd.failures)} failed {crowd.failures[:1]}")
    for kind, gaps in zip(("beside prompts", "without prompts"), crowd.gaps(), strict=True):
        print(f"{name}: gaps {kind}: {described(gaps)}", flush=True)


def described(gaps: list[float]) -> str:
    if not gaps:
        return "none"
    milliseconds = sorted(1000 * gap for gap in gaps)
    median = statistics.median(milliseconds)
    above = sum(gap > 3 * median for gap in milliseconds)
    at_99 = milliseconds[int(0.99 * (len(milliseconds) - 1))]
    return (
        f"{len(gaps):,}, median {median:.1f} ms, 99 % within {at_99:.1f}, longest {milliseconds[-1]:.1f}, "
        f"{above:,} above three times the median"
    )


def main() -> None:
    given = arguments(__doc__, tokens=128)
    parallel = CLIENTS * FEW + MANY
    cells = parallel * given.tokens + (CLIENTS + 1) * max(PROMPTS)
    load = Load(Path(given.model), parallel, cells)
    sides = {"llama-srb": ours(given.ngl), "llama-server": theirs(given.ngl)["llama-server"]}
    for name, side in sides.items():
        attempt(name, functools.partial(measure, name, side, load, given.tokens))


if __name__ == "__main__":
    main()
