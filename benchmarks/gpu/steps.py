"""Where a step's time goes, by the engine's own account and by the clock.

steps.py evictions MODEL: one prompt six times with 64 and 128 sequences of 500 tokens, so that earlier tails
    are evicted: wall time beside the engine's account of its steps.
steps.py profile MODEL: a step's time in the model and outside it, beside the bare loop's step.
steps.py tails MODEL: how a step's time grows with the tails of 32 and 128 sequences.
steps.py idle MODEL: a step of 8 sequences, alone and beside 24,000 idle cells.
"""

from __future__ import annotations

import functools
import itertools
from pathlib import Path

from programs import SAMPLING, arguments, attempt, bare, engine

from benchmarks.answers import Answer, Ask, words
from benchmarks.sides.asked import Pipe
from benchmarks.sides.table import Load

TIMES = 6
PROMPT = 400
IDLE = 6, 4000  # prompts and their tokens
WINDOW = 32  # steps whose mean is a step's time


def evictions(model: Path, layers: str, tokens: int) -> None:
    for n in (64, 128):
        cells = 2048 + n * (tokens + 100)
        with engine(layers).started(Load(model, n, cells)) as pipe, pipe.running.awake():
            for i in range(TIMES):
                print(f"n={n} {i + 1}: {account(pipe, asked(n, tokens))}", flush=True)


def profile(model: Path, layers: str, tokens: int) -> None:
    for n in (1, 8, 32, 128):
        load = Load(model, n, 2048 + n * (tokens + 100))
        with engine(layers).started(load) as pipe, pipe.running.awake():
            pipe.ask(asked(n, 8))
            print(f"n={n}: {account(pipe, asked(n, tokens))}", flush=True)
        attempt("the bare loop", functools.partial(bare_step, load, layers, tokens))


def tails(model: Path, layers: str, tokens: int) -> None:
    for n in (32, 128):
        with engine(layers).started(Load(model, n, 2048 + n * (tokens + 8))) as pipe, pipe.running.awake():
            answer = pipe.ask(asked(n, tokens))
        lengths = [length for length in (64, 250, 500, 1000, 2000) if length <= tokens]
        steps = [f"{length}: {1000 * step_at(answer, tokens, length):.2f} ms" for length in lengths]
        print(f"n={n}, a step with tails of {', '.join(steps)}; {answer.rate:,.0f} tokens/s", flush=True)


def step_at(answer: Answer, tokens: int, length: int) -> float:
    """Seconds of a step around that length. A sequence has an event a step but for parts of characters."""
    events = sorted(itertools.chain.from_iterable(answer.times.values()))
    begin, end = length - WINDOW, min(length + WINDOW, tokens)
    began, ended = (events[(len(events) - 1) * step // tokens] for step in (begin, end))
    return (ended - began) / (end - begin)


def idle(model: Path, layers: str, tokens: int) -> None:
    count, length = IDLE
    cells = 2 * (count * length + PROMPT + 8 * tokens)  # so that idle prompts stay
    with engine(layers).started(Load(model, 8, cells)) as pipe, pipe.running.awake():
        print(f"alone: {account(pipe, asked(8, tokens))}", flush=True)
        for i in range(count):
            pipe.prefix(words(length, ("idle", i)))
        print(f"beside {pipe.status()['cells_used']} cells: {account(pipe, asked(8, tokens))}", flush=True)


def bare_step(load: Load, layers: str, tokens: int) -> None:
    with bare(layers).started(load) as loop:
        rate = loop.rates(asked(load.parallel, tokens))["decode"]
    step = 1000 * load.parallel / rate
    print(f"n={load.parallel}: the bare loop's step {step:.2f} ms", flush=True)


def asked(n: int, tokens: int) -> Ask:
    return Ask(words(PROMPT, "steps"), n, tokens, SAMPLING)


def account(pipe: Pipe, ask: Ask) -> str:
    """One request's steps: their time by the engine and by the clock, and until the first token."""
    before = pipe.status()
    answer = pipe.ask(ask)
    wall, after = answer.last, pipe.status()
    steps, step, model = (after[name] - before[name] for name in ("steps", "step_us", "model_us"))
    engine_ms, model_ms, wall_ms = step / 1e3 / steps, model / 1e3 / steps, 1e3 * wall / steps
    return (
        f"step {engine_ms:.2f} ms, in the model {model_ms:.2f}, by the clock {wall_ms:.2f} "
        f"({1e6 * wall / step:.2f} of the account), {wall:.2f} s in all, "
        f"first token {1e3 * answer.first:.0f} ms, {answer.rate:,.0f} tokens/s"
    )


def main() -> None:
    given = arguments(__doc__, "what", tokens=0)
    parts = {
        "evictions": (evictions, 500),
        "profile": (profile, 64),
        "tails": (tails, 1000),
        "idle": (idle, 64),
    }
    work, tokens = parts[given.what]
    work(Path(given.model), given.ngl, given.tokens or tokens)


if __name__ == "__main__":
    main()
