"""Which engine serves a request: one for all (resident), or one for each (per-request).

A pool knows engines and requests, not HTTP. Both modes run the same engine in the same `async with`; they
differ in how long the block lasts and in which requests share it. A crashed resident engine is restarted.
"""

from __future__ import annotations

import asyncio
import logging
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from types import TracebackType
from typing import Any, Literal, Self, TypeAlias

from llama_srb import bundled
from llama_srb.engine.codec import UNREADABLE, ProtocolError, read_result
from llama_srb.engine.commands import encode, encode_generate, encode_prefix
from llama_srb.engine.events import Error, Ready, Result
from llama_srb.engine.exchange import (
    NOTHING_LOCKED,
    CommandRefused,
    EngineError,
    EngineUnavailable,
    Exchange,
    new_id,
)
from llama_srb.engine.pool.engines import Change, Engines
from llama_srb.engine.pool.hosting import Host, Hosting
from llama_srb.engine.pool.multi import MultiGeneration
from llama_srb.engine.pool.per_request import PerRequest
from llama_srb.engine.pool.pins import Pins
from llama_srb.engine.pool.pool_adapters import Adapters
from llama_srb.engine.pool.requests import Requests
from llama_srb.engine.pool.resident import Resident
from llama_srb.engine.pool.terms import OWN, Terms
from llama_srb.engine.settings import EngineSettings
from llama_srb.request.fields import CompletionRequest

log = logging.getLogger("llama_srb.pool")  # this name is documented

Mode: TypeAlias = Literal["resident", "per-request"]
PoolState: TypeAlias = Literal["stopped", "unloaded", "loading", "ready", "failed", "draining"]


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a pool takes no requests, and until when by the event loop's clock; None if nobody knows."""

    reason: str
    until: float | None = None

    def check(self) -> None:
        """EngineUnavailable, unless its time is over."""
        left = None if self.until is None else self.until - asyncio.get_running_loop().time()
        if left is None or left > 0:
            raise EngineUnavailable(self.reason, retry_after=left)


