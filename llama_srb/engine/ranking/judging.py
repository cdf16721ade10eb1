"""What a model answers about texts, and how likely a text is behind them: by the engine's scores."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
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
    cells: Mapping[str, Any] = {},
) -> list[float]:
    """How much likelier the first answer is than the second to the question about each text (natural log).

    CommandRefused with the engine's reason. The engine computes what prompts have in common once.
    cells: the fields that say whose cells it may use.
    """
    return await _each(texts, at_once, lambda text: _margin(runner, question(text), answers, cells))


async def likelihoods(
    runner: Runner, texts: Sequence[str], prompt: str, following: str, at_once: int, cells: Mapping[str, Any]
) -> list[float]:
    """The mean log-probability of the tokens of `following` behind the prompt and each text."""

    async def mean(text: str) -> float:
        (score,) = await _scores(runner, prompt=prompt + text, texts=[following], **cells)
        return score.logprob / max(score.count, 1)

    return await _each(texts, at_once, mean)


async def _each(
    texts: Sequence[str], at_once: int, value_of: Callable[[str], Awaitable[float]]
) -> list[float]:
    found, left = [0.0] * len(texts), list(enumerate(texts))

    async def work() -> None:
        while left:
            number, text = left.pop(0)
            try:
                found[number] = await value_of(text)
            except Exception:
                left.clear()  # no answer is of use without the others
                raise

    ends = await asyncio.gather(*(work() for _ in range(at_once)), return_exceptions=True)
    for failure in filter(None, ends):
        raise failure
    return found


async def _margin(runner: Runner, prompt: str, answers: Sequence[str], cells: Mapping[str, Any]) -> float:
    first, second = await _scores(runner, prompt=prompt, texts=list(answers), **cells)
    return first.logprob - second.logprob


async def _scores(runner: Runner, *, texts: Sequence[str], **fields: Any) -> list[Score]:
    """The scores of the texts, in their order."""
    found: dict[int, Score] = {}
    async with runner.run("score", texts=list(texts), **fields) as exchange:
        async for events in exchange:
            found |= {event.index: event for event in events if isinstance(event, Score)}
            if isinstance(events[-1], Error):
                raise CommandRefused(events[-1])
    if len(found) < len(texts):
        raise EngineError(f"{len(texts)} texts got {len(found)} scores")
    return [found[index] for index in range(len(texts))]
