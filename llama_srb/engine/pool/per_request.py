"""The mode per-request: each request gets its own engine, scheduled fairly between clients."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from typing import Literal

from llama_srb.engine.events import Ready
from llama_srb.engine.exchange import EngineError, Exchange
from llama_srb.engine.pool.engines import Engines
from llama_srb.engine.pool.requests import Requests

log = logging.getLogger("llama_srb.pool")  # this name is documented


class PerRequest:
    """Always ready: if an engine does not load, only its request fails."""

    state: Literal["ready"] = "ready"
    progress = 1.0
    failure: EngineError | None = None

    def __init__(self, engines: Engines, requests: Requests, max_engines: int) -> None:
        self.ready: Ready | None = None
        self._engines = engines
        self._requests = requests
        self._max_engines = max_engines
        self._clients: dict[str, str] = {}  # id of each request with an engine → its client
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_over = False
        self._last_begun: dict[str, int] = {}  # client → number of its latest start, while requests wait

    def begin(self) -> None:
        """Serves the requests that wait already. No engine is loaded before a request comes."""
        self.admit()

    def close(self) -> None:
        """Does nothing: running requests end by themselves."""

    def end(self) -> set[asyncio.Task[None]]:
        """Starts no more engines; returns the tasks of the others, each of which ends with its request."""
        self._is_over = True
        return set(self._tasks)

    async def renew(self) -> None:
        """Does nothing: each request gets a new process."""

    def take(self, exchange: Exchange) -> None:
        """A request has entered the pool."""
        self.admit()

    def admit(self) -> None:
        """Admits waiting requests while engines are free.

        Next is the oldest request of the client with the fewest running requests; among equal clients the one
        whose latest request began first.
        """
        waiting = self._requests.admissible
        if not waiting:
            self._last_begun.clear()
        while waiting and not self._is_over and len(self._clients) < self._max_engines:
            running = Counter(self._clients.values())
            exchange = min(
                waiting, key=lambda one: (running[one.client], self._last_begun.get(one.client, 0))
            )
            waiting.remove(exchange)
            self._begin(exchange)

    def _begin(self, exchange: Exchange) -> None:
        self._last_begun[exchange.client] = max(self._last_begun.values(), default=0) + 1
        self._clients[exchange.id] = exchange.client
        self._requests.admit(exchange)
        task = self._engines.begin(self._serve(exchange), f"request {exchange.id}")
        exchange.ending.add_done_callback(lambda _: task.cancel() if exchange.engine is None else None)
        self._tasks.add(task)
        task.add_done_callback(lambda _: self._leave(exchange, task))

    def _leave(self, exchange: Exchange, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        del self._clients[exchange.id]
        self.admit()

    async def _serve(self, exchange: Exchange) -> None:
        """Runs an engine for one request. If the request ends before it was sent, this task is cancelled."""
        try:
            async with self._engines.start() as engine:
                self.ready = await engine.loaded()
                engine.submit(exchange)
                await asyncio.wait({exchange.ending})
        except EngineError as error:
            exchange.fail("engine_died", str(error))
        except Exception as error:
            log.exception("request %s", exchange.id)
            exchange.fail("internal_error", str(error))
