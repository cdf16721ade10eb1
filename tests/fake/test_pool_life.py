"""Random histories of a pool: a crash, SIGHUP, stop, start or request between any two loop iterations.

Hypothesis controls the simulated operating system (played.py) and the pool's users. The invariants are
checked after each iteration. At the end everything behaves well: each request ends, and a new one is served.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import sys
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from llama_srb.engine.events import Done, Error, Event
from llama_srb.engine.exchange import EngineError, EngineUnavailable
from llama_srb.engine.pool import Mode, Pool
from llama_srb.engine.pool.resident import Resident
from llama_srb.engine.process import Engine
from llama_srb.engine.settings import EngineSettings
from llama_srb.request.parse import request_from
from tests.fake.played import Process, World

SETTINGS = EngineSettings(
    (sys.executable,), "played", load_timeout=20, step_timeout=8, stop_grace=1, restart_delay=0.5,
    restart_delay_max=2,
)  # fmt: skip
REQUEST = request_from({"prompt": "x", "n": 1})
MOST_ENGINES = 2  # in per-request mode
MOST = 4  # open requests, and renewals, at once
PATIENCE = 100  # seconds of simulated time; more than all timeouts above together

which = st.integers(0, 7)
T = TypeVar("T")


def pick(all: Iterable[T], number: int) -> T:
    found = list(all)
    return found[number % len(found)]


class Client:
    """One request, from its arrival to its last event."""

    def __init__(self, pool: Pool, world: World) -> None:
        self.pool = pool
        self.id = ""
        self.events: list[Event] = []
        self.task = world.create_task(self._ask())

    async def _ask(self) -> None:
        try:
            async with self.pool.generate(REQUEST) as generation:
                self.id = generation.id
                async for events in generation:
                    self.events += events
        except EngineUnavailable:
            return
        assert isinstance(self.events[-1], Done | Error)


class Faults(logging.Handler):
    """Collects log lines about internal errors."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info:
            self.found.append(f"{record.getMessage()}: {record.exc_info[1]!r}")


