"""From a generation to bytes: a stream that a slow reader makes wait, or one body at the end.

What an answer looks like is the dialects' business; this only carries it.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from aiohttp import web

from llama_srb.background import begin
from llama_srb.config import Settings
from llama_srb.dialects import events
from llama_srb.engine.events import Done, Error, Event, Prompt, bulk
from llama_srb.engine.exchange import Exchange
from llama_srb.engine.pool.multi import MultiGeneration
from llama_srb.http.middleware import log_summary, refused
from llama_srb.request.values import RequestError

Render: TypeAlias = Callable[[list[Event]], bytes | Iterator[bytes]]
Rank: TypeAlias = Callable[[list[Event]], Awaitable[list[Event]]]
Write: TypeAlias = Callable[[bytes], Awaitable[None]]

WHOLE = 4  # times --max-unread
LONG = 512  # events, tokens and alternatives: more are rendered and written piece by piece
THREAD = 20_000  # of them that cannot be cut: writing them takes 20 ms and longer, so a thread does it
SLICE = 0.005  # seconds of writing after which the event loop has a turn: a fast reader never makes it wait

STREAM_HEADERS = {
    "Cache-Control": "no-cache",
    "X-Accel-Buffering": "no",  # nginx would hold the stream back
}

EVENT_STREAM = events.CONTENT_TYPE
PAUSE = b": keep-alive\n\n"


class BodyBuilder(Protocol):
    """A generation's events as one body."""

    def take(self, events: list[Event], /) -> None:
        """Events, which follow those of the last call."""

    def json(self) -> bytes:
        """The body, once all events were taken."""


@dataclass(frozen=True, slots=True)
class Work:
    """A generation with what its events go through, and its size for the log."""

    generation: Exchange | MultiGeneration
    rank: Rank
    size: str
    has_stop: bool = False  # its client may end it without its id, by stop-generation
    echoes: int = 1  # how often an answer in one piece repeats the prompt, where it is to be echoed


class Responder:
    """Answers with generations; stop-generation finds those that run by their client."""

    def __init__(self, settings: Settings) -> None:
        self._keep_alive = settings.keep_alive
        self.most_held = (
            WHOLE * settings.max_unread
        )  # tokens and alternatives that an answer may hold in memory
        self._with_stop: dict[str, Exchange | MultiGeneration] = {}  # of what runs, by its id

    def stop_of(self, client: str) -> None:
        """Ends what a client generates and may end without its id."""
        for generation in list(self._with_stop.values()):
            if generation.client == client:
                generation.cancel()

    @contextlib.asynccontextmanager
    async def _opened(self, work: Work) -> AsyncIterator[Exchange | MultiGeneration]:
        """The generation; stop-generation finds it until the block is left."""
        async with work.generation as generation:
            log_summary.set(f" {work.size} {generation.id}")
            if work.has_stop:
                self._with_stop[generation.id] = generation
            try:
                yield generation
            finally:
                self._with_stop.pop(generation.id, None)

    async def stream(
        self,
        http: web.Request,
        work: Work,
        render: Render,
        content_type: str = EVENT_STREAM,
        pause: bytes = PAUSE,
    ) -> web.StreamResponse:
        """Carries a generation to the client; leaving this function, in whatever way, cancels the rest."""
        rank, response = work.rank, _Stream(headers={"Content-Type": content_type, **STREAM_HEADERS})
        async with self._opened(work) as generation:
            first = await anext(generation)
            if isinstance(first[0], Error):
                return refused(first[0])
            rest = _rendered(await rank(first), render)
            begun = await anext(rest, b"")
            await response.prepare(http)
            try:
                await response.write(begun)
                async with _kept_alive(response, self._keep_alive, pause) as write:
                    async for data in rest:
                        await write(data)
                    last = await _carry(generation, write, rank, render) or first[-1]
                log_summary.set(log_summary.get() + summary_of(last))
            except ConnectionError:  # left between two events, before we were cancelled
                log_summary.set(log_summary.get() + " client left")
            return response

    async def whole(self, http: web.Request, work: Work, answer: BodyBuilder) -> web.Response:
        """One body at the end; a client that leaves before cancels it, too."""
        held = 0
        async with self._opened(work) as generation:
            async for batch in generation:
                held += bulk(batch) + sum((work.echoes - 1) * bulk([e]) for e in batch if type(e) is Prompt)
                if held > self.most_held:
                    raise _too_large(self.most_held)
                answer.take(await work.rank(batch))
                last = batch[-1]
        log_summary.set(log_summary.get() + summary_of(last))
        if isinstance(last, Error):
            return refused(last)
        body = answer.json() if held < THREAD else await asyncio.to_thread(answer.json)
        return web.Response(body=body, content_type="application/json")


