"""The life of the whole server: from a start that tells what is missing to a stop in which requests end."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from ssl import SSLContext

from aiohttp import web

from llama_srb import __version__, bundled, model_info
from llama_srb.access import Access, AccessError, renew_tls, tls
from llama_srb.admission import Admission
from llama_srb.config import Settings, child_environment
from llama_srb.connections import http_log
from llama_srb.handlers import Api
from llama_srb.limits import Load
from llama_srb.model_info import ModelFileError, ModelInfo
from llama_srb.pool import EngineError, EngineSettings, Pool
from llama_srb.presets import SHIPPED, Preset, PresetError
from llama_srb.presets import read as read_presets
from llama_srb.terms import OWN

log = logging.getLogger(__name__)

WRITE_GRACE = 1.0  # seconds for readers to take the last frames of a server that stops
BACKLOG = 1024  # connections that wait until the loop turns; one more tries again after a second


class StartError(Exception):
    """The server cannot start; the message is one line for the operator."""


async def serve(
    settings: Settings, *, on_loading: Callable[[float], None], on_ready: Callable[[str], None]
) -> None:
    """Serves until SIGTERM or SIGINT. on_loading gets 0 to 1, on_ready the address.

    StartError, ModelFileError or EngineError when it cannot start; then nothing is left running.
    """
    model = model_info.read(settings.model)
    _check_engine(settings)
    presets = _presets(settings)
    access, certificate = _guarded(settings)
    pool = Pool(
        _engine_settings(settings, model), mode=settings.engine_mode, max_engines=settings.max_engines
    )
    load = Load(settings.max_queue, settings.max_unread, settings.queue_timeout, settings.request_timeout)
    api = Api(settings, Admission(pool, load), model, access, presets)
    reload = _Reload(settings, api, certificate)
    runner = web.AppRunner(
        api.app(),
        handler_cancellation=True,  # off by default; else a client that leaves is noticed when we write
        access_log=None,
        logger=http_log,
        auto_decompress=False,  # connections.py says why
        shutdown_timeout=WRITE_GRACE,
        keepalive_timeout=settings.idle_timeout,
    )
    helpers: list[asyncio.Task[None]] = []
    with _signals() as (hangup, *stopping):
        try:
            site = await _listen(runner, settings, certificate)
            assert runner.server is not None
            for sweep, name in ((api.connections.sweep, "idle"), (api.connections.end_stalled, "stalled")):
                helpers.append(asyncio.create_task(sweep(runner.server), name=f"{name} connections"))
            helpers.append(asyncio.create_task(_reload_on(hangup, reload), name="SIGHUP"))
            await pool.start()
            if await _loads(pool, stopping[0], on_loading):
                on_ready(_address(site.name, runner))
                log.info("llama-srb %s serves %s", __version__, model.name)
                await stopping[0].wait()
            log.info("stopping")
            await site.stop()
            await _stop(pool, settings.stop_grace, stopping[1])
        finally:
            for helper in helpers:
                helper.cancel()
            await pool.stop()
            await runner.cleanup()


def _engine_settings(settings: Settings, model: ModelInfo) -> EngineSettings:
    return EngineSettings(
        settings.engine_command,
        model.name,
        child_environment(),
        load_timeout=settings.load_timeout,
        step_timeout=settings.step_timeout,
    )


def _presets(settings: Settings) -> dict[str, Preset]:
    """The shipped ones, and the operator's own."""
    try:
        return read_presets((SHIPPED, settings.presets) if settings.presets else (SHIPPED,))
    except PresetError as error:
        raise StartError(str(error)) from None


def _guarded(settings: Settings) -> tuple[Access, SSLContext | None]:
    """Who may call, and the certificate that callers are shown."""
    try:
        access = Access(settings)
        access.require_safe()
        return access, tls(settings)
    except AccessError as error:
        raise StartError(str(error)) from None


def _check_engine(settings: Settings) -> None:
    if not settings.engine.is_file():
        raise StartError(f"{settings.engine}: there is no engine; {bundled.remedy()}")
    if not os.access(settings.engine, os.X_OK):
        raise StartError(f"{settings.engine}: the engine is not executable; {bundled.remedy()}")


@contextlib.contextmanager
def _signals() -> Iterator[list[asyncio.Event]]:
    """Three events, set by SIGHUP, by the first signal to stop, and by the next one: at once."""
    loop, events = asyncio.get_running_loop(), [asyncio.Event() for _ in range(3)]

    def on_signal() -> None:
        events[1 + events[1].is_set()].set()

    handlers = {signal.SIGTERM: on_signal, signal.SIGINT: on_signal, signal.SIGHUP: events[0].set}
    for number, handler in handlers.items():
        loop.add_signal_handler(number, handler)
    try:
        yield events
    finally:
        for number in handlers:
            loop.remove_signal_handler(number)