class Life(RuleBasedStateMachine):
    mode: Mode = "resident"

    def __init__(self) -> None:
        super().__init__()
        self.world = World()
        self.killpg, os.killpg = os.killpg, self.world.killpg
        self.log = Faults()
        logging.getLogger("llama_srb").addHandler(self.log)
        self.pool = Pool(SETTINGS, mode=self.mode, max_engines=MOST_ENGINES)
        self.clients: list[Client] = []
        self.probe: Client | None = None  # the request at the end
        self.host, self.leaving = self.pool.host, set[asyncio.Task[None]]()
        self.held_back: set[str] = set()  # requests that have waited since the pool is held
        self.renewals: list[asyncio.Task[None]] = []
        self.stops: list[asyncio.Task[None]] = []
        self.unloads: list[asyncio.Task[None]] = []
        self.hurried: set[asyncio.Task[None]] = set()
        self.start(True)

    # Users of the pool

    @precondition(lambda self: self.pool.state == "stopped" and not self.stops)
    @rule(load=st.booleans())
    def start(self, load: bool) -> None:
        self.world.run_until_complete(self.pool.start(load=load))

    @precondition(lambda self: self.pool.state == "unloaded")
    @rule()
    def load_pool(self) -> None:
        self._in_loop(self.pool.hosting.load)

    @precondition(lambda self: not self.pool.requests.running)
    @rule()
    def unload(self) -> None:
        async def unload() -> None:
            if not self.pool.requests.running:
                await self.pool.hosting.unload()

        self._begin(unload(), self.unloads)

    @precondition(lambda self: self.unloads)
    @rule(number=which)
    def cancel_unload(self, number: int) -> None:
        pick(self.unloads, number).cancel()

    @precondition(lambda self: self.pool.state in ("loading", "ready"))
    @rule()
    def hold(self) -> None:
        self.pool.hosting.hold()

    @rule()
    def release(self) -> None:
        self._in_loop(self.pool.hosting.release)

    def _in_loop(self, do: Callable[[], None]) -> None:
        """Calls a function that begins tasks."""

        async def call() -> None:
            do()

        self.world.run_until_complete(call())

    @precondition(lambda self: len(self.open) < MOST)
    @rule()
    def arrive(self) -> None:
        self.clients.append(Client(self.pool, self.world))

    @precondition(lambda self: self.open)
    @rule(number=which)
    def leave(self, number: int) -> None:
        pick(self.open, number).task.cancel()

    @precondition(lambda self: self.open)
    @rule(number=which)
    def cancel(self, number: int) -> None:
        self.pool.requests.cancel(pick(self.open, number).id)

    @precondition(lambda self: len(self.renewals) < MOST)
    @rule()
    def renew(self) -> None:
        async def renew() -> None:
            with contextlib.suppress(EngineError):
                await self.pool.renew()

        self._begin(renew(), self.renewals)

    @precondition(lambda self: self.renewals)
    @rule(number=which)
    def cancel_renewal(self, number: int) -> None:
        self._hurry(pick(self.renewals, number))

    @rule(grace=st.sampled_from([0, 0, 3]))
    def stop(self, grace: float) -> None:
        self._begin(self.pool.stop(grace), self.stops)

    @precondition(lambda self: self.stops)
    @rule(number=which)
    def hurry_stop(self, number: int) -> None:
        self._hurry(pick(self.stops, number))

    def _hurry(self, task: asyncio.Task[None]) -> None:
        """Once only: a second cancel would end stop's wait for the processes that it kills."""
        if task not in self.hurried:
            self.hurried.add(task)
            task.cancel()

    def _begin(self, work: Any, tasks: list[asyncio.Task[None]]) -> None:
        task = self.world.create_task(work)
        tasks.append(task)
        task.add_done_callback(tasks.remove)

    @property
    def open(self) -> list[Client]:
        return [client for client in self.clients if not client.task.done()]

    # Time

    @rule(n=st.integers(1, 6))
    def turn(self, n: int) -> None:
        for _ in range(n):
            self.world.turn()
            self.holds()

    @rule()
    def rest(self) -> None:
        self.world.rest(self.holds)

    @rule(seconds=st.sampled_from([0.1, 0.5, 1, 2, 8, 20]))
    def wait(self, seconds: float) -> None:
        self.world.advance(seconds)

    # Engines

    def loading(self) -> list[Process]:
        return [one for one in self.world.alive if not one.is_ready and not one.hangs]

    def ready(self) -> list[Process]:
        return [one for one in self.world.alive if one.is_ready and not one.hangs]

    def busy(self) -> list[Process]:
        return [one for one in self.ready() if one.open]

    @precondition(lambda self: self.loading())
    @rule(number=which)
    def load(self, number: int) -> None:
        pick(self.loading(), number).load()

    @precondition(lambda self: self.loading())
    @rule(number=which)
    def refuse_to_load(self, number: int) -> None:
        pick(self.loading(), number).end(3)

    @precondition(lambda self: self.ready())
    @rule(number=which, queued=st.booleans())
    def obey(self, number: int, queued: bool) -> None:
        pick(self.ready(), number).obey(queued)

    @precondition(lambda self: self.ready())
    @rule(number=which)
    def lose(self, number: int) -> None:
        pick(self.ready(), number).lose()

    @precondition(lambda self: self.busy())
    @rule(number=which)
    def step(self, number: int) -> None:
        process = pick(self.busy(), number)
        process.step(pick(process.open, number))

    @precondition(lambda self: self.busy())
    @rule(number=which)
    def finish(self, number: int) -> None:
        process = pick(self.busy(), number)
        process.finish(pick(process.open, number))

    @precondition(lambda self: self.world.alive)
    @rule(number=which, by=st.sampled_from([signal.SIGKILL, signal.SIGILL]))
    def crash(self, number: int, by: int) -> None:
        pick(self.world.alive, number).end(-by)

    @precondition(lambda self: self.world.alive)
    @rule(number=which)
    def hang(self, number: int) -> None:
        pick(self.world.alive, number).hangs = True

    @precondition(lambda self: self.world.alive)
    @rule(number=which)
    def write_rubbish(self, number: int) -> None:
        pick(self.world.alive, number).write(b"llama_decode: failed\n")

    @rule(there=st.booleans())
    def replace_program(self, there: bool) -> None:
        self.world.spawns = there

    # Invariants

    @invariant()
    def holds(self) -> None:
        self._one_resident()
        assert not self.log.found
        assert not self.world.faults
        for client in self.clients:
            if client.task.done() and not client.task.cancelled():
                client.task.result()
        if self.world.rests and self.pool.state == "ready" and self._serves_all:
            waiting = [one.id for one in self.pool.requests.waiting]
            assert not waiting, "an engine is ready, and they wait for one"
        if self.pool.state in ("stopped", "unloaded") and not self.pool.engines.tasks and self.world.rests:
            assert not self.world.alive, "the pool has stopped or unloaded, and an engine has not"
        self._no_engine_gets_a_request_that_waits()

    @property
    def _serves_all(self) -> bool:
        return self.mode == "resident" and not self.pool.requests.held

    def _no_engine_gets_a_request_that_waits(self) -> None:
        """While the pool is held or unloaded. Waiting and running requests together are all."""
        requests = self.pool.requests
        waiting, running = requests.waiting, requests.running
        assert len(waiting) + len(running) == len(requests)
        if self.pool.state == "unloaded":
            assert not running, "they run, and the pool is unloaded"
        if not requests.held:
            self.held_back = set()
            return
        self.held_back = (self.held_back | {one.id for one in waiting}) & {
            one.id for one in waiting + running
        }
        assert not self.held_back & {one.id for one in running}, "the pool is held, and a request has begun"

    def _one_resident(self) -> None:
        """Other engines are predecessors, which end with their last request, and one for each renewal."""
        processes, host = self.pool.engines.processes, self.pool.host
        if host is not self.host:  # a load or an unload; the engines of the host before it are ending
            self.host, self.leaving = host, set(self.pool.engines.tasks)
        n_leaving = sum(not task.done() for task in self.leaving)
        if self.mode == "per-request":
            assert len(processes) <= MOST_ENGINES + n_leaving
            return
        living = [one for one in processes if one.pid and one.state in ("loading", "ready")]
        assert isinstance(host, Resident)
        others = [one for one in living if one is not host.engine and one not in host.retiring]
        assert len(others) <= len(self.renewals) + n_leaving, (
            "more engines than a resident and its successors"
        )

    # The end

    def teardown(self) -> None:
        try:
            if sys.exc_info()[0] is None:  # otherwise a rule has failed
                self._end_well()
        finally:
            self.world.end()
            logging.getLogger("llama_srb").removeHandler(self.log)
            os.killpg = self.killpg

    def _end_well(self) -> None:
        self.world.spawns = True
        self._until(self._nothing_is_open, "a request, a renewal or an unload hangs")
        self._until(self._serves, "no request is served any more")
        stays = int(self.mode == "resident")
        self._until(lambda: len(self.world.alive) == stays, "engines are left")
        self._begin(self.pool.stop(), self.stops)
        self._until(lambda: not self.stops, "the stop hangs")
        assert self.pool.state == "stopped"
        assert not self.world.alive

    def _nothing_is_open(self) -> bool:
        self._in_loop(self.pool.hosting.release)
        self._in_loop(self.pool.hosting.load)
        return not (self.open or self.renewals or self.stops or self.unloads)

    def _serves(self) -> bool:
        if self.pool.state == "stopped":  # its first engine has failed to load
            self.start(True)
        self._in_loop(self.pool.hosting.load)
        if self.pool.state == "failed" and not self.renewals:
            self.renew()
        if self.probe is not None and self.probe.task.done():
            if self.probe.events and isinstance(self.probe.events[-1], Done):
                return True
            self.probe = None
        if self.probe is None:
            self.probe = Client(self.pool, self.world)
            self.clients.append(self.probe)
        return False

    def _until(self, condition: Any, otherwise: str) -> None:
        """Lets processes behave well until the condition holds."""
        deadline = self.world.now + PATIENCE
        while not condition():
            assert self.world.now < deadline, otherwise
            for process in self.world.alive:
                process.behave()
            self.world.rest(self.holds)
            self.world.advance(0.5)
            self.world.rest(self.holds)
        self.holds()


