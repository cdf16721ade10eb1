"""Stores a document while the client sees how far it is: as server-sent events, if it accepts them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeAlias

import orjson
from aiohttp import web

from llama_srb.background import begin
from llama_srb.dialects.event_types import ErrorEvent
from llama_srb.http.middleware import FAULT, answer_to
from llama_srb.http.streaming import EVENT_STREAM, PAUSE, STREAM_HEADERS
from llama_srb.memory.one_memory import OnProgress
from llama_srb.memory.records import Progress
from llama_srb.serving.memory_entries import StoredDocument, StoreEvent

Storing: TypeAlias = Callable[[OnProgress], Awaitable[StoredDocument]]


def wants_events(http: web.Request) -> bool:
    """Whether the client accepts an event stream and names it."""
    return "text/event-stream" in ",".join(http.headers.getall("Accept", ())).lower()


async def streamed(http: web.Request, storing: Storing, pause: float) -> web.StreamResponse:
    """The events of storing a document. An error before the first one is an answer of its own.

    pause: seconds of silence after which a comment keeps the connection open.
    """
    steps: asyncio.Queue[Progress | StoredDocument | Exception] = asyncio.Queue()
    work = begin(_noted(storing, steps.put_nowait), "document")
    try:
        if isinstance(step := await steps.get(), Exception):
            raise step
        response = web.StreamResponse(headers={"Content-Type": EVENT_STREAM, **STREAM_HEADERS})
        await response.prepare(http)
        await response.write(_frame(step, http))
        while isinstance(step, Progress):
            try:
                step = await asyncio.wait_for(steps.get(), pause)
            except TimeoutError:
                await response.write(PAUSE)
            else:
                await response.write(_frame(step, http))
        return response
    finally:
        work.cancel()
        await asyncio.wait({work})


async def _noted(storing: Storing, note: Callable[[Progress | StoredDocument | Exception], None]) -> None:
    """Notes the progress, and at the end the result or the error."""
    try:
        note(await storing(note))
    except Exception as error:  # becomes an answer, or an event
        note(error)


def _frame(step: Progress | StoredDocument | Exception, http: web.Request) -> bytes:
    return b"data: " + orjson.dumps(_event(step, http)) + b"\n\n"


def _event(step: Progress | StoredDocument | Exception, http: web.Request) -> StoreEvent:
    if isinstance(step, Progress):
        return {"event": "progress", "stage": step.stage, "done": step.done, "total": step.total}
    if not isinstance(step, Exception):
        return {"event": "done", **step}
    fault = answer_to(step, http)[FAULT]
    event: ErrorEvent = {
        "event": "error",
        "code": fault["code"] or "invalid_request",
        "message": fault["message"],
    }
    return {**event, "param": fault["param"]} if fault["param"] else event
