"""The generations that run, whatever the protocol of their answers."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from llama_srb.engine.events import Done, Error, Event, Prompt, PromptLogprobs, Start, content_size
from llama_srb.engine.exchange import Exchange
from llama_srb.engine.pool.multi import MultiGeneration
from llama_srb.request.values import RequestError
from llama_srb.serving.observe.logs import log_summary

Rank: TypeAlias = Callable[[list[Event]], Awaitable[list[Event]]]

HELD_FACTOR = 4  # times --max-unread: the largest answer that is collected in memory
REPEATED = (Start, Prompt, PromptLogprobs)  # events that a body may have once for each choice


class BodyBuilder(Protocol):
    """Builds one body from a generation's events."""

    def take(self, events: list[Event], /) -> None:
        """Adds the next events."""

    def json(self) -> bytes:
        """The body; called after the last events."""


@dataclass(frozen=True, slots=True)
class Work:
    """A generation, the ranking of its events, and its size for the log."""

    generation: Exchange | MultiGeneration
    rank: Rank
    size: str
    has_stop: bool = False  # stop-generation ends it, which names the client but no id
    echoes: int = 1  # how often a body repeats the prompt, its ids and its logprobs, if they are wanted


class Running:
    """Enters generations, collects their events, and remembers those that stop-generation may end."""

    def __init__(self, max_unread: int) -> None:
        # tokens and alternatives of an answer that is collected in memory
        self.max_held = HELD_FACTOR * max_unread
        self._with_stop: dict[str, Exchange | MultiGeneration] = {}  # running generations by id

    def stop_of(self, client: str) -> None:
        """Ends a client's generations that stop-generation may end."""
        for generation in list(self._with_stop.values()):
            if generation.client == client:
                generation.cancel()

    @contextlib.asynccontextmanager
    async def opened(self, work: Work) -> AsyncIterator[Exchange | MultiGeneration]:
        """Enters the generation; stop-generation finds it until the block is left."""
        async with work.generation as generation:
            log_summary.set(f" {work.size} {generation.id}")
            if work.has_stop:
                self._with_stop[generation.id] = generation
            try:
                yield generation
            finally:
                self._with_stop.pop(generation.id, None)

    async def collected(self, work: Work, answer: BodyBuilder) -> tuple[Event, int]:
        """Gives all events to the builder; returns the last one and their size. RequestError: too many."""
        held = 0
        async with self.opened(work) as generation:
            async for batch in generation:
                repeated: list[Event] = [event for event in batch if isinstance(event, REPEATED)]
                held += content_size(batch) + (work.echoes - 1) * content_size(repeated)
                if held > self.max_held:
                    raise _too_large(self.max_held)
                ranked = await work.rank(batch)
                last = batch[-1]
                if ranked and isinstance(ranked[-1], Error):  # the texts cannot be ranked
                    last = ranked[-1]
                    break
                answer.take(ranked)
        log_summary.set(log_summary.get() + summary_of(last))
        return last, held


def _too_large(most: int) -> RequestError:
    message = f"the answer has more than {most} tokens and alternatives to them (4 times --max-unread)"
    return RequestError(
        f"{message}; ask for a stream, or for less", param="logprobs", code="answer_too_large"
    )


def summary_of(last: Event) -> str:
    """How a request ended, for its log line."""
    match last:
        case Done():
            return f" prompt={last.prompt_tokens} cached={last.cached_tokens} tokens={last.completion_tokens}"
        case Error():
            return f" error={last.code}"
    return ""


async def unranked(events: list[Event]) -> list[Event]:
    """Returns the events unchanged."""
    return events
