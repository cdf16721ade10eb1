"""The requests that have no answer yet: a server that stops gives each of them one."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

from aiohttp import web
from aiohttp.typedefs import Middleware

from llama_srb.request.values import RequestError

Handler: TypeAlias = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Unanswered:
    """The tasks of the requests whose answers have not begun."""

    def __init__(self) -> None:
        self._tasks = set[asyncio.Task[Any]]()
        self._ended = set[asyncio.Task[Any]]()

    def middleware(self) -> Middleware:
        """Knows each request until it is answered; RequestError (503) if `end` comes first."""

        @web.middleware
        async def watch(request: web.Request, handler: Handler) -> web.StreamResponse:
            task = _current()
            self._tasks.add(task)
            try:
                return await handler(request)
            except asyncio.CancelledError:
                if task not in self._ended:
                    raise  # the client has left
                task.uncancel()
                message = "the server is shutting down"
                raise RequestError(message, status=503, code="shutting_down") from None
            finally:
                self._tasks.discard(task)
                self._ended.discard(task)

        return watch

    async def begun(self, _request: web.Request, _response: web.StreamResponse) -> None:
        """The hook of an answer that begins."""
        self._tasks.discard(_current())

    async def wait(self) -> None:
        """Returns when all requests that are there now have an answer, or are streams."""
        waiting = set(self._tasks)
        while left := waiting & self._tasks:
            await asyncio.wait(left, timeout=0.05)  # a stream that begins does not end its task

    def end(self) -> None:
        """Ends the requests that are left with an error."""
        for task in self._tasks:
            self._ended.add(task)
            task.cancel()


def _current() -> asyncio.Task[Any]:
    task = asyncio.current_task()
    assert task is not None
    return task
