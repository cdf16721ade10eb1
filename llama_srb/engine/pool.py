"""Which engine serves a request: one that stays (resident) or its own (per-request); restarts what crashes.

A pool knows engines and requests, not HTTP. Both modes run the same engine in the same `async with`; they
differ in how long the block lasts and in who shares it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import shutil
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from functools import partial
from types import TracebackType
from typing import Any, Literal, Self, TypeAlias

from llama_srb import bundled
from llama_srb.background import begin
from llama_srb.engine.commands import encode, encode_extend, encode_generate, encode_prefix
from llama_srb.engine.events import Error, Extend, Ready, Result
from llama_srb.engine.exchange import CommandRefused, EngineError, EngineUnavailable, Exchange, new_id
from llama_srb.engine.first_steps import FirstSteps, proof
from llama_srb.engine.multi import Several
from llama_srb.engine.process import Engine, EngineState
from llama_srb.engine.settings import EngineSettings
from llama_srb.engine.terms import OWN, Terms, TimeLimit
from llama_srb.request.fields import CompletionRequest, Extension
from llama_srb.request.values import wrong

log = logging.getLogger("llama_srb.pool")  # as operators know it

Mode: TypeAlias = Literal["resident", "per-request"]
PoolState: TypeAlias = EngineState | Literal["failed"]


class Pool:
    """Takes requests and finds them an engine.

    |              | stopped     | loading              | ready   | failed             | draining       |
    |--------------|-------------|----------------------|---------|--------------------|----------------|
    | start()      | loading     | nothing              | nothing | nothing            | nothing        |
    | generate()   | Unavailable | waits for the engine | runs    | Unavailable        | Unavailable    |
    | prefix()     | Unavailable | waits for the engine | runs    | Unavailable        | Unavailable    |
    | run()        | Unavailable | waits for the engine | runs    | Unavailable        | Unavailable    |
    | command()    | Unavailable | waits for the engine | runs    | Unavailable        | Unavailable    |
    | extend()     | None        | None                 | runs    | runs               | runs           |
    | cancel(id)   | False       | True if it is here   | same    | same               | same           |
    | wait_ready() | EngineError | waits                | Ready   | Unavailable        | Unavailable    |
    | renew()      | Unavailable | a new engine, beside | same    | a new one: ready   | Unavailable    |
    | stop(grace)  | nothing     | draining             | same    | same               | ends it sooner |

    Unavailable is EngineUnavailable, which says why.

    resident: a crash is an error for what was running; what waited is served after a pause and a new start.
    The first load must succeed: if it fails the pool is stopped, and wait_ready() says why. Engines that die
    in their first step, one as the other, make it failed (first_steps.py): what waits gets an error, and only
    what an engine with a successor still runs goes on. One task, `_reside`, owns the resident engine, and
    one, `_succeed`, each engine that renew() loads; it is the resident's from the moment that it serves.
    After each await these look at whether that is still so (tests/fake/test_pool_life.py).
    per-request: ready from start to stop; each request has a task, `_serve_alone`, which owns its engine.
    """

    def __init__(self, settings: EngineSettings, *, mode: Mode = "resident", max_engines: int = 4) -> None:
        self.settings = settings
        self.on_engine_start: Callable[[], None] = lambda: None
        self.mode = mode
        self.ready: Ready | None = None  # what the last engine that was ready said of itself
        self._live: dict[str, Exchange] = {}  # in order of arrival
        self._groups: dict[str, Several] = {}  # of generations that are one request, by the id of the first
        self._prefixes: dict[str, Exchange] = {}  # by client, whose last one is the only one that is wanted
        self._engine: Engine | None = None  # the resident one, in whatever state
        self._resident: asyncio.Task[None] | None = None
        self._residents: set[asyncio.Task[None]] = set()  # with those whose engine has a successor
        self._serving = False  # it has loaded, and _reside knows it
        self._engines: set[Engine] = set()  # all, from before their start until after their end
        self._max_engines = max_engines
        self._alone: dict[
            str, str
        ] = {}  # whose request each process of the mode per-request is for, by its id
        self._turns: dict[str, int] = {}  # when each client's last request began, while others wait
        self._timers: dict[str, list[asyncio.TimerHandle]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._running = False
        self._draining = False
        self._failure: EngineError | None = None  # the first load's, or why no engine is started any more
        self._first_steps = FirstSteps()
        self._change = asyncio.Event()

    # State

    @property
    def state(self) -> PoolState:
        if not self._running:
            return "stopped"
        if self._draining:
            return "draining"
        if self.mode == "per-request":
            return "ready"
        if self._failure is not None:
            return "failed"
        serving = self._serving and self._engine is not None and self._engine.state == "ready"
        return "ready" if serving else "loading"

    @property
    def failure(self) -> str | None:
        """Why it has failed or could not start, and what to do."""
        return None if self._failure is None else str(self._failure)

    @property
    def progress(self) -> float:
        """How much of the model is loaded, 0 to 1."""
        if self.mode == "per-request":
            return 1.0
        return 0.0 if self._engine is None else self._engine.progress

    async def changed(self) -> None:
        """Waits for the next change of state or progress."""
        await self._change.wait()

    async def wait_ready(self) -> Ready | None:
        """Waits for the state ready; EngineError if the first load fails. None if no engine was ready yet."""
        while self.state == "loading":
            await self.changed()
        if self.state != "ready":
            raise self._failure or EngineUnavailable(f"the engine is {self.state}")
        return self.ready

    def _changes(self) -> None:
        """Wakes all who wait for a change; the next one needs a new event."""
        self._change.set()
        self._change = asyncio.Event()

    # Life

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    async def start(self) -> None:
        """Begins to load without waiting for it; EngineUnavailable when there is no such program."""
        if self._running:
            return
        program = self.settings.command[0]
        if shutil.which(program) is None:
            raise EngineUnavailable(f"no engine at {program}: {bundled.remedy()}")
        self._running, self._draining, self._failure, self.ready = True, False, None, None
        self._first_steps = FirstSteps()
        if self.mode == "resident":
            self._resident = self._begin_to_reside(self._reside(), "resident engine")
        self._changes()

    def _begin_to_reside(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        task = self._spawn(work, name)
        self._residents.add(task)
        task.add_done_callback(self._residents.discard)
        return task

    async def renew(self) -> None:
        """Loads a new engine beside the one that serves, then gives it all that comes from now on.

        The old one ends when its last request has. EngineError when the new one does not load: all stays.
        So it does when the pool has failed, and the new one dies of the requests that are to prove it.
        """
        self._require_open(but=("failed",))
        if self.mode == "per-request":
            return  # the next process is a new one
        loaded: asyncio.Future[EngineError | None] = asyncio.get_running_loop().create_future()
        successor = self._begin_to_reside(self._succeed(loaded), "successor of the resident engine")
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

    async def _retire(self, engine: Engine) -> None:
        """Its own task sees it end, and that it is no longer the resident's."""
        log.info("engine %d: has a successor", engine.pid)
        while engine.busy and not self._draining:
            await self.changed()
        if not self._draining:
            await engine.stop()

    async def stop(self, grace: float = 0.0) -> None:
        """Takes no more, lets what is here go on for `grace` seconds, then ends the rest and the engines."""
        if not self._running:
            await self._end_tasks()  # of successors, where the first load has failed
            return
        self._draining = True
        self._changes()
        try:
            async with asyncio.timeout(grace):
                while self._live:
                    await self.changed()
        except TimeoutError:
            log.info("stopping with %d requests open", len(self._live))
        finally:
            await self._end()

    async def _end(self) -> None:
        """What is still open gets an error; then every task, and with it every process, is ended."""
        for exchange in list(self._live.values()):
            exchange.fail("shutting_down", "the server is shutting down")
        try:
            await self._end_tasks()
        finally:
            self._running = False
            self._changes()

    async def _end_tasks(self) -> None:
        """A request's task ends with it. Who cancels this is in a hurry: engines are killed, and reaped."""
        self._cancel_residents()
        try:
            await self._all_tasks()
        except asyncio.CancelledError:
            for engine in self._engines:
                engine.kill()
            await self._all_tasks()
            raise

    def _cancel_residents(self) -> None:
        for task in self._residents - {asyncio.current_task()}:
            task.cancel()

    async def _all_tasks(self) -> None:
        while self._tasks:
            await asyncio.wait(set(self._tasks))

    def _spawn(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        task = begin(work, name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    # Requests

    def generate(self, request: CompletionRequest, terms: Terms = OWN) -> Exchange:
        """A request's events: `async with pool.generate(r) as g: async for events in g: …`, sent on entering.

        Has id and cancel(index=None). No list of events is empty, the last one ends with Done or Error;
        leaving the block early cancels at once. EngineUnavailable when the pool is stopped or draining.
        """
        id = new_id()
        exchange = self._exchange(id, encode_generate(id, request, terms.client), request.candidates, terms)
        exchange.timeout = request.timeout
        return exchange

    def generate_all(self, requests: list[CompletionRequest], terms: Terms = OWN) -> Several:
        """As generate(), of several requests at once; one id names them all."""
        return Several([self.generate(request, terms) for request in requests], self._groups)

    def prefix(self, request: CompletionRequest, terms: Terms = OWN) -> Exchange:
        """Computes a request's prompt, to be used like generate(); ends with Done or Error.

        It ends its client's one before if that is not done: `cancelled` of that one says so.
        """
        id = new_id()
        return self._exchange(id, encode_prefix(id, request, terms.client), 0, terms, self._take_prefix)

    def run(self, op: str, terms: Terms = OWN, **arguments: Any) -> Exchange:
        """Any other command that takes its time, to be used like generate(); ends with Done or Error."""
        id = new_id()
        return self._exchange(id, encode(op, id, terms.client, **arguments), 0, terms)

    async def command(self, op: str, terms: Terms = OWN, **arguments: Any) -> Mapping[str, Any]:
        """The answer to tokenize, status, …; CommandRefused if the engine refuses it, or died."""
        async with self.run(op, terms, **arguments) as exchange:
            async for events in exchange:
                match events[-1]:
                    case Result(data=data):
                        return data
                    case Error() as error:
                        raise CommandRefused(error)
        raise EngineError(f"{op} was cancelled")

    @property
    def open(self) -> int:
        """Requests that are here, running or waiting."""
        return len(self._live)

    @property
    def pids(self) -> list[int]:
        """Of all engine processes."""
        return [engine.pid for engine in self._engines if engine.pid]

    def running(self, id: str) -> Exchange | None:
        """The generation of this id, if an engine has it, it is one, and it is not being cancelled."""
        exchange = self._live.get(id)
        if exchange is None or exchange.state != "active" or not exchange.n or id in self._groups:
            return None
        return exchange

    async def extend(self, generation: Exchange, extension: Extension) -> Extend | None:
        """More sequences for a generation, whose events come with its own; None when it has just ended.

        extension.fork names one of its sequences, 0 to n - 1.
        """
        return await generation.extend(encode_extend(generation.id, extension), extension.add)

    def cancel(self, id: str, index: int | None = None) -> bool:
        """Ends a generation, or only the sequence `index`; False when none of that id is here.

        RequestError when it has no such sequence.
        """
        exchange = self._groups.get(id) or self._live.get(id)
        if exchange is None:
            return False
        if index is not None and index >= exchange.n:
            raise wrong("index", index, f"at most {exchange.n - 1}, the last of {exchange.n}")
        exchange.cancel(index)
        return True

    def _exchange(
        self,
        id: str,
        line: bytes,
        n: int,
        terms: Terms,
        take: Callable[[Terms, Exchange], None] | None = None,
    ) -> Exchange:
        self._require_open()
        exchange = Exchange(
            id,
            line,
            n=n,
            restartable=self.mode == "resident",
            on_enter=partial(take or self._take, terms),
            on_done=partial(self._forget, terms),
        )
        exchange.client = terms.client
        exchange.on_events = partial(terms.observer.told, exchange)
        return exchange

    def _require_open(self, but: tuple[PoolState, ...] = ()) -> None:
        if self.state in ("stopped", "failed", "draining") and self.state not in but:
            raise EngineUnavailable(str(self._failure) if self._failure else f"the engine is {self.state}")

    def _take(self, terms: Terms, exchange: Exchange) -> None:
        if exchange.state != "new":
            return
        self._require_open()
        terms.observer.entered(exchange)
        if exchange.state != "new":  # its key has ended
            return
        self._live[exchange.id] = exchange
        self._begin_timers(terms, exchange)
        if self.mode == "per-request":
            self._admit()
        elif self._engine is not None and self.state == "ready":
            self._engine.submit(exchange)

    def _take_prefix(self, terms: Terms, exchange: Exchange) -> None:
        if (before := self._prefixes.get(exchange.client)) is not None:
            before.cancel()
        self._take(terms, exchange)
        if exchange.state != "done":
            self._prefixes[exchange.client] = exchange

    def _admit(self) -> None:
        """Begins what there is room for; next is the oldest request of the client whose turn it is."""
        waiting = [one for one in self._live.values() if one.state == "new" and one.id not in self._alone]
        if not waiting:
            self._turns.clear()
        while waiting and len(self._alone) < self._max_engines:
            running = Counter(self._alone.values())
            exchange = min(waiting, key=lambda one: (running[one.client], self._turns.get(one.client, 0)))
            waiting.remove(exchange)
            self._begin_alone(exchange)

    def _begin_alone(self, exchange: Exchange) -> None:
        self._turns[exchange.client] = max(self._turns.values(), default=0) + 1
        self._alone[exchange.id] = exchange.client
        task = self._spawn(self._serve_alone(exchange), f"request {exchange.id}")
        exchange.ending.add_done_callback(lambda _: task.cancel() if exchange.engine is None else None)
        task.add_done_callback(lambda _: self._leave(exchange))

    def _leave(self, exchange: Exchange) -> None:
        del self._alone[exchange.id]
        self._admit()

    def _begin_timers(self, terms: Terms, exchange: Exchange) -> None:
        loop, limits = asyncio.get_running_loop(), terms.limits
        if exchange.timeout:
            limits += (TimeLimit(loop.time() + exchange.timeout, f"{exchange.timeout:g} s (timeout)"),)
        self._timers[exchange.id] = [loop.call_at(one.at, self._end_late, exchange, one) for one in limits]

    def _end_late(self, exchange: Exchange, limit: TimeLimit) -> None:
        """What has been generated stays with the client; half of anything else is of no use."""
        if exchange.waits:
            exchange.fail("timed_out", f"nothing of it had begun after {limit.name}")
        elif exchange.n and not limit.only_waiting:
            exchange.expire()
        elif not limit.only_waiting:
            exchange.fail("timed_out", f"it was not done after {limit.name}")

    def _forget(self, terms: Terms, exchange: Exchange) -> None:
        self._live.pop(exchange.id, None)
        for timer in self._timers.pop(exchange.id, ()):
            timer.cancel()
        if self._prefixes.get(exchange.client) is exchange:
            del self._prefixes[exchange.client]
        terms.observer.over(exchange)
        self._changes()

    # Engines

    @contextlib.asynccontextmanager
    async def _new_engine(self) -> AsyncIterator[Engine]:
        """An engine that starts, and is ended when the block is left."""
        engine = Engine(self.settings, self._changes)
        self._engines.add(engine)
        self.on_engine_start()
        try:
            async with engine:
                yield engine
        finally:
            self._engines.discard(engine)
            if self._engine is engine:
                self._engine, self._serving = None, False
                self._first_steps.ended(engine.program, engine.first_step_signal, works=engine.stepped)
                self._changes()
            elif self._failure is not None:
                self._refuse_waiting(self._failure)
            elif self._engine is not None and self.state == "ready":
                self._submit_waiting(self._engine)  # what had only waited in this one

    async def _serve_alone(self, exchange: Exchange) -> None:
        """An engine for one request; if that ends before it was sent, this task is cancelled."""
        try:
            async with self._new_engine() as engine:
                self.ready = await engine.loaded()
                engine.submit(exchange)
                await asyncio.wait({exchange.ending})
        except EngineError as error:
            exchange.fail("engine_died", str(error))
        except Exception as error:
            log.exception("request %s", exchange.id)
            exchange.fail("internal_error", str(error))

    async def _reside(self) -> None:
        """Keeps one engine running: crash, pause, start again; pauses double until an engine has stayed."""
        delay = self.settings.restart_delay
        while self._is_resident:  # another one may have loaded in the pause
            lived = 0.0
            try:
                lived = await self._serve_all()
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
            if lived >= self.settings.stable_after:
                delay = self.settings.restart_delay
            log.warning("the engine starts again in %.1f s", delay)
            await asyncio.sleep(delay)
            delay = min(2 * delay, self.settings.restart_delay_max)

    @property
    def _is_resident(self) -> bool:
        """Whether the task at hand has no successor."""
        return asyncio.current_task() is self._resident

    async def _succeed(self, loaded: asyncio.Future[EngineError | None]) -> None:
        """An engine's life that begins beside another one; once it has loaded, this is the resident."""
        try:
            async with self._new_engine() as engine:
                ready = await engine.loaded()
                if self._failure is not None and not await self._survives_proof(engine):
                    raise EngineError(engine.obituary)
                self._require_open(but=("failed",))
                self._take_over(engine, ready)
                loaded.set_result(None)
                await engine.ended()
        except EngineError as error:
            loaded.set_result(error)
        if self._is_resident:
            await self._reside()

    def _take_over(self, engine: Engine, ready: Ready) -> None:
        """The task at hand owns the resident engine now; the one before ends with its last request."""
        old, self._first_steps, self._failure = self._engine, FirstSteps(), None
        self._resident = asyncio.current_task()
        self._hand_over(engine, ready)
        if old is not None:
            self._spawn(self._retire(old), f"engine {old.pid} retires")

    async def _serve_all(self) -> float:
        """One engine's life, serving all that is here and all that comes; the seconds that it was ready."""
        async with self._new_engine() as engine:
            if not self._is_resident:  # another one has taken over while the process began
                return 0.0
            self._engine, first_steps, loop = engine, self._first_steps, asyncio.get_running_loop()
            ready, ready_at = await engine.loaded(), loop.time()
            if first_steps.in_doubt(engine.program) and await self._survives_proof(engine):
                first_steps.proved()
            if self._is_resident and engine.state == "ready":
                self._hand_over(engine, ready)
            await engine.ended()
            return loop.time() - ready_at

    def _hand_over(self, engine: Engine, ready: Ready) -> None:
        """From now on this one gets what comes, and what waits."""
        self._engine, self.ready, self._serving = engine, ready, True
        self._submit_waiting(engine)
        self._changes()

    def _submit_waiting(self, engine: Engine) -> None:
        for exchange in [x for x in self._live.values() if x.state == "new"]:
            engine.submit(exchange)

    async def _survives_proof(self, engine: Engine) -> bool:
        """Whether it lives through requests of our own. That it may refuse them is no reason against it."""
        log.warning("engine %d: gets requests of the server's own first", engine.pid)
        assert engine.ready is not None
        for op, arguments in proof(only_embeds=bool(engine.ready.embedding.get("only"))):
            id = new_id()
            async with Exchange(id, encode(op, id, **arguments), on_enter=engine.submit) as exchange:
                await asyncio.wait({exchange.ending})
        return engine.state == "ready"

    def _give_up(self, failure: EngineError) -> None:
        """No pause will mend that: the first engine did not load, or each one dies in its first step."""
        log.error("%s", failure)
        if self.ready is None:  # nothing is here that could go on
            self._running = False
            self._cancel_residents()
        self._failure = failure
        self._refuse_waiting(failure)
        self._changes()

    def _refuse_waiting(self, failure: EngineError) -> None:
        for exchange in [x for x in self._live.values() if x.state == "new"]:
            exchange.fail("unavailable", str(failure))