async def _reload_on(hangup: asyncio.Event, reload: Callable[[], Awaitable[None]]) -> None:
    """One at a time; what comes meanwhile is one more."""
    while True:
        await hangup.wait()
        hangup.clear()
        await reload()


@dataclass
class _Reload:
    """Reads again what may be another by now; what is faulty stays as it was."""

    settings: Settings
    api: Api
    certificate: SSLContext | None

    def __post_init__(self) -> None:
        self._files = _files(self.settings)  # that the engine has loaded

    async def __call__(self) -> None:
        for what, read in (
            ("keys", self.api.access.reload),
            ("certificate", lambda: renew_tls(self.settings, self.certificate)),
            ("presets", lambda: self.api.take_presets(_presets(self.settings))),
        ):
            try:
                read()
            except (AccessError, StartError) as error:
                log.error("the %s stay as they were: %s", what, error)
        try:
            await self._model()
        except (ModelFileError, EngineError) as error:
            log.error("the model stays as it was: %s", error)
        log.info("SIGHUP: keys, presets and model were looked at")

    async def _model(self) -> None:
        """Another file in the model's place is loaded beside it; requests that run go on with the old one.

        A pool that has failed tries again, since the engine may be another one.
        """
        files = _files(self.settings)
        if self._files != files:
            log.info("%s is another file now", self.settings.model)
        elif self.api.pool.state == "failed":
            log.info("the engine is tried again")
        else:
            return
        model = model_info.read(self.settings.model)
        await self.api.pool.renew()
        self.api.model, self._files = model, files


def _files(settings: Settings) -> tuple[tuple[int, ...], ...]:
    """What tells that a model or an adapter is another file: a name may be a link to it."""
    found = (path.stat() for path in (settings.model, *settings.lora) if path.exists())
    return tuple((one.st_dev, one.st_ino, one.st_size, one.st_mtime_ns) for one in found)


async def _listen(runner: web.AppRunner, settings: Settings, certificate: SSLContext | None) -> web.TCPSite:
    await runner.setup()
    site = web.TCPSite(runner, settings.host, settings.port, ssl_context=certificate, backlog=BACKLOG)
    try:
        await site.start()
    except OSError as error:
        reason = os.strerror(error.errno).lower() if error.errno and error.errno > 0 else str(error)
        raise StartError(
            f"cannot listen on {settings.host} port {settings.port}: {reason}; try --port"
        ) from None
    return site


def _address(name: str, runner: web.AppRunner) -> str:
    """The URL to call, with the port that was really taken; every interface is reached as localhost."""
    host, port = runner.addresses[0][:2]
    host = {"0.0.0.0": "localhost", "::": "localhost"}.get(host, host)
    scheme = name.partition(":")[0]
    return f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}"


async def _loads(pool: Pool, stopping: asyncio.Event, on_loading: Callable[[float], None]) -> bool:
    """Waits until the pool is ready; False when told to stop before that. EngineError if it cannot load."""
    load = asyncio.create_task(_load(pool, on_loading), name="loading")
    stop = asyncio.create_task(stopping.wait(), name="stop signal")
    try:
        await asyncio.wait({load, stop}, return_when=asyncio.FIRST_COMPLETED)
        if load.done():
            load.result()
        return load.done()
    finally:
        load.cancel()
        stop.cancel()
        await asyncio.wait({load, stop})


async def _load(pool: Pool, on_loading: Callable[[float], None]) -> None:
    """In the mode per-request a first engine comes and goes: an unusable one is known at the start."""
    while pool.state == "loading":
        on_loading(pool.progress)
        await pool.changed()
    await pool.wait_ready()
    if pool.mode == "per-request":
        await pool.command("status", OWN)
    on_loading(1.0)


async def _stop(pool: Pool, grace: float, at_once: asyncio.Event) -> None:
    """Lets requests finish for a while, unless a second signal says that there is no time for that."""
    stop = asyncio.create_task(pool.stop(grace), name="pool stop")
    hurry = asyncio.create_task(at_once.wait(), name="second signal")
    try:
        await asyncio.wait({stop, hurry}, return_when=asyncio.FIRST_COMPLETED)
        if not stop.done():
            stop.cancel()
        await asyncio.wait({stop})
    finally:
        hurry.cancel()
