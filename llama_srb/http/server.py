"""The server's life: start, with an error that says what is missing; signals; reload; stop."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from ssl import SSLContext

from aiohttp import web

from llama_srb import __version__, bundled
from llama_srb.background import begin
from llama_srb.config import Settings, SettingsError, child_environment
from llama_srb.engine.exchange import EngineError
from llama_srb.engine.pool import Pool
from llama_srb.engine.pool.terms import OWN
from llama_srb.engine.settings import EngineSettings
from llama_srb.http.auth.access import Access, AccessError, renew_tls, tls
from llama_srb.http.connections import http_log
from llama_srb.http.freed_memory import trim_when_grown
from llama_srb.http.handlers import Api
from llama_srb.http.limits import Load
from llama_srb.http.reservations import Admission
from llama_srb.models import defaults, gguf_header
from llama_srb.models.gguf_header import ModelFileError, ModelInfo
from llama_srb.request.presets import SHIPPED, Preset, PresetError
from llama_srb.request.presets import read as read_presets

log = logging.getLogger("llama_srb.server")  # this name is documented

WRITE_GRACE = 1.0  # seconds for clients to read the last frames of a server that stops
BACKLOG = 1024  # connections that wait to be accepted; further ones try again after a second


class StartError(Exception):
    """The server cannot start; the message is one line for the operator."""


async def serve(
    settings: Settings, *, on_loading: Callable[[float], None], on_ready: Callable[[str], None]
) -> None:
    """Serves until SIGTERM or SIGINT. on_loading gets 0 to 1, on_ready the address.

    StartError, ModelFileError or EngineError if it cannot start; then nothing is left running.
    """
    if len(settings.served) > 1:
        raise StartError(f"there are {len(settings.served)} models by name; this version serves one")
    settings = settings.default
    model = gguf_header.read(settings.model)
    _check_engine(settings)
    presets = _presets(settings)
    _check_flags(settings)
    access, certificate = _guarded(settings)
    pool = Pool(
        _engine_settings(settings, model), mode=settings.engine_mode, max_engines=settings.max_engines
    )
    load = Load(settings.max_queue, settings.max_unread, settings.queue_timeout, settings.request_timeout)
    api = Api(settings, Admission(pool, load), model, access, presets)
    reload = _Reload(settings, api, certificate)
    runner = web.AppRunner(
        api.app(),
        handler_cancellation=True,  # off by default; then a client that leaves is noticed only by a write
        access_log=None,
        logger=http_log,
        auto_decompress=False,  # compressed bodies are refused (connections.py)
        shutdown_timeout=WRITE_GRACE,
        keepalive_timeout=settings.idle_timeout,
    )
    helpers: list[asyncio.Task[None]] = []
    with _signals() as (hangup, *stopping):
        try:
            site = await _listen(runner, settings, certificate)
            assert runner.server is not None
            for sweep, name in ((api.connections.sweep, "idle"), (api.connections.end_stalled, "stalled")):
                helpers.append(begin(sweep(runner.server), f"{name} connections"))
            helpers.append(begin(_reload_on(hangup, reload), "SIGHUP"))
            helpers.append(begin(trim_when_grown(), "freed memory"))
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
    """The presets that are shipped, and the operator's."""
    try:
        return read_presets((SHIPPED, settings.presets) if settings.presets else (SHIPPED,))
    except PresetError as error:
        raise StartError(str(error)) from None


def _check_flags(settings: Settings) -> None:
    try:
        defaults.check(settings)
    except SettingsError as error:
        raise StartError(str(error)) from None


def _guarded(settings: Settings) -> tuple[Access, SSLContext | None]:
    """The access rules and the TLS certificate."""
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
    """Three events: set by SIGHUP, by the first SIGTERM or SIGINT, and by the second (stop at once)."""
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
    """Reloads on each SIGHUP. Several that come during a reload cause one more."""
    while True:
        await hangup.wait()
        hangup.clear()
        await reload()


