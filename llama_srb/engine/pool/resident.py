"""The mode resident: one engine serves all requests. It is restarted after a crash, and can be renewed.

After a crash running requests end with an error; waiting ones are served by the next engine, after a delay.
While an RPC server of the command does not answer no engine is started, and requests end with its name.
The first load must succeed. Engines that all die in their first step are not restarted (first_steps.py): then
waiting requests end with an error, too, and only a retiring engine finishes its requests.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Coroutine
from typing import Any, Literal, TypeAlias

from llama_srb.engine import rpc
from llama_srb.engine.commands import encode
from llama_srb.engine.events import Ready
from llama_srb.engine.exchange import EngineError, EngineUnavailable, Exchange, new_id
from llama_srb.engine.pool.engines import Change, Engines
from llama_srb.engine.pool.first_steps import FirstSteps, proof
from llama_srb.engine.pool.pins import Pins
from llama_srb.engine.pool.requests import Requests
from llama_srb.engine.pool.warm_up import warm_up
from llama_srb.engine.process import Engine

log = logging.getLogger("llama_srb.pool")  # this name is documented

ResidentState: TypeAlias = Literal["stopped", "loading", "ready", "failed"]


class Resident:
    """The resident engine of a pool, from its load to an unload or the pool's stop.

    The task `_reside` owns the resident engine. Each engine that renew() loads is owned by a task `_succeed`,
    which becomes the resident's task when its engine is ready. So after each await a task checks whether it
    still is the resident's task (tests/fake/test_pool_life.py).
    """

    def __init__(self, engines: Engines, requests: Requests, change: Change, pins: Pins) -> None:
        self.ready: Ready | None = None
        self.failure: EngineError | None = None  # of the first load, or why engines are no longer started
        self.engine: Engine | None = None  # the resident one, in any state
        self.retiring: set[Engine] = set()  # engines that have a successor and finish their requests
        self._engines = engines
        self._requests = requests
        self._change = change
        self._pins = pins
        self._task: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Task[None]] = set()  # also those of retiring engines
        self._serving = False  # the engine is ready, and its task has handed it the requests
        self._closed = False
        self._first_steps = FirstSteps()

    @property
    def state(self) -> ResidentState:
        """Stopped means that the first load has failed."""
        if self.failure is not None:
            return "stopped" if self.ready is None else "failed"
        serves = self._serving and self.engine is not None and self.engine.state == "ready"
        return "ready" if serves else "loading"

    @property
    def progress(self) -> float:
        """The loaded share of the model, 0 to 1."""
        return 0.0 if self.engine is None else self.engine.progress

    def begin(self) -> None:
        """Starts to load an engine."""
        self._task = self._begin(self._reside(), "resident engine")

    def close(self) -> None:
        """From now on no engine gets a successor."""
        self._closed = True

    def end(self) -> set[asyncio.Task[None]]:
        """Ends all tasks but the current one, and their engines with them; returns the tasks."""
        tasks = {task for task in self._tasks if task is not asyncio.current_task()}
        for task in tasks:
            task.cancel()
        return tasks

    def take(self, exchange: Exchange) -> None:
        """Sends a request to the engine; if no engine is ready, the request waits.

        An engine that computes its pins is not ready.
        """
        if self.engine is not None and self.state == "ready" and not self._requests.held:
            self.engine.submit(exchange)

    def admit(self) -> None:
        """Sends the waiting requests to the engine, if one is ready."""
        if self.engine is not None and self.state == "ready":
            for exchange in self._requests.admissible:
                self.engine.submit(exchange)

    async def renew(self) -> None:
        """Does the work of Pool.renew()."""
        if self.engine is not None and rpc.servers_of(self._engines.current.command):
            raise EngineUnavailable(
                "an RPC server has one client at a time, so no engine can load beside this one: "
                "restart the server"
            )
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
            raise EngineUnavailable("the pool was stopped or unloaded before the new engine was ready")
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
        """Spawns an engine; when the block is left, ends it and updates the state."""
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
            self._change.notify()
        elif self.failure is not None:
            self._requests.fail_waiting(str(self.failure))
        else:
            self.admit()  # the retired engine's requests that had not begun

    async def _reside(self) -> None:
        """Keeps one engine running: restarts it after a delay, which doubles until an engine was stable."""
        settings = self._engines.settings
        delay = settings.restart_delay
        while self._is_resident:  # a successor may have loaded during the delay
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
            servers = rpc.servers_of(self._engines.current.command)
            if await rpc.wait_for(
                servers, lambda why: self._give_up(EngineUnavailable(why)), lambda: self._is_resident
            ):
                self.failure = None
                self._change.notify()
            if lived >= settings.stable_after:
                delay = settings.restart_delay
            log.warning("the engine starts again in %.1f s", delay)
            await asyncio.sleep(delay)
            delay = min(2 * delay, settings.restart_delay_max)

    @property
    def _is_resident(self) -> bool:
        """Whether the current task owns the resident engine."""
        return asyncio.current_task() is self._task

    async def _serve(self) -> float:
        """Runs one engine until it ends; returns the seconds that it was ready."""
        async with self._new_engine() as engine:
            if not self._is_resident:  # a successor has taken over during the spawn
                return 0.0
            self.engine, first_steps, loop = engine, self._first_steps, asyncio.get_running_loop()
            ready, ready_at = await engine.loaded(), loop.time()
            if first_steps.in_doubt(engine.program) and await _survives_proof(engine):
                first_steps.proved()
            await self._pins.compute(engine)
            await warm_up(engine, self._engines.settings.warm_up)
            if self._is_resident and engine.state == "ready":
                self._hand_over(engine, ready)
            await engine.ended()
            return loop.time() - ready_at

    async def _succeed(self, loaded: asyncio.Future[EngineError | None]) -> None:
        """Loads an engine beside the current one, makes it the resident one, and runs it until it ends.

        `loaded` gets None when it is the resident one, or the reason why it is not.
        """
        try:
            async with self._new_engine() as engine:
                ready = await engine.loaded()
                if self.failure is not None and not await _survives_proof(engine):
                    raise EngineError(engine.cause_with_log)
                await self._pins.compute(engine)
                await warm_up(engine, self._engines.settings.warm_up)
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
        """Makes the current task the owner of the resident engine; the old engine retires."""
        old, self._first_steps, self.failure = self.engine, FirstSteps(), None
        self._task = asyncio.current_task()
        self._hand_over(engine, ready)
        if old is not None:
            self.retiring.add(old)
            self._engines.begin(self._retire(old), f"engine {old.pid} retires")

    def _hand_over(self, engine: Engine, ready: Ready) -> None:
        """From now on this engine gets all new requests, and now the waiting ones."""
        self.engine, self.ready, self._serving = engine, ready, True
        self.admit()
        self._change.notify()

    async def _retire(self, engine: Engine) -> None:
        """Stops an engine after its last request. Its own task awaits the end of the process."""
        log.info("engine %d: has a successor", engine.pid)
        while engine.busy and not self._closed:
            await self._change.wait()
        if not self._closed:
            await engine.stop()

    def _give_up(self, failure: EngineError) -> None:
        """Starts no engines: the first one did not load, each dies in its first step, or a server is lost."""
        log.error("%s", failure)
        self.failure = failure
        if self.ready is None:  # no engine has ever been ready, so none has requests to finish
            self.end()
        self._requests.fail_waiting(str(failure))
        self._change.notify()


async def _survives_proof(engine: Engine) -> bool:
    """Whether an engine survives the test requests. It may refuse them; it only must not die."""
    log.warning("engine %d: gets test requests of the server's own first", engine.pid)
    assert engine.ready is not None
    for op, arguments in proof(only_embeds=bool(engine.ready.embedding.get("only"))):
        id = new_id()
        async with Exchange(id, encode(op, id, **arguments), on_enter=engine.submit) as exchange:
            await asyncio.wait({exchange.ending})
    return engine.state == "ready"
