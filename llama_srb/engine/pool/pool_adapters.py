"""The LoRA adapters of a pool's engines by name. They are loaded and unloaded while an engine runs.

An id is given once in the life of a pool, so nothing that was computed with one adapter is used for another.
Each later engine of the pool starts with the same adapters under the same ids.
"""

from __future__ import annotations

import asyncio
import contextlib
import difflib
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from llama_srb.engine.events import Ready
from llama_srb.engine.exchange import EngineError
from llama_srb.engine.pool.engines import Change, Engines
from llama_srb.request.fields import CompletionRequest
from llama_srb.request.values import RequestError

log = logging.getLogger("llama_srb.pool")  # this name is documented

Command: TypeAlias = Callable[..., Awaitable[Mapping[str, Any]]]
MAX_SHOWN = 100  # characters of a client's name in a message


class NameTaken(Exception):
    """An adapter with this name is loaded."""


@dataclass(frozen=True, slots=True)
class Adapter:
    """A loaded adapter. scale: for requests without `lora`."""

    id: int
    name: str
    path: str
    scale: float


class Adapters:
    """The adapters of a pool: those of the engine's command line, and those that were loaded since."""

    def __init__(self, engines: Engines, change: Change, command: Command, *, one_engine: bool) -> None:
        self.lock = asyncio.Lock()  # held while the list changes, and while an engine loads beside another
        self._engines = engines
        self._command = command  # asks an engine
        self._one_engine = one_engine  # it serves all requests, and is told what changes
        self._names = dict(enumerate(engines.settings.adapters))  # by id; others have their file's
        self._loaded: tuple[Adapter, ...] | None = None  # None: no engine has been ready
        self._first_id = self._next_id = len(self._names)  # of one that is loaded later
        self._noted: Ready | None = None  # of the last engine whose list was taken
        change.listeners.append(self._note_ready)

    @property
    def loaded(self) -> tuple[Adapter, ...]:
        """By id; empty until an engine has been ready."""
        return self._loaded or ()

    @property
    def switched_on(self) -> tuple[Adapter, ...]:
        """Those that were loaded while the server runs, for requests without `lora`."""
        return tuple(one for one in self.loaded if one.scale and one.id >= self._first_id)

    @property
    def ids(self) -> Mapping[str, int]:
        """The ids by name. Of two adapters with one name the later one has it."""
        if self._loaded is None:
            return {name: id for id, name in self._names.items()}
        return {one.name: one.id for one in self._loaded}

    @property
    def given(self) -> Mapping[str, int]:
        """The same without adapters that have only their file's name."""
        return {name: id for name, id in self.ids.items() if id in self._names}

    def id_of(self, which: int | str) -> int:
        """An id as it is, or that of a name; RequestError with the nearest name for an unknown one."""
        if isinstance(which, int):
            return which
        ids = self.ids
        if which not in ids:
            near = difflib.get_close_matches(which[:MAX_SHOWN], ids, 1, cutoff=0.0)
            hint = f"did you mean {near[0]}?" if near else "no adapter is loaded"
            message = f"lora.name is {which[:MAX_SHOWN]!r}, which is no adapter here; {hint}"
            raise RequestError(message, param="lora")
        return ids[which]

    def named(self, request: CompletionRequest) -> CompletionRequest:
        """The request with ids in place of names."""
        if request.lora is None:
            return request
        scales = tuple((self.id_of(which), scale) for which, scale in request.lora)
        return request.model_copy(update={"lora": scales})

    async def load(self, name: str, path: Path, *, scale: float = 0.0, replaces: bool = False) -> Adapter:
        """Loads an adapter, which may replace the one with its name; CommandRefused with the reason."""
        async with self.lock:
            await self._known()
            if (old := self.ids.get(name)) is not None and not replaces:
                raise NameTaken(name)
            id, self._next_id = self._next_id, self._next_id + 1
            answer = await self._command(
                "load_adapter", adapter={"id": id, "path": str(path), "scale": scale}
            )
            self._names[id] = name
            self._take(answer["adapters"])
            self._give_to_later_engines()
            log.info("adapter %d: loaded %s from %s", id, name, path)
            if old is not None:
                await self._unload(old)
            return next(one for one in self.loaded if one.id == id)

    async def unload(self, name: str) -> None:
        """From now on no request gets this adapter; those that have it keep it. KeyError if there is none."""
        async with self.lock:
            await self._known()
            await self._unload(self.ids[name])

    async def _known(self) -> None:
        """Waits for the first engine: its list shows which adapters there are and which ids are taken."""
        if self._loaded is None:
            await self._command("status")

    async def _unload(self, id: int) -> None:
        self._loaded = tuple(one for one in self.loaded if one.id != id)
        self._names.pop(id, None)
        self._give_to_later_engines()
        log.info("adapter %d: unloaded", id)
        if self._one_engine and self._engines.processes:
            with contextlib.suppress(EngineError):  # it may be an engine that started without the adapter
                await self._command("unload_adapter", adapter=id)

    # The engines' lists

    def _note_ready(self) -> None:
        """Takes the list of each engine that was started with the latest one."""
        for engine in self._engines.processes:
            ready = engine.ready
            if ready is None or ready is self._noted or engine.settings != self._engines.current:
                continue
            self._noted = ready
            self._take(ready.adapters)

    def _take(self, listed: Iterable[Mapping[str, Any]]) -> None:
        self._loaded = tuple(
            Adapter(one["id"], self._names.get(one["id"], Path(one["path"]).stem), one["path"], one["scale"])
            for one in listed
        )
        self._next_id = max([self._next_id, *(one.id + 1 for one in self._loaded)])

    def _give_to_later_engines(self) -> None:
        listed = [f"{one.id}:{one.scale:.9g}:{one.path}" for one in self.loaded] or ["none"]
        self._engines.flags = tuple(word for one in listed for word in ("--adapter", one))
