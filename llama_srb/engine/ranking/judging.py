"""What a model answers about texts: the margin of two answers' log-probabilities, by the engine's scores."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from llama_srb.engine.events import Error, Score
from llama_srb.engine.exchange import CommandRefused, EngineError, Exchange


class Runner(Protocol):
    """A pool, or a client's reservation of one."""

    def run(self, op: str, **arguments: Any) -> Exchange: ...


JUDGED_AT_ONCE = 8  # questions; each has two answers


async def margins(
    runner: Runner,
    texts: Sequence[str],
    question: Callable[[str], str],
    answers: Sequence[str],
    at_once: int,
) -> list[float]:
    """How much likelier the first answer is than the second to the question about each text (natural log).

    CommandRefused with the engine's reason. The engine computes what prompts have in common once.
    """
    found, left = [0.0] * len(texts), list(enumerate(texts))

    async def work() -> None:
        while left:
            number, text = left.pop(0)
            try:
                found[number] = await _margin(runner, question(text), answers)
            except Exception:
                left.clear()  # no answer is of use without the others
                raise

    ends = await asyncio.gather(*(work() for _ in range(at_once)), return_exceptions=True)
    for failure in filter(None, ends):
        raise failure
    return found


async def _margin(runner: Runner, prompt: str, answers: Sequence[str]) -> float:
    sums: dict[int, float] = {}
    async with runner.run("score", prompt=prompt, texts=list(answers)) as exchange:
        async for events in exchange:
            sums |= {event.index: event.logprob for event in events if isinstance(event, Score)}
            if isinstance(events[-1], Error):
                raise CommandRefused(events[-1])
    if len(sums) < len(answers):
        raise EngineError(f"{len(answers)} answers got {len(sums)} scores")
    return sums[0] - sums[1]
