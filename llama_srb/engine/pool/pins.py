"""Prompts whose cells stay in an engine while it lives: each new one computes them before it serves."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from weakref import WeakKeyDictionary

from llama_srb.engine.commands import encode, encode_pin
from llama_srb.engine.events import Done, Error, Event
from llama_srb.engine.exchange import EngineError, Exchange, new_id
from llama_srb.engine.pool.pool_adapters import Adapters
from llama_srb.engine.process import Engine
from llama_srb.request.fields import CompletionRequest
from llama_srb.request.values import RequestError

log = logging.getLogger("llama_srb.pool")  # this name is documented


class PinRefused(EngineError):
    """The engine refused a pin; the message has its name and the reason."""


class Pins:
    """The pins of a pool, by name. The mode per-request has none: its engines end with their requests."""

    def __init__(self, adapters: Adapters) -> None:
        self._adapters = adapters
        self._wanted: Mapping[str, CompletionRequest] = {}
        self._computed: WeakKeyDictionary[Engine, dict[str, CompletionRequest]] = WeakKeyDictionary()
        self._tokens: dict[str, int] = {}
        self._lock = asyncio.Lock()  # held while an engine computes pins

    @property
    def wanted(self) -> Mapping[str, CompletionRequest]:
        """The requests whose prompts are pinned."""
        return self._wanted

    @property
    def tokens(self) -> Mapping[str, int]:
        """The length of each pinned prompt, as the last engine that computed it has counted."""
        return {name: n for name, n in self._tokens.items() if name in self._wanted}

    def room(self, context: int, cells: int, begins: CompletionRequest | None = None) -> int:
        """Tokens that a request may have beside the pins, of which it shares the cells of one at most.

        context: of one sequence; cells: of the engine; begins: the request of the pin whose cells it shares.
        Pins may share cells, so it may have a few more.
        """
        shared = next((n for name, n in self.tokens.items() if self._wanted[name] == begins), 0)
        return min(context, cells - sum(self.tokens.values()) + shared)

    def set(self, wanted: Mapping[str, CompletionRequest]) -> None:
        """Engines that start from now on pin these requests' prompts, and no others."""
        known = self._wanted
        self._wanted = {
            name: known[name] if known.get(name) == request else request for name, request in wanted.items()
        }

    async def take(self, wanted: Mapping[str, CompletionRequest]) -> None:
        """All engines pin these, and no others; PinRefused if one has no room: then all is as before."""
        async with self._lock:
            before = self._wanted
            self.set(wanted)
            try:
                await self._compute_in_all()
            except PinRefused:
                self._wanted = before
                await self._compute_in_all()
                raise

    async def compute(self, engine: Engine) -> None:
        """Gives an engine the pins that it lacks; EngineError if it refuses one or dies."""
        async with self._lock:
            await self._compute(engine)

    async def _compute_in_all(self) -> None:
        for engine in [engine for engine in self._computed if engine.state == "ready"]:
            try:
                await self._compute(engine)
            except PinRefused:
                raise
            except EngineError:
                log.debug(
                    "engine %d: died while it computed pins; the next one will compute them", engine.pid
                )

    async def _compute(self, engine: Engine) -> None:
        computed = self._computed.setdefault(engine, {})
        for name in [name for name, one in computed.items() if self._wanted.get(name) is not one]:
            del computed[name]
            id = new_id()
            await _run(Exchange(id, encode("unpin", id, name=name), on_enter=engine.submit))
        for name, request in self._wanted.items():
            if name in computed:
                continue
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


async def _run(exchange: Exchange) -> Event:
    """The last event of a command of the server's own."""
    async with exchange:
        await asyncio.wait({exchange.ending})
    assert exchange.last is not None
    return exchange.last
