"""The mode resident: one engine serves all requests; it is started again when it crashes, and renewed.

A crash is an error for what was running; what waited is served after a pause and a new start. The first load
must succeed. Engines that die in their first step, one as the other, are not started again (first_steps.py):
what waits gets an error, and only what an engine with a successor still runs goes on.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Coroutine
from typing import Any, Literal, TypeAlias

from llama_srb.engine.commands import encode
from llama_srb.engine.events import Ready
from llama_srb.engine.exchange import EngineError, EngineUnavailable, Exchange, new_id
from llama_srb.engine.pool.engines import Change, Engines
from llama_srb.engine.pool.first_steps import FirstSteps, proof
from llama_srb.engine.pool.requests import Requests
from llama_srb.engine.process import Engine

log = logging.getLogger("llama_srb.pool")  # as operators know it

ResidentState: TypeAlias = Literal["stopped", "loading", "ready", "failed"]


class Resident:
    """From the start of a pool to its stop.

    One task, `_reside`, owns the resident engine, and one, `_succeed`, each engine that renew() loads; it is
    the resident's from the moment that it serves. After each await these look at whether that is still so
    (tests/fake/test_pool_life.py).
    """

    def __init__(self, engines: Engines, requests: Requests, change: Change) -> None:
        self.ready: Ready | None = None
        self.failure: EngineError | None = None  # the first load's, or why no engine is started any more
        self.engine: Engine | None = None  # the resident one, in whatever state
        self.retiring: set[Engine] = set()  # which have a successor
        self._engines = engines
        self._requests = requests
        self._change = change
        self._task: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Task[None]] = set()  # with those whose engine has a successor
        self._serving = False  # the engine has loaded, and its task knows that
        self._closed = False
        self._first_steps = FirstSteps()

    @property
    def state(self) -> ResidentState:
        """Stopped: the first load has failed."""
        if self.failure is not None:
            return "stopped" if self.ready is None else "failed"
        serves = self._serving and self.engine is not None and self.engine.state == "ready"
        return "ready" if serves else "loading"

    @property
    def progress(self) -> float:
        """How much of the model is loaded, 0 to 1."""
        return 0.0 if self.engine is None else self.engine.progress

    def begin(self) -> None:
        """Begins to load."""
        self._task = self._begin(self._reside(), "resident engine")

    def close(self) -> None:
        """No engine gets a successor from now on."""
        self._closed = True

    def end(self) -> None:
        """Ends all tasks but the one at hand, and their engines with them."""
        for task in self._tasks - {asyncio.current_task()}:
            task.cancel()

    def take(self, exchange: Exchange) -> None:
        """A request has entered; without an engine that is ready it waits for one."""
        if self.engine is not None and self.state == "ready":
            self.engine.submit(exchange)

    async def renew(self) -> None:
        """As Pool.renew()."""
        loaded: asyncio.Future[EngineError | None] = asyncio.get_running_loop().create_future()
        successor = self._begin(self._succeed(loaded), "successor of the resident engine")
        try:
            both: set[asyncio.Future[Any]] = {loaded, successor}
            await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        finally:
            if not loaded.done():
                successor.cancel()
                await asyncio.wait({successor})
        if not loaded.done():  # cancelled by a stop, maybe before it began
            raise EngineUnavailable("the pool was stopped before the new engine was ready")
        if (failure := loaded.result()) is not None:
            raise failure

    def _begin(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        task = self._engines.begin(work, name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    # Tasks that own an engine

    @contextlib.asynccontextmanager
    async def _new_engine(self) -> AsyncIterator[Engine]:
        """An engine that starts, and is ended when the block is left."""
        engine = None
        try:
            async with self._engines.start() as engine:
                yield engine
        finally:
            if engine is not None:
                self._ended(engine)

    def _ended(self, engine: Engine) -> None:
        self.retiring.discard(engine)
        if self.engine is engine:
            self.engine, self._serving = None, False
            self._first_steps.ended(engine.program, engine.first_step_signal, works=engine.stepped)
            self._change.tell()
        elif self.failure is not None:
            self._requests.fail_waiting(str(self.failure))
        elif self.engine is not None and self.state == "ready":
            self._submit_waiting(self.engine)  # what had only waited in this one

    async def _reside(self) -> None:
        """Keeps one engine running: crash, pause, start again; pauses double until an engine has stayed."""
        settings = self._engines.settings
        delay = settings.restart_delay
        while self._is_resident:  # another one may have loaded in the pause
            lived = 0.0
            try:
                lived = await self._serve()
            except EngineError as error:
                if self.ready is None:
                    self._give_up(error)
                    return
                log.error("%s", error)
            except Exception:
                log.exception("the resident engine's task failed")
            if not self._is_resident:
                return
            if (verdict := self._first_steps.verdict) is not None:
                self._give_up(EngineUnavailable(verdict))
                return
            if lived >= settings.stable_after:
                delay = settings.restart_delay
            log.warning("the engine starts again in %.1f s", delay)
            await asyncio.sleep(delay)
            delay = min(2 * delay, settings.restart_delay_max)

    @property
    def _is_resident(self) -> bool:
        """Whether the task at hand has no successor."""
        return asyncio.current_task() is self._task

    async def _serve(self) -> float:
        """One engine's life, serving all that is here and all that comes; the seconds that it was ready."""
        async with self._new_engine() as engine:
            if not self._is_resident:  # another one has taken over while the process began
                return 0.0
            self.engine, first_steps, loop = engine, self._first_steps, asyncio.get_running_loop()
            ready, ready_at = await engine.loaded(), loop.time()
            if first_steps.in_doubt(engine.program) and await _survives_proof(engine):
                first_steps.proved()
            if self._is_resident and engine.state == "ready":
                self._hand_over(engine, ready)
            await engine.ended()
            return loop.time() - ready_at

    async def _succeed(self, loaded: asyncio.Future[EngineError | None]) -> None:
        """An engine's life that begins beside another one; once it has loaded, this is the resident."""
        try:
            async with self._new_engine() as engine:
                ready = await engine.loaded()
                if self.failure is not None and not await _survives_proof(engine):
                    raise EngineError(engine.cause_with_log)
                if self._closed:
                    raise EngineUnavailable("the engine is draining")
                self._take_over(engine, ready)
                loaded.set_result(None)
                await engine.ended()
        except EngineError as error:
            loaded.set_result(error)
        if self._is_resident:
            await self._reside()

    def _take_over(self, engine: Engine, ready: Ready) -> None:
        """The task at hand owns the resident engine now; the one before ends with its last request."""
        old, self._first_steps, self.failure = self.engine, FirstSteps(), None
        self._task = asyncio.current_task()
        self._hand_over(engine, ready)
        if old is not None:
            self.retiring.add(old)
            self._engines.begin(self._retire(old), f"engine {old.pid} retires")

    def _hand_over(self, engine: Engine, ready: Ready) -> None:
        """From now on this one gets what comes, and what waits."""
        self.engine, self.ready, self._serving = engine, ready, True
        self._submit_waiting(engine)
        self._change.tell()

    def _submit_waiting(self, engine: Engine) -> None:
        for exchange in self._requests.waiting:
            engine.submit(exchange)

    async def _retire(self, engine: Engine) -> None:
        """Its own task sees it end, and that it is no longer the resident's."""
        log.info("engine %d: has a successor", engine.pid)
        while engine.busy and not self._closed:
            await self._change.wait()
        if not self._closed:
            await engine.stop()

    def _give_up(self, failure: EngineError) -> None:
        """No pause will mend that: the first engine did not load, or each one dies in its first step."""
        log.error("%s", failure)
        self.failure = failure
        if self.ready is None:  # nothing is here that could go on
            self.end()
        self._requests.fail_waiting(str(failure))
        self._change.tell()


async def _survives_proof(engine: Engine) -> bool:
    """Whether it lives through requests of our own. That it may refuse them is no reason against it."""
    log.warning("engine %d: gets requests of the server's own first", engine.pid)
    assert engine.ready is not None
    for op, arguments in proof(only_embeds=bool(engine.ready.embedding.get("only"))):
        id = new_id()
        async with Exchange(id, encode(op, id, **arguments), on_enter=engine.submit) as exchange:
            await asyncio.wait({exchange.ending})
    return engine.state == "ready"
