"""Commands that each new engine gets before its first request: prompts that stay as idle prefixes."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Iterable, Mapping
from typing import Any

from llama_srb.engine.commands import encode
from llama_srb.engine.events import Done, Error
from llama_srb.engine.exchange import EngineError, EngineUnavailable, Exchange, new_id
from llama_srb.engine.process import Engine

log = logging.getLogger("llama_srb.pool")  # this name is documented


async def warm_up(engine: Engine, commands: Iterable[tuple[str, Mapping[str, Any]]]) -> None:
    """Runs the commands, one after the other; EngineError if the engine refuses one.

    An engine that dies of them is noticed by the task that owns it.
    """
    for op, arguments in commands:
        if engine.state != "ready":
            return
        id = new_id()
        exchange = Exchange(id, encode(op, id, **arguments), on_enter=engine.submit)
        with contextlib.suppress(EngineUnavailable):
            await run(exchange)


async def run(exchange: Exchange) -> None:
    """Runs one of the commands. EngineUnavailable: the engine has died; EngineError: it has refused it."""
    async with exchange:
        await asyncio.wait({exchange.ending})
    match exchange.last:
        case Done() as done:
            log.info("warm-up: %d tokens, %d of them cached", done.prompt_tokens, done.cached_tokens)
        case Error(code="engine_died", message=message):
            raise EngineUnavailable(message)
        case Error(message=message):
            raise EngineError(f"the prompt of the warm-up (--prompt) is refused: {message}")