@contextlib.contextmanager
def _kept(what_stays: str) -> Iterator[None]:
    """Runs one part of a reload. A fault is logged and ends neither the other parts nor later reloads."""
    try:
        yield
    except (AccessError, StartError, ModelFileError, EngineError) as error:
        log.error("%s: %s", what_stays, error)
    except Exception:
        log.exception("%s: a fault of ours", what_stays)


@dataclass
class _Reload:
    """Reloads keys, certificate, presets and model. If one of them is faulty, the old one stays in use."""

    settings: Settings
    api: Api
    certificate: SSLContext | None

    def __post_init__(self) -> None:
        self._files = _file_identities(self.settings)  # of the files that the engine has loaded

    async def __call__(self) -> None:
        with _kept("the keys stay as they were"):
            self.api.access.reload()
        with _kept("the certificate stays as it was"):
            renew_tls(self.settings, self.certificate)
        with _kept("the presets stay as they were"):
            self.api.facts.take_presets(_presets(self.settings))
        with _kept("the model stays as it was"):
            await self._model()
        log.info("SIGHUP: keys, presets and model were checked")

    async def _model(self) -> None:
        """Loads the model beside the old one if its file was replaced; running requests keep the old one.

        A failed pool tries again in any case, since the engine's program may have been replaced.
        """
        files = _file_identities(self.settings)
        if self._files != files:
            log.info("%s is another file now", self.settings.model)
        elif self.api.pool.state == "failed":
            log.info("the engine is tried again")
        else:
            return
        model = gguf_header.read(self.settings.model)
        await self.api.pool.renew()
        self.api.facts.take_model(model)
        self._files = files


def _file_identities(settings: Settings) -> tuple[tuple[int, ...], ...]:
    """The identities of the model's and the adapters' files. A path may be a link to another file by now."""
    return tuple(_file_identity(path) for path in (settings.model, *settings.lora))


def _file_identity(path: Path) -> tuple[int, ...]:
    """Device, inode, size and time of change; empty if there is an error, which the reader will report."""
    try:
        found = path.stat()
    except OSError:
        return ()
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


async def _listen(runner: web.AppRunner, settings: Settings, certificate: SSLContext | None) -> web.TCPSite:
    await runner.setup()
    site = web.TCPSite(
        runner,
        settings.host,
        settings.port,
        ssl_context=certificate,
        backlog=BACKLOG,
        reuse_port=settings.reuse_port or None,
    )
    try:
        await site.start()
    except OSError as error:
        reason = os.strerror(error.errno).lower() if error.errno and error.errno > 0 else str(error)
        raise StartError(
            f"cannot listen on {settings.host} port {settings.port}: {reason}; try --port"
        ) from None
    return site


def _address(name: str, runner: web.AppRunner) -> str:
    """The server's URL, with the real port; localhost if the server listens on all interfaces."""
    host, port = runner.addresses[0][:2]
    host = {"0.0.0.0": "localhost", "::": "localhost"}.get(host, host)
    scheme = name.partition(":")[0]
    return f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}"


async def _loads(pool: Pool, stopping: asyncio.Event, on_loading: Callable[[float], None]) -> bool:
    """Waits until the pool is ready; False if `stopping` is set before. EngineError if it cannot load."""
    load = asyncio.create_task(_load(pool, on_loading), name="loading")
    stop = begin(stopping.wait(), "stop signal")
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
    """Waits for the pool; in the mode per-request runs one engine, so that a fault shows at the start."""
    while pool.state == "loading":
        on_loading(pool.progress)
        await pool.change.wait()
    await pool.wait_ready()
    if pool.mode == "per-request":
        await pool.command("status", OWN)
    on_loading(1.0)


async def _stop(pool: Pool, grace: float, at_once: asyncio.Event) -> None:
    """Lets requests finish for `grace` seconds, unless a second signal comes."""
    stop = begin(pool.stop(grace), "pool stop")
    hurry = begin(at_once.wait(), "second signal")
    try:
        await asyncio.wait({stop, hurry}, return_when=asyncio.FIRST_COMPLETED)
        if not stop.done():
            stop.cancel()
        await asyncio.wait({stop})
    finally:
        hurry.cancel()
