"""Models are loaded and unloaded for callers, who may watch how far that is."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Awaitable, Iterator

from llama_srb.background import begin
from llama_srb.dialects import llamacpp
from llama_srb.engine.exchange import EngineError, EngineUnavailable
from llama_srb.models.residency import ModelBusy, ModelRemoved
from llama_srb.request.values import RequestError
from llama_srb.serving.keys.caller import Caller
from llama_srb.serving.model_facts import ModelFacts
from llama_srb.serving.model_registry import ModelRegistry

MAX_EVENTS = 1000  # that wait for a slow reader, who then gets no more


class ModelLoads:
    """What callers ask of models' loads, whatever the path."""

    def __init__(self, registry: ModelRegistry) -> None:
        self._registry, self._residency = registry, registry.residency
        self._watches: set[ModelEvents] = set()

    def to_load(self, name: str, caller: Caller) -> ModelFacts:
        """The model of this name; RequestError if there is none. An adapter is loaded with its model."""
        return self._registry.named(name, caller).facts

    def to_unload(self, name: str, caller: Caller) -> ModelFacts:
        """The model of this name; RequestError if there is none, or if it is an adapter or a task."""
        context = self._registry.named(name, caller)
        if context.adapter is not None or context.task is not None:
            what = "an adapter" if context.task is None else "a task"
            message = f"{name} is {what} of {context.facts.name}, and leaves with it: name the model"
            raise RequestError(message, param="model")
        return context.facts

    def is_loaded(self, facts: ModelFacts) -> bool:
        """Whether it is loaded, or will be soon."""
        return self._registry.state_of(facts) in ("loaded", "loading")

    async def load(self, facts: ModelFacts) -> None:
        """Waits until a model is loaded; EngineUnavailable."""
        if (error := await _outcome(self._until_loaded(facts))) is not None:
            raise EngineUnavailable(error)

    def begin_load(self, facts: ModelFacts) -> asyncio.Task[str | None]:
        """Its result is the reason if the load has failed."""
        return begin(_outcome(self._until_loaded(facts)), f"load of {facts.name}")

    async def unload(self, *models: ModelFacts) -> None:
        """Waits until models are unloaded; ModelBusy, before any is, if one has requests."""
        for facts in models:
            self._residency.require_idle(facts.served)
        for facts in models:
            await self._residency.unload(facts.served)

    def begin_unload(self, facts: ModelFacts) -> None:
        """ModelBusy if the model has requests."""
        self._residency.require_idle(facts.served)
        begin(_outcome(self._residency.unload(facts.served)), f"unload of {facts.name}")

    async def progress_of(self, facts: ModelFacts, pause: float) -> AsyncGenerator[float | None]:
        """Loads a model; yields the progress when it has changed, None after a pause without a change.

        EngineUnavailable if it cannot be loaded. pause: seconds.
        """
        load, told = self.begin_load(facts), 0.0
        try:
            while not load.done():
                change = begin(facts.pool.change.wait(), "change")
                done, _ = await asyncio.wait(
                    {load, change}, timeout=pause, return_when=asyncio.FIRST_COMPLETED
                )
                change.cancel()
                if not done:
                    yield None
                elif (progress := _rounded(facts.pool.progress)) != told:
                    yield progress
                    told = progress
            if (error := load.result()) is not None:
                raise EngineUnavailable(error)
        finally:
            load.cancel()
            await asyncio.wait({load})

    @contextlib.contextmanager
    def watched(self, caller: Caller) -> Iterator[ModelEvents]:
        """Events about the models that a caller may use; they end with its key, and with the server."""
        events = ModelEvents(self._registry, caller)
        self._watches.add(events)
        self._residency.listeners.append(events.notice)
        if caller.session is not None:
            caller.session.add(events, lambda refusal: events.end())
        try:
            yield events
        finally:
            self._watches.discard(events)
            self._residency.listeners.remove(events.notice)
            if caller.session is not None:
                caller.session.discard(events)

    def end_watches(self) -> None:
        for events in list(self._watches):
            events.end()

    async def _until_loaded(self, facts: ModelFacts) -> None:
        """Waits until a model is loaded; if a reload replaces it, until the one with its name is."""
        try:
            await self._residency.load(facts.served)
        except ModelRemoved:
            found = self._registry.names.find(facts.name)
            if found is None or found.model is facts:
                raise
            await self._until_loaded(found.model)


class ModelEvents:
    """The events of one reader, about the models that it may use."""

    def __init__(self, registry: ModelRegistry, caller: Caller) -> None:
        self._registry, self._caller = registry, caller
        self._seen = self._look()
        self._events: asyncio.Queue[llamacpp.ModelEvent | None] = asyncio.Queue()

    def notice(self) -> None:
        """Adds the events since the last call. A reader that is too slow gets no more."""
        before, self._seen = self._seen, self._look()
        for event in llamacpp.changes(before, self._seen):
            self._events.put_nowait(event)
        if self._events.qsize() > MAX_EVENTS:
            self.end()

    def end(self) -> None:
        """Ends the stream after the events so far."""
        self._events.put_nowait(None)

    async def until_end(self, pause: float) -> AsyncGenerator[llamacpp.ModelEvent | None]:
        """The events; None after `pause` seconds without one."""
        while True:
            try:
                async with asyncio.timeout(pause):
                    event = await self._events.get()
            except TimeoutError:
                yield None
            else:
                if event is None:
                    return
                yield event

    def _look(self) -> dict[str, llamacpp.Seen]:
        return {facts.name: self._seen_of(facts) for facts in self._registry.allowed(self._caller.now)}

    def _seen_of(self, facts: ModelFacts) -> llamacpp.Seen:
        state = self._registry.state_of(facts)
        progress = _rounded(facts.pool.progress) if state == "loading" else 0.0
        return llamacpp.Seen(state, progress, facts.failure if state == "failed" else "")


async def _outcome(work: Awaitable[None]) -> str | None:
    """The reason if a load or an unload has failed."""
    try:
        await work
    except (EngineError, ModelBusy) as error:
        return str(error)
    return None


def _rounded(progress: float) -> float:
    return round(progress, 2)
