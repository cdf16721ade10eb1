"""One model as the residency sees it: its loads, its failures, the operator's wishes, its memory."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable

from llama_srb.engine.exchange import EngineError, EngineUnavailable
from llama_srb.engine.pool import Refusal
from llama_srb.models import model_memory as memory
from llama_srb.models.decisions import View, ViewState
from llama_srb.models.served import ServedModel

log = logging.getLogger("llama_srb.models")  # this name is documented

RETRY, RETRY_MAX = 1.0, 60.0  # seconds until a failed load is tried again; they double with each failure


class ResidentModel:
    """The state of one model between decisions. Times are those of the event loop's clock."""

    def __init__(self, model: ServedModel) -> None:
        self.model = model
        self.waiters: set[asyncio.Future[None]] = set()  # calls of load()
        self.asked_at: float | None = None  # when the operator asked for a load that has not succeeded
        self.loaded_at: float | None = None  # None: it is not loaded, and was not since its last load
        self.leaving: asyncio.Task[None] | None = None  # the task that unloads it
        self.stay: float | None = None  # seconds for unload_after until it leaves; infinity: for ever
        self.least = model.need  # the first estimate: a model that has grown in use may be loaded again
        self._loads = False
        self._retry_at = 0.0
        self._n_failures = 0
        self._largest = 0  # bytes, measured since the load
        if model.settings.preload:
            self.asked_at = asyncio.get_running_loop().time()

    # Wishes

    def ask(self) -> asyncio.Future[None]:
        """The operator asks for a load, at once also after a failure; the future has its end."""
        loop = asyncio.get_running_loop()
        waiter: asyncio.Future[None] = loop.create_future()
        self.waiters.add(waiter)
        if self.model.pool.state == "ready":
            waiter.set_result(None)
        else:
            self.asked_at = loop.time() if self.asked_at is None else self.asked_at
            self._retry_at = 0.0
        return waiter

    def fail(self, reason: str, error: type[EngineError] = EngineUnavailable) -> None:
        """Ends the calls of load() with an error, and the wish for a load."""
        self.asked_at = None
        for waiter in self.waiters:
            if not waiter.done():
                waiter.set_exception(error(reason))

    def refuse(self, reason: str) -> None:
        """It can never be loaded: its requests fail, also later ones."""
        self.model.pool.refusal = Refusal(reason)
        self.model.pool.requests.fail_waiting(reason)
        self.fail(reason)

    def forget_size(self) -> None:
        """The limits are others now: a model that was too large is decided again."""
        refusal = self.model.pool.refusal
        if refusal is not None and refusal.until is None:
            self.model.pool.refusal = None

    # Loads

    def begin_load(self) -> None:
        self._loads, self._largest = True, 0
        self.model.pool.refusal = None
        self.model.pool.hosting.load()

    def observe(self, now: float) -> None:
        """Notices the end of a load."""
        match self.model.pool.state:
            case "ready" if self.loaded_at is None:
                self._loaded(now)
            case "unloaded" if self._loads:
                self._failed(now, self.model.pool.failure or "the load was ended")
            case "stopped" | "failed" if self.waiters:  # its pool was started with a load
                self.fail(self.model.pool.failure or "the pool was stopped", EngineError)

    def _loaded(self, now: float) -> None:
        self._loads, self._n_failures = False, 0
        self.loaded_at, self.asked_at = now, None
        for waiter in self.waiters:
            if not waiter.done():
                waiter.set_result(None)
        if (ready := self.model.pool.ready) is None:
            return
        settings, info = self.model.settings, self.model.info
        if self._is_measured:
            self.model.need = self._resident() + memory.growth(settings, info, ready.n_ctx)
        elif ready.backend != "CPU":  # a GPU's memory is not that of the process
            self.model.need = memory.placed(settings, ready.memory) or memory.needed(
                settings, info, ready.n_ctx, ready.backend
            )

    def _failed(self, now: float, reason: str) -> None:
        """A load has failed, and with it the requests that waited: there is a pause before the next one."""
        pause = min(RETRY * 2**self._n_failures, RETRY_MAX)
        self._loads, self._n_failures, self._retry_at = False, self._n_failures + 1, now + pause
        self.model.pool.refusal = Refusal(reason, self._retry_at)
        self.model.pool.requests.fail_waiting(reason)
        log.warning("model %s: is not loaded again for %g s", self.model.name, pause)
        preload_at = None if self.waiters else self.asked_at
        self.fail(reason, EngineError)
        self.asked_at = preload_at

    def begin_unload(self) -> Awaitable[None]:
        """Unloads it; the result waits until its engines have ended."""
        ended = self.model.pool.hosting.unload()
        self._loads, self.loaded_at = False, None
        return ended

    def left(self) -> None:
        """Its engines have ended."""
        self.leaving = self.stay = None
        if self._is_measured:
            self.model.need = max(self.model.need, self._largest)

    # Facts

    def view(self, key: int, *, measured: bool) -> View:
        """The model as decisions see it; its memory is measured only if that counts."""
        requests = self.model.pool.requests
        n_waiting = len(requests.waiting)
        since = [time for time in (requests.waiting_since, self.asked_at) if time is not None]
        return View(
            key,
            self._state,
            wanted_since=min(since, default=None),
            running=len(requests) - n_waiting,
            waiting=n_waiting,
            held=requests.held,
            last_used=requests.last_used,
            loaded_at=self.loaded_at or 0.0,
            memory=self._memory() if measured else 0,
            need=self.model.need,
            least=min(self.least, self.model.need),
            unload_after=self.unload_after,
            retry_at=self._retry_at,
        )

    @property
    def unload_after(self) -> float | None:
        """Seconds without a request after which it leaves; None: never."""
        return self.model.settings.unload_after if self.stay is None else self.stay

    @property
    def _state(self) -> ViewState:
        """A loaded model whose engine has crashed and starts again counts as loaded."""
        if self.leaving is not None:
            return "leaving"
        match self.model.pool.state:
            case "loading":
                return "loading" if self.loaded_at is None else "loaded"
            case "ready":
                return "loaded"
            case "unloaded":
                return "unloaded"
            case "draining":
                return "leaving"
        return "failed"

    @property
    def _is_measured(self) -> bool:
        """Whether the engine's resident memory is all that it takes, while it is ready."""
        pool = self.model.pool
        return pool.mode == "resident" and pool.ready is not None and pool.ready.backend == "CPU"

    def _resident(self) -> int:
        return sum(map(memory.memory_of, self.model.pool.engines.pids))

    def _memory(self) -> int:
        """Bytes that count, without snapshots: as measured, and at least what it needs, since cells fill."""
        found = self._resident() - self.model.snapshots
        self._largest = max(self._largest, found)
        return max(found, self.model.need)
