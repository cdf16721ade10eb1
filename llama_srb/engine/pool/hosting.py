"""Whether a pool's engines are loaded: a host serves its requests from a load to an unload.

It does not decide when a model is loaded or unloaded (models/residency.py).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Literal, TypeAlias

from llama_srb.engine.events import Ready
from llama_srb.engine.exchange import Exchange
from llama_srb.engine.pool.engines import Change
from llama_srb.engine.pool.load_progress import LoadProgress
from llama_srb.engine.pool.per_request import PerRequest
from llama_srb.engine.pool.requests import Requests
from llama_srb.engine.pool.resident import Resident

Host: TypeAlias = Resident | PerRequest
HostingState: TypeAlias = Literal["stopped", "unloaded", "loading", "ready", "failed"]


class Hosting:
    """The host of a pool, which is a new one for each load. Pool's docstring has the table of states."""

    def __init__(self, new_host: Callable[[], Host], requests: Requests, change: Change) -> None:
        self.host = new_host()
        self._new_host = new_host
        self._requests = requests
        self._change = change
        self._last_ready: Ready | None = None  # of earlier hosts
        self._progress = LoadProgress(requests)
        self._on_demand = False  # an unloaded pool takes requests, which wait for a load
        self._loaded = False  # the host has begun
        self._closed = True  # the pool drains or is stopped
        change.listeners.append(self._tell_progress)

    # State

    @property
    def state(self) -> HostingState:
        """Of a pool that runs. Stopped means that the first load has failed and that there is no other."""
        if self._on_demand and (not self._loaded or self.host.state == "stopped"):
            return "unloaded"
        return self.host.state

    @property
    def ready(self) -> Ready | None:
        """The ready event of the last engine that was ready."""
        return self.host.ready or self._last_ready

    @property
    def progress(self) -> float:
        """The part of the model that is loaded, 0 to 1."""
        return 0.0 if self.state == "unloaded" else self.host.progress

    # Life

    def start(self, *, load: bool) -> None:
        """Begins, with a load or unloaded."""
        self._on_demand, self._loaded, self._closed = not load, False, False
        self._requests.held = False
        self._new()
        if load:
            self._begin()

    def load(self) -> None:
        """Begins to load, if the pool is unloaded; returns at once."""
        if self.state == "unloaded" and not self._closed:
            self._new()
            self._begin()

    def unload(self) -> Awaitable[None]:
        """From now on requests wait for the next load; the result waits until the engines have ended.

        RuntimeError if requests run.
        """
        if self.state in ("unloaded", "stopped") or self._closed:
            return _all_done(set())
        if (running := len(self._requests.running)) > 0:
            raise RuntimeError(f"{running} requests run, so their engine must stay")
        host, self._on_demand, self._loaded = self.host, True, False
        self._new()
        self._requests.held = False
        host.close()
        tasks = host.end()
        self._change.notify()
        return _all_done(tasks)

    def hold(self) -> None:
        """From now on no engine gets a waiting request; running ones finish."""
        self._requests.held = not self._closed
        self._change.notify()

    def release(self) -> None:
        """Ends a hold: the engine gets the requests that wait."""
        self._requests.held = False
        if self._loaded:
            self.host.admit()
        self._change.notify()

    def close(self) -> None:
        """Prepares the end: requests that no engine could ever get end now."""
        self.release()
        self._closed = True
        if self.state == "unloaded":
            self._requests.fail_waiting("the server is shutting down", code="shutting_down")
        self.host.close()

    def take(self, exchange: Exchange) -> None:
        """A request has entered the pool."""
        if self._loaded:
            self.host.take(exchange)
        if exchange.state == "new" and self._waits_for_load:
            self._change.notify()

    def _new(self) -> None:
        self._last_ready = self.ready
        self.host = self._new_host()

    def _begin(self) -> None:
        self._loaded = True
        self.host.begin()
        self._change.notify()

    @property
    def _waits_for_load(self) -> bool:
        return self._on_demand and self.state in ("unloaded", "loading")

    def _tell_progress(self) -> None:
        self._progress.changed(self.progress if self._waits_for_load else None)


async def _all_done(tasks: set[asyncio.Task[None]]) -> None:
    if tasks:
        await asyncio.wait(tasks)
