"""Prompts whose cells stay in an engine while it lives: each new one computes them before it serves."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from weakref import WeakKeyDictionary

from llama_srb.engine.commands import encode, encode_pin
from llama_srb.engine.events import Done, Error, Event
from llama_srb.engine.exchange import EngineError, Exchange, new_id
from llama_srb.engine.pool.adapters import Adapters
from llama_srb.engine.pool.engines import Engines
from llama_srb.engine.process import Engine
from llama_srb.request.fields import CompletionRequest
from llama_srb.request.values import RequestError

log = logging.getLogger("llama_srb.pool")  # this name is documented


class PinRefused(EngineError):
    """The engine refused a pin; the message has its name and the reason."""


class Pins:
    """The pins of a pool, by name. The mode per-request has none: its engines end with their requests.

    set() and unset() only note what engines that start later compute. put() and drop() change engines that
    are there, too.
    """

    def __init__(self, engines: Engines, adapters: Adapters) -> None:
        self._engines = engines
        self._adapters = adapters
        self._wanted: dict[str, CompletionRequest] = {}
        self._computed: WeakKeyDictionary[Engine, dict[str, CompletionRequest]] = WeakKeyDictionary()
        self._tokens: dict[str, int] = {}
        self._lock = asyncio.Lock()  # held while an engine computes pins

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._wanted)

    @property
    def tokens(self) -> Mapping[str, int]:
        """The length of each pinned prompt, as the last engine that computed it has counted."""
        return {name: n for name, n in self._tokens.items() if name in self._wanted}

    def room(self, context: int, cells: int) -> int:
        """Tokens that a request may have which begins with none of the pins.

        context: of one sequence; cells: of the engine. Pins may share cells, so it may have a few more.
        """
        return min(context, cells - sum(self.tokens.values()))

    def set(self, name: str, request: CompletionRequest) -> None:
        """Engines that start from now on pin this request's prompt, in place of one of this name."""
        self._wanted[name] = request

    def unset(self, name: str) -> None:
        """Engines that start from now on don't pin it."""
        self._wanted.pop(name, None)

    async def put(self, name: str, request: CompletionRequest) -> None:
        """Pins a prompt in engines that serve, too; PinRefused if one has no room: then it is as before."""
        before = self._wanted.get(name)
        self.set(name, request)
        try:
            for engine in self._serving:
                await self.compute(engine)
        except PinRefused:
            self._wanted.pop(name)
            self._wanted |= {} if before is None else {name: before}
            raise

    async def drop(self, name: str) -> None:
        """Ends a pin in all engines."""
        self.unset(name)
        for engine in self._serving:
            await self.compute(engine)

    async def compute(self, engine: Engine) -> None:
        """Gives an engine the pins that it lacks; EngineError if it refuses one or dies."""
        async with self._lock:
            computed = self._computed.setdefault(engine, {})
            for name in computed.keys() - self._wanted.keys():
                del computed[name]
                id = new_id()
                await _run(Exchange(id, encode("unpin", id, name=name), on_enter=engine.submit))
            while missing := [name for name, one in self._wanted.items() if computed.get(name) is not one]:
                name, request = missing[0], self._wanted[missing[0]]
                done = await self._pin(engine, name, request)
                computed[name], self._tokens[name] = request, done.prompt_tokens
                log.info("engine %d: pinned %s (%d tokens)", engine.pid, name, done.prompt_tokens)

    async def _pin(self, engine: Engine, name: str, request: CompletionRequest) -> Done:
        id = new_id()
        try:
            line = encode_pin(id, name, self._adapters.named(request))
        except RequestError as error:
            raise PinRefused(f"pin {name}: {error}") from None
        last = await _run(Exchange(id, line, on_enter=engine.submit))
        if isinstance(last, Done):
            return last
        if isinstance(last, Error) and last.code != "engine_died":
            raise PinRefused(f"pin {name}: {last.message}")
        raise EngineError(engine.cause_with_log)

    @property
    def _serving(self) -> list[Engine]:
        return [engine for engine in self._computed if engine.state == "ready"]


async def _run(exchange: Exchange) -> Event:
    """The last event of a command of the server's own."""
    async with exchange:
        await asyncio.wait({exchange.ending})
    assert exchange.last is not None
    return exchange.last