def _too_large(most: int) -> RequestError:
    message = f"the answer has more than {most} tokens and alternatives to them (4 times --max-unread)"
    return RequestError(
        f"{message}; ask for a stream, or for less", param="logprobs", code="answer_too_large"
    )


class _Stream(web.StreamResponse):
    _send_headers_immediately = False  # they go with the first events, which wakes a reader once


async def _carry(
    generation: Exchange | MultiGeneration, write: Write, rank: Rank, render: Render
) -> Event | None:
    """All events of one batch in one write, which waits for a slow reader; returns the last event."""
    last = None
    async for batch in generation:
        last, ranked = batch[-1], await rank(batch)
        async for data in _rendered(ranked, render):
            await write(data)
        if ranked and isinstance(ranked[-1], Error):
            return ranked[-1]
    return last


async def _rendered(events: list[Event], render: Render) -> AsyncIterator[bytes]:
    """A few events as they are; more of them in pieces, between which the event loop has turns."""
    loop = asyncio.get_running_loop()
    since = loop.time()
    for piece in _pieces(events):
        data = render(piece) if bulk(piece) < THREAD else await asyncio.to_thread(render, piece)
        for part in (data,) if isinstance(data, bytes) else data:
            yield part
            if loop.time() - since > SLICE:
                await asyncio.sleep(0)
                since = loop.time()


def _pieces(events: list[Event]) -> Iterator[list[Event]]:
    """The events so many at a time: those of a slow reader, and whole candidates, are long work."""
    if len(events) + bulk(events) <= LONG:
        yield events
        return
    piece, size = list[Event](), 0
    for event in events:
        own = 1 + bulk([event])
        if piece and size + own > LONG:
            yield piece
            piece, size = [], 0
        piece.append(event)
        size += own
    yield piece


@contextlib.asynccontextmanager
async def _kept_alive(response: web.StreamResponse, interval: float, pause: bytes) -> AsyncIterator[Write]:
    """A write() for the block; in its pauses comment lines are written, where there is such a thing."""
    loop = asyncio.get_running_loop()
    written_at = loop.time()

    async def write(data: bytes) -> None:
        nonlocal written_at
        if data:  # what is held back keeps nothing open
            written_at = loop.time()
            await response.write(data)

    async def fill_pauses() -> None:
        with contextlib.suppress(ConnectionError):  # the handler is about to learn it too
            while True:
                await asyncio.sleep(written_at + interval - loop.time())
                if loop.time() >= written_at + interval:
                    await write(pause)

    filler = begin(fill_pauses(), "keep-alive")
    try:
        yield write
    finally:
        filler.cancel()
        await asyncio.wait({filler})


def summary_of(last: Event) -> str:
    """What the log line of a request tells of its end."""
    match last:
        case Done():
            return f" prompt={last.prompt_tokens} cached={last.cached_tokens} tokens={last.completion_tokens}"
        case Error():
            return f" error={last.code}"
    return ""


async def unranked(events: list[Event]) -> list[Event]:
    """As they come."""
    return events
