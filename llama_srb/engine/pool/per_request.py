"""The mode per-request: each request has its own engine, and a task that owns it; clients take turns."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from typing import Literal

from llama_srb.engine.events import Ready
from llama_srb.engine.exchange import EngineError, Exchange
from llama_srb.engine.pool.engines import Engines
from llama_srb.engine.pool.requests import Requests

log = logging.getLogger("llama_srb.pool")  # as operators know it


class PerRequest:
    """Ready from start to stop: an engine that does not load is an error of its request."""

    state: Literal["ready"] = "ready"
    progress = 1.0
    failure: EngineError | None = None

    def __init__(self, engines: Engines, requests: Requests, max_engines: int) -> None:
        self.ready: Ready | None = None
        self._engines = engines
        self._requests = requests
        self._max_engines = max_engines
        self._clients: dict[str, str] = {}  # whose request has an engine, by the request's id
        self._turns: dict[str, int] = {}  # when each client's last request began, while others wait

    def begin(self) -> None:
        """Nothing is loaded before a request comes."""

    def close(self) -> None:
        """What is here ends by itself."""

    def end(self) -> None:
        """Each task ends with its request."""

    async def renew(self) -> None:
        """The next process is a new one."""

    def take(self, exchange: Exchange) -> None:
        """A request has entered."""
        self._admit()

    def _admit(self) -> None:
        """Begins what there is room for; next is the oldest request of the client whose turn it is."""
        waiting = [one for one in self._requests.waiting if one.id not in self._clients]
        if not waiting:
            self._turns.clear()
        while waiting and len(self._clients) < self._max_engines:
            running = Counter(self._clients.values())
            exchange = min(waiting, key=lambda one: (running[one.client], self._turns.get(one.client, 0)))
            waiting.remove(exchange)
            self._begin(exchange)

    def _begin(self, exchange: Exchange) -> None:
        self._turns[exchange.client] = max(self._turns.values(), default=0) + 1
        self._clients[exchange.id] = exchange.client
        task = self._engines.begin(self._serve(exchange), f"request {exchange.id}")
        exchange.ending.add_done_callback(lambda _: task.cancel() if exchange.engine is None else None)
        task.add_done_callback(lambda _: self._leave(exchange))

    def _leave(self, exchange: Exchange) -> None:
        del self._clients[exchange.id]
        self._admit()

    async def _serve(self, exchange: Exchange) -> None:
        """An engine for one request; if that ends before it was sent, this task is cancelled."""
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
