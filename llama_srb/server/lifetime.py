"""The server's life: start, with an error that says what is missing; signals; stop."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from functools import partial
from ssl import SSLContext
from typing import TYPE_CHECKING, Any

from aiohttp import web

from llama_srb import __version__
from llama_srb.background import begin
from llama_srb.config import Settings
from llama_srb.engine.exchange import EngineError
from llama_srb.http.application import HttpApi
from llama_srb.http.connections import MAX_LINE, Unanswered, http_log
from llama_srb.models.cache_budget import CacheBudget
from llama_srb.models.residency import Residency, limits_of
from llama_srb.models.served import ServedModel, readable, show_faults
from llama_srb.models.served import served as of_settings
from llama_srb.server.listening import address_of, listening
from llama_srb.server.reload import Reload
from llama_srb.server.reload.faults import (
    check_defaults,
    check_engine,
    files_of,
    memories_of,
    opened,
    presets_of,
    stories_of,
    tasks_of,
)
from llama_srb.serving.admission import Admission
from llama_srb.serving.faults import StartError
from llama_srb.serving.keys.access import Access, AccessError, tls
from llama_srb.serving.limits import Load
from llama_srb.serving.model_registry import ModelRegistry
from llama_srb.serving.observe.freed_memory import trim_when_grown
from llama_srb.serving.observe.traces import NO_TRACES, Traces
from llama_srb.serving.pending_prompts import Pending
from llama_srb.serving.service import Service
from llama_srb.threads import FairThreads

if TYPE_CHECKING:
    from llama_srb.grpc import GrpcServer

log = logging.getLogger("llama_srb.server")  # this name is documented

INSTALL_GRPC, INSTALL_OTEL = (f"pip install 'llama-srb[{extra}]'" for extra in ("grpc", "otel"))
WRITE_GRACE = 1.0  # seconds for clients to read the last frames of a server that stops


async def serve(
    settings: Settings,
    *,
    on_loading: Callable[[float], None],
    on_ready: Callable[[str], None],
    reread: Callable[[], Settings] | None = None,
    signals: bool = True,
) -> None:
    """Serves until SIGTERM or SIGINT. on_loading gets 0 to 1, on_ready the address.

    reread: returns the settings that their sources have now; called after SIGHUP in a thread. signals: False:
    it serves until it is cancelled.
    StartError, ModelFileError or EngineError if it cannot start; then nothing is left running.
    """
    asyncio.get_running_loop().set_default_executor(FairThreads())
    registry = _registered(settings := readable(settings))
    residency, memories = registry.residency, memories_of(settings, registry)
    access, certificate = _guarded(settings)
    service = Service(settings, registry, access, memories, stories_of(settings))
    api = HttpApi(service)
    reload = Reload(service, certificate, reread)
    runner = web.AppRunner(
        api.app(),
        handler_cancellation=True,  # off by default; then a client that leaves is noticed only by a write
        access_log=None,
        logger=http_log,
        auto_decompress=False,  # compressed bodies are refused (connections.py)
        shutdown_timeout=WRITE_GRACE,
        keepalive_timeout=settings.idle_timeout,
        max_line_size=MAX_LINE,
    )
    helpers: list[asyncio.Task[None]] = []
    with _signals(handled=signals) as (hangup, *stopping):
        async with opened(memories), registry.traces, contextlib.AsyncExitStack() as stack:
            try:
                internal = await stack.enter_async_context(files_of(service.batches))
                async with listening(runner, settings, certificate, internal) as site:
                    assert runner.server is not None
                    for sweep, name in (
                        (api.connections.sweep, "idle"),
                        (api.connections.end_stalled, "stalled"),
                    ):
                        helpers.append(begin(sweep(runner.server), f"{name} connections"))
                    helpers.append(begin(reload.run(hangup), "SIGHUP"))
                    helpers.append(begin(trim_when_grown(), "freed memory"))
                    helpers.append(begin(service.responses.sweep(), "kept responses"))
                    async with _grpc(service, reload) as rpc, residency:
                        async with reload.models():
                            if await _start(residency, registry, stopping[0], on_loading):
                                rpc.started()
                                reload.started()
                                on_ready(address_of(site, runner, settings))
                                log.info("llama-srb %s serves %s", __version__, _named(registry))
                                async with service.batches.running():
                                    await stopping[0].wait()
                        log.info("stopping")
                        await asyncio.gather(site.stop(), rpc.drain())
                        end = _end(
                            residency,
                            memories.lasting.pending,
                            api.connections.unanswered,
                            settings.stop_grace,
                        )
                        await _until(end, stopping[1])
                        api.connections.unanswered.end()
            finally:
                for helper in helpers:
                    helper.cancel()
                await runner.cleanup()


def _registered(settings: Settings) -> ModelRegistry:
    """The models, none of which is loaded; StartError, ModelFileError."""
    served = [of_settings(one) for one in settings.served]
    for one in settings.served:
        check_engine(one)
    presets = presets_of(settings)
    check_defaults(settings)
    tasks = tasks_of(settings)
    load = Load(settings.max_queue, settings.max_unread, settings.queue_timeout, settings.request_timeout)
    residency = Residency(limits_of(settings))
    if settings.models:
        CacheBudget(residency, settings.cache_ram)
    admission = Admission(load, by_model=bool(settings.models))
    registry = ModelRegistry(settings, admission, served, presets, residency, tasks)
    registry.traces = _traces(settings)
    return registry


def _traces(settings: Settings) -> Traces:
    """Where traces go; StartError if the packages are missing."""
    if settings.otlp_traces_endpoint is None:
        return NO_TRACES
    try:
        from llama_srb.serving.observe.otel import OtelTraces
    except ModuleNotFoundError as error:
        message = f"--otlp-traces-endpoint needs the package {error.name}: {INSTALL_OTEL}"
        raise StartError(message) from None
    return OtelTraces(settings)


class _NoGrpc:
    """Stands for the gRPC server where there is none."""

    def started(self) -> None:
        pass

    async def drain(self) -> None:
        pass


@contextlib.asynccontextmanager
async def _grpc(service: Service, reload: Reload) -> AsyncIterator[_NoGrpc | GrpcServer]:
    """The gRPC server, if the settings want one; StartError if it cannot start."""
    if service.settings.grpc is None:
        yield _NoGrpc()
        return
    try:
        from llama_srb.grpc import GrpcServer
    except ModuleNotFoundError as error:
        raise StartError(f"--grpc needs the package {error.name}: {INSTALL_GRPC}") from None
    async with GrpcServer(service) as server:
        if server.certificate is not None:
            reload.renewals.append(server.certificate.renew)
        yield server


def _named(registry: ModelRegistry) -> str:
    """The model of a server by the name in its file; several by those that clients have."""
    served = [facts.served for facts in registry]
    if len(served) == 1 and not served[0].settings.name:
        return served[0].info.name
    return ", ".join(one.name for one in served)


def _guarded(settings: Settings) -> tuple[Access, SSLContext | None]:
    """The access rules and the TLS certificate."""
    try:
        access = Access(settings)
        access.require_safe()
        return access, tls(settings)
    except AccessError as error:
        raise StartError(str(error)) from None


@contextlib.contextmanager
def _signals(*, handled: bool) -> Iterator[list[asyncio.Event]]:
    """Three events: set by SIGHUP, by the first SIGTERM or SIGINT, and by the second (stop at once)."""
    loop, events = asyncio.get_running_loop(), [asyncio.Event() for _ in range(3)]

    def on_signal() -> None:
        events[1 + events[1].is_set()].set()

    handlers = {signal.SIGTERM: on_signal, signal.SIGINT: on_signal, signal.SIGHUP: events[0].set}
    handlers = handlers if handled else {}
    for number, handler in handlers.items():
        loop.add_signal_handler(number, handler)
    try:
        yield events
    finally:
        for number in handlers:
            loop.remove_signal_handler(number)


async def _start(
    residency: Residency,
    registry: ModelRegistry,
    stopping: asyncio.Event,
    on_loading: Callable[[float], None],
) -> bool:
    """Loads the models that are needed at once; False if `stopping` is set before.

    EngineError if the only model cannot be loaded.
    """
    registry.is_starting = True
    load = asyncio.create_task(_load(residency, registry, on_loading), name="loading")
    stop = begin(stopping.wait(), "stop signal")
    try:
        await asyncio.wait({load, stop}, return_when=asyncio.FIRST_COMPLETED)
        if load.done():
            load.result()
        return load.done()
    finally:
        registry.is_starting = False
        load.cancel()
        stop.cancel()
        await asyncio.wait({load, stop})


async def _load(residency: Residency, registry: ModelRegistry, on_loading: Callable[[float], None]) -> None:
    """Loads the only model, or those of several that are to be loaded before a request asks for them."""
    served = [facts.served for facts in registry]
    for model in served:
        if not registry.are_several:
            await model.pool.start()
        await residency.add(model)
    first = [model for model in served if model.settings.preload or not registry.are_several]
    for i, model in enumerate(first):
        try:
            await _loaded(residency, model, partial(_part_of, on_loading, i, len(first)))
        except EngineError as error:
            if len(served) == 1:
                raise
            log.error("the model %s cannot be loaded: %s", model.name, error)
    on_loading(1.0)


def _part_of(report: Callable[[float], None], done: int, all: int, part: float) -> None:
    report((done + part) / all)


async def _loaded(residency: Residency, model: ServedModel, report: Callable[[float], None]) -> None:
    """Waits until the model is loaded."""
    load = asyncio.create_task(residency.load(model), name="loading")
    try:
        while not load.done():
            report(model.pool.progress)
            change = begin(model.pool.change.wait(), "change")
            await asyncio.wait({load, change}, return_when=asyncio.FIRST_COMPLETED)
            change.cancel()
        load.result()
        await show_faults(model)
    finally:
        load.cancel()
        await asyncio.wait({load})


async def _until(work: Coroutine[Any, Any, None], event: asyncio.Event) -> None:
    """Waits for the work; when the event comes first, the work is cancelled."""
    doing, coming = begin(work, "models stop"), begin(event.wait(), "second signal")
    try:
        await asyncio.wait({doing, coming}, return_when=asyncio.FIRST_COMPLETED)
        if not doing.done():
            doing.cancel()
        await asyncio.wait({doing})
    finally:
        coming.cancel()


async def _end(residency: Residency, pending: Pending, unanswered: Unanswered, grace: float) -> None:
    """Lets requests finish and their prompts be stored for `grace` seconds, then stops the models."""
    loop = asyncio.get_running_loop()
    end = loop.time() + grace
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout_at(end):
            await pending.wait_for_all()
    await residency.stop(max(0.0, end - loop.time()))
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout_at(end):
            await unanswered.wait()  # what needs no model