class LifePerRequest(Life):
    mode = "per-request"


def played(machine: type[Life], examples: int) -> Any:
    """300 examples take about 8 seconds; LIFE=20 in the environment is twenty times as many.

    Failing examples are shrunk only if LIFE is set (LIFE=1, too): that takes a minute or two.
    """
    shrink = [Phase.shrink] if "LIFE" in os.environ else []
    test = machine.TestCase
    test.settings = settings(
        max_examples=examples * int(os.environ.get("LIFE", "1")),
        stateful_step_count=40,
        deadline=None,
        derandomize=True,
        phases=[Phase.generate, *shrink],
        suppress_health_check=list(HealthCheck),
    )
    return test


TestLife = played(Life, 300)
TestLifePerRequest = played(LifePerRequest, 100)


@pytest.mark.parametrize("turns", range(6))
def test_a_spawn_that_is_cancelled_twice_leaves_no_process(
    turns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World()
    monkeypatch.setattr(os, "killpg", world.killpg)

    async def start() -> None:
        async with Engine(SETTINGS):
            raise AssertionError("it is cancelled before it has started")

    try:
        task = world.create_task(start())
        world.turn()
        for _ in range(2):
            task.cancel()
            for _ in range(turns):
                world.turn()
        world.rest()
        assert task.cancelled()
        assert not world.alive
    finally:
        world.end()
