"""One model's rows of the table: our server beside llama-server, with and without -bs, and the bare loop.

table.py PROMPT N,N,… MODEL: tokens per second over all sequences, and milliseconds to the first token. All
servers run at once, and answer alternately while the others are stopped.
"""

from __future__ import annotations

import contextlib
import statistics
from pathlib import Path
from typing import Any

from programs import SAMPLING, arguments, attempt, bare, ours, theirs

from benchmarks.answers import Ask, words
from benchmarks.sides.table import Load, Side

ROUNDS = 2


def main() -> None:
    given = arguments(__doc__, "prompt", "n", tokens=128)
    prompt, counts = int(given.prompt), [int(n) for n in given.n.split(",")]
    most = max(counts)
    load = Load(Path(given.model), most, prompt + most * given.tokens)
    sides = {"llama-srb": ours(given.ngl), **theirs(given.ngl)}
    with contextlib.ExitStack() as stack:
        servers = {name: server for name in sides if (server := started(stack, sides[name], load))}
        for n in counts:
            print(row(servers, load, prompt, n, given.tokens), flush=True)
    loop = bare(given.ngl)
    with loop.started(load) as running:
        for n in counts:
            figures = attempt(
                "the bare loop", lambda n=n: running.rates(ask(prompt, n, given.tokens, "bare"))
            )
            if figures:
                print(
                    f"bare loop n={n}: {figures['decode']:,.0f}, prompt {figures['prefill']:,.0f}", flush=True
                )


def started(stack: contextlib.ExitStack, side: Side, load: Load) -> Any:
    """A side that has started and has computed once; None if it does not start."""
    server = attempt(side.label, lambda: stack.enter_context(side.started(load)))
    if server is not None:
        with server.running.awake():
            attempt(side.label, lambda: server.ask(ask(64, load.parallel, 8, "warm-up")))
    return server


def ask(prompt: int, n: int, tokens: int, *seed: object) -> Ask:
    return Ask(words(prompt, (prompt, n, *seed)), n, tokens, SAMPLING)


def row(servers: dict[str, Any], load: Load, prompt: int, n: int, tokens: int) -> str:
    """The medians of all sides, which answer in alternating order."""
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in servers}
    for i in range(ROUNDS):
        for name in reversed(servers) if i % 2 else servers:
            if figures := attempt(
                name, lambda name=name, i=i: measured(servers[name], ask(prompt, n, tokens, i))
            ):
                found[name].append(figures)
    cells = [f"{name} {cell(figures)}" for name, figures in found.items() if figures]
    return f"{load.model.stem} prompt {prompt} n={n}: " + ", ".join(cells)


def measured(server: Any, ask: Ask) -> tuple[float, float]:
    """Tokens per second, and the seconds to the first token."""
    with server.running.awake():
        answer = server.ask(ask)
    return answer.rate, answer.first


def cell(figures: list[tuple[float, float]]) -> str:
    rate, first = (statistics.median(column) for column in zip(*figures, strict=True))
    return f"{rate:,.0f} ({1000 * first:,.0f})"


if __name__ == "__main__":
    main()