class Pool:
    """Takes requests and gives each to an engine.

    |              | stopped     | unloaded    | loading       | ready    | failed      | draining    |
    |--------------|-------------|-------------|---------------|----------|-------------|-------------|
    | start()      | loading     | nothing     | nothing       | nothing  | nothing     | nothing     |
    | generate()   | Unavailable | waits       | waits         | runs     | Unavailable | Unavailable |
    | prefix()     | Unavailable | waits       | waits         | runs     | Unavailable | Unavailable |
    | run()        | Unavailable | waits       | waits         | runs     | Unavailable | Unavailable |
    | command()    | Unavailable | waits       | waits         | runs     | Unavailable | Unavailable |
    | wait_ready() | EngineError | Unavailable | waits         | Ready    | Unavailable | Unavailable |
    | renew()      | Unavailable | nothing     | another beside| the same | ready       | Unavailable |
    | load()       | nothing     | loading     | nothing       | nothing  | nothing     | nothing     |
    | unload()     | nothing     | nothing     | unloaded      | unloaded | unloaded    | nothing     |
    | hold()       | nothing     | all wait    | all wait      | new wait | nothing     | nothing     |
    | release()    | nothing     | ends it     | ends it       | all run  | nothing     | nothing     |
    | stop(grace)  | nothing     | draining    | draining      | draining | draining    | ends sooner |

    Unavailable is EngineUnavailable; its message has the reason. load(), unload(), hold() and release() are
    methods of `hosting`; unload() wants that no request runs. While the pool is held new requests wait, and
    the state stays as it is. A pool that is unloaded or failed and has a `refusal` raises that.

    resident: the state is loading until the first engine is ready and has its `pins`, and after each crash.
    If the first load fails, the state is stopped, or unloaded if the pool was started so; the requests that
    wait get the cause, and wait_ready() raises it. It is failed if each engine dies in its first step.
    per-request: the state is ready from start or load() to unload() or stop; engines start for requests.
    """

    def __init__(self, settings: EngineSettings, *, mode: Mode = "resident", max_engines: int = 4) -> None:
        self.mode = mode
        self.change = Change()
        self.engines = Engines(settings, self.change)
        self.requests = Requests(self.change)
        self.refusal: Refusal | None = None  # while it is unloaded or failed, requests get this error
        self.adapters = Adapters(self.engines, self.change, self.command, one_engine=mode == "resident")
        self.pins = Pins(self.adapters)
        self.hosting = Hosting(
            partial(Resident, self.engines, self.requests, self.change, self.pins)
            if mode == "resident"
            else partial(PerRequest, self.engines, self.requests, max_engines),
            self.requests,
            self.change,
        )
        self._running = False
        self._draining = False

    # State

    @property
    def state(self) -> PoolState:
        if not self._running or self.hosting.state == "stopped":
            return "stopped"
        return "draining" if self._draining else self.hosting.state

    @property
    def host(self) -> Host:
        """Serves the requests while the pool is loaded."""
        return self.hosting.host

    @property
    def ready(self) -> Ready | None:
        """The ready event of the last engine that was ready."""
        return self.hosting.ready

    @property
    def failure(self) -> str | None:
        """Why the pool has failed or could not start, and what to do; None if it has not."""
        return None if self.host.failure is None else str(self.host.failure)

    @property
    def progress(self) -> float:
        """The part of the model that is loaded, 0 to 1."""
        return self.hosting.progress

    async def wait_ready(self) -> Ready | None:
        """Waits for the state ready; EngineError if the first load fails. None if no engine was ready yet."""
        while self.state == "loading":
            await self.change.wait()
        if self.state != "ready":
            raise self.host.failure or EngineUnavailable(f"the engine is {self.state}")
        return self.ready

    # Life

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    async def start(self, *, load: bool = True) -> None:
        """Begins to load and returns at once; EngineUnavailable if the engine's program does not exist.

        Without `load` the pool is unloaded: requests wait until hosting.load() is called.
        """
        if self.state != "stopped":
            return
        program = self.engines.settings.command[0]
        if shutil.which(program) is None:
            raise EngineUnavailable(f"no engine at {program}: {bundled.remedy()}")
        self._running, self._draining = True, False
        self.hosting.start(load=load)
        self.change.notify()

    async def renew(self) -> None:
        """Loads a new engine beside the current one; from then on the new one gets all requests.

        The old engine ends after its last request. EngineError if the new one does not load, or if the pool
        has failed and the new one dies of its test requests: then the old one stays, or the failure. An
        unloaded pool needs no new one.
        """
        self._require_open(but=("failed",))
        if self.state != "unloaded":
            async with self.adapters.lock:  # else the new one might lack an adapter that is loaded meanwhile
                await self.host.renew()

    async def stop(self, grace: float = 0.0) -> None:
        """Takes no more requests, waits up to `grace` seconds for the open ones, then ends all engines."""
        self._draining = self.state != "stopped"
        self.hosting.close()
        self.change.notify()
        try:
            async with asyncio.timeout(grace):
                while self.requests:
                    await self.change.wait()
        except TimeoutError:
            log.info("stopping with %d requests open", len(self.requests))
        finally:
            self.requests.fail_all("shutting_down", "the server is shutting down")
            self.host.end()  # also if the first load has failed: a successor may still load
            try:
                await self.engines.end()
            finally:
                self._running = False
                self.change.notify()

    # Requests

    def generate(
        self, request: CompletionRequest, terms: Terms = OWN, *, shows_loading: bool = False
    ) -> Exchange:
        """Generates: `async with pool.generate(r) as g: async for events in g: …`; entering sends it.

        The result has id and cancel(index=None). No list of events is empty; the last event is Done or Error.
        Leaving the block early cancels the request. EngineUnavailable if the pool is stopped or draining.
        """
        id = new_id()
        named = request if request.lora is None else self.adapters.named(request)
        line = encode_generate(id, named, terms.client, terms.priority)
        n, timeout, locked = request.candidates, request.timeout, request.locked
        return self._exchange(id, line, n, terms, timeout=timeout, locked=locked, shows_loading=shows_loading)

    def generate_all(self, requests: list[CompletionRequest], terms: Terms = OWN) -> MultiGeneration:
        """As generate(), for several requests at once; one id names all of them."""
        return MultiGeneration([self.generate(request, terms) for request in requests], self.requests.groups)

    def prefix(self, request: CompletionRequest, terms: Terms = OWN) -> Exchange:
        """Computes a request's prompt; used like generate(), ends with Done or Error.

        It cancels the client's previous prefix if that is not done; that one's `cancelled` is true then.
        """
        id = new_id()
        line = encode_prefix(id, self.adapters.named(request), terms.client, terms.priority)
        return self._exchange(id, line, 0, terms, replaces=True)

    def run(self, op: str, terms: Terms = OWN, **arguments: Any) -> Exchange:
        """Runs any other command that may take long; used like generate(), ends with Done or Error."""
        id = new_id()
        if "lora" in arguments:
            arguments["lora"] = [one | {"id": self.adapters.id_of(one["id"])} for one in arguments["lora"]]
        return self._exchange(id, encode(op, id, terms.client, terms.priority, **arguments), 0, terms)

    async def command(self, op: str, terms: Terms = OWN, **arguments: Any) -> Mapping[str, Any]:
        """Returns the answer to tokenize, status, …; CommandRefused if the engine refuses it or dies."""
        async with self.run(op, terms, **arguments) as exchange:
            async for events in exchange:
                match events[-1]:
                    case Result() as result:
                        return await _data_of(result)
                    case Error() as error:
                        raise CommandRefused(error)
        raise EngineError(f"{op} was cancelled")

    def _exchange(
        self, id: str, line: bytes, n: int, terms: Terms, *, replaces: bool = False,
        timeout: float | None = None, locked: Mapping[str, str] = NOTHING_LOCKED, shows_loading: bool = False,
    ) -> Exchange:  # fmt: skip
        self._require_open()
        return Exchange(
            id,
            line,
            n=n,
            restartable=self.mode == "resident",
            on_enter=partial(self._take, terms, replaces),
            on_done=partial(self.requests.leave, terms),
            on_events=terms.observer.received,
            client=terms.client,
            yields=terms.priority > 0,
            timeout=timeout,
            locked=locked,
            shows_loading=shows_loading,
        )

    def _take(self, terms: Terms, replaces: bool, exchange: Exchange) -> None:
        if exchange.state != "new":
            return
        self._require_open()
        if self.requests.enter(terms, exchange):
            if replaces:
                self.requests.replace_prefix(exchange)
            self.hosting.take(exchange)

    def _require_open(self, but: tuple[PoolState, ...] = ()) -> None:
        if self.state in ("unloaded", "failed") and self.refusal is not None and not but:
            self.refusal.check()
        if self.state in ("stopped", "failed", "draining") and self.state not in but:
            raise EngineUnavailable(self.failure or f"the engine is {self.state}")


async def _data_of(result: Result) -> Mapping[str, Any]:
    """The data of a result; CommandRefused if its line cannot be read."""
    if not result.line:
        return result.data
    try:
        return await asyncio.to_thread(read_result, result.line)
    except ProtocolError as fault:
        log.error("the engine wrote %s: %s", fault, fault.shown)
        raise CommandRefused(Error("engine_error", UNREADABLE, result.id)) from None
