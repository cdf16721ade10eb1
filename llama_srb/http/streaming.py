"""Sends a generation to the client: as a stream, with back-pressure from slow readers, or as one body.

The dialects decide what an answer looks like.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import TypeAlias

from aiohttp import web

from llama_srb.background import begin
from llama_srb.config import Settings
from llama_srb.dialects import events
from llama_srb.engine.events import (
    Error,
    Event,
    Loading,
    content_size,
)
from llama_srb.engine.exchange import Exchange
from llama_srb.engine.pool.multi import MultiGeneration
from llama_srb.http.middleware import refused
from llama_srb.serving.observe.logs import log_summary
from llama_srb.serving.running import BodyBuilder, Rank, Running, Work, summary_of

Render: TypeAlias = Callable[[list[Event]], bytes | Iterator[bytes]]
Write: TypeAlias = Callable[[bytes], Awaitable[None]]

LONG = 512  # events, tokens and alternatives; longer lists are rendered and written in pieces
THREAD = 20_000  # a piece of this size takes 20 ms to render and cannot be cut, so a thread renders it
SLICE = 0.005  # seconds of writing, after which the event loop runs: with a fast reader write() never waits

STREAM_HEADERS = {
    "Cache-Control": "no-cache",
    "X-Accel-Buffering": "no",  # without it nginx buffers the stream
}

EVENT_STREAM = events.CONTENT_TYPE
PAUSE = b": keep-alive\n\n"


class Responder:
    """Answers requests with generations."""

    def __init__(self, settings: Settings, running: Running) -> None:
        self._keep_alive, self._running = settings.keep_alive, running
        self.max_held = running.max_held

    async def stream(
        self,
        http: web.Request,
        work: Work,
        render: Render,
        content_type: str = EVENT_STREAM,
        pause: bytes = PAUSE,
    ) -> web.StreamResponse:
        """Streams a generation to the client. However this function is left, the generation ends with it."""
        rank, response = work.rank, _Stream(headers={"Content-Type": content_type, **STREAM_HEADERS})
        async with self._running.opened(work) as generation:
            first = await anext(generation)
            if (refusal := _refusal(first)) is not None:
                return refused(refusal)
            rest = _rendered(await rank(first), render)
            begun = await anext(rest, b"")
            await response.prepare(http)
            try:
                await response.write(begun)
                async with _kept_alive(response, self._keep_alive, pause) as write:
                    async for data in rest:
                        await write(data)
                    last = await _write_all(generation, write, rank, render) or first[-1]
                log_summary.set(log_summary.get() + summary_of(last))
            except ConnectionError:  # the client has left, and aiohttp has not cancelled this handler yet
                log_summary.set(log_summary.get() + " client left")
            return response

    async def whole(self, http: web.Request, work: Work, answer: BodyBuilder) -> web.Response:
        """Answers with one body at the end. If the client leaves before, the generation is cancelled."""
        last, held = await self._running.collected(work, answer)
        if isinstance(last, Error):
            return refused(last)
        body = answer.json() if held < THREAD else await asyncio.to_thread(answer.json)
        return web.Response(body=body, content_type="application/json")


def _refusal(first: list[Event]) -> Error | None:
    """The error in the first events, if the request has ended before it began."""
    begun = [event for event in first if not isinstance(event, Loading)]
    return begun[0] if begun and isinstance(begun[0], Error) else None


class _Stream(web.StreamResponse):
    _send_headers_immediately = False  # sent with the first events, so that the client wakes only once


async def _write_all(
    generation: Exchange | MultiGeneration, write: Write, rank: Rank, render: Render
) -> Event | None:
    """Writes each batch of events, waiting for a slow reader; returns the last event."""
    last = None
    async for batch in generation:
        last, ranked = batch[-1], await rank(batch)
        async for data in _rendered(ranked, render):
            await write(data)
        if ranked and isinstance(ranked[-1], Error):
            return ranked[-1]
    return last


async def _rendered(events: list[Event], render: Render) -> AsyncIterator[bytes]:
    """Renders events; long lists in pieces, between which the event loop runs."""
    loop = asyncio.get_running_loop()
    since = loop.time()
    for piece in _pieces(events):
        data = render(piece) if content_size(piece) < THREAD else await asyncio.to_thread(render, piece)
        for part in (data,) if isinstance(data, bytes) else data:
            yield part
            if loop.time() - since > SLICE:
                await asyncio.sleep(0)
                since = loop.time()


def _pieces(events: list[Event]) -> Iterator[list[Event]]:
    """Splits long lists of events, which slow readers and ranked candidates have, by size."""
    if len(events) + content_size(events) <= LONG:
        yield events
        return
    piece, size = list[Event](), 0
    for event in events:
        own = 1 + content_size([event])
        if piece and size + own > LONG:
            yield piece
            piece, size = [], 0
        piece.append(event)
        size += own
    yield piece


@contextlib.asynccontextmanager
async def _kept_alive(response: web.StreamResponse, interval: float, pause: bytes) -> AsyncIterator[Write]:
    """Gives a write() to the block; after `interval` seconds without a write, `pause` is written."""
    loop = asyncio.get_running_loop()
    written_at = loop.time()

    async def write(data: bytes) -> None:
        nonlocal written_at
        if data:  # empty if all events are held back, which does not keep the connection alive
            written_at = loop.time()
            await response.write(data)

    async def fill_pauses() -> None:
        with contextlib.suppress(ConnectionError):  # the handler will get the same error
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


def begun_with(first: bytes, render: Render) -> Render:
    """As render, with these bytes before the first frame."""
    left = [first] if first else []

    def render_all(events: list[Event]) -> bytes | Iterator[bytes]:
        frames = render(events)
        return left.pop() + frames if left and frames and isinstance(frames, bytes) else frames

    return render_all
