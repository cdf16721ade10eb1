"""What SIGHUP reads again while the server runs. A part that has a fault stays as it was."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable
from ssl import SSLContext

from llama_srb.background import begin
from llama_srb.config import Settings
from llama_srb.server.reload.faults import kept, presets_of
from llama_srb.server.reload.files import ReplacedFiles
from llama_srb.server.reload.settings import ChangedSettings
from llama_srb.serving.keys.access import renew_tls
from llama_srb.serving.service import Service

log = logging.getLogger("llama_srb.server")  # this name is documented


class Reload:
    """Reads keys, certificate and presets again; then the settings, and models' files.

    reread: the settings that their sources have now, called in a thread. These have a task of their
    own: their loads may take long, and a key that was revoked must end at once.
    """

    def __init__(
        self,
        service: Service,
        certificate: SSLContext | None,
        reread: Callable[[], Settings] | None,
    ) -> None:
        self._settings, self._service, self._certificate = service.settings, service, certificate
        self._files = ReplacedFiles(service.registry)
        self._changed = ChangedSettings(service.registry, self._files, reread) if reread is not None else None
        self._asked = asyncio.Event()  # the task of settings and models has work
        self._started = asyncio.Event()
        self.renewals: list[Callable[[], None]] = []  # of certificates that others have read

    async def run(self, hangup: asyncio.Event) -> None:
        """Reloads on each SIGHUP, until it is cancelled. Several during a reload of models cause one more."""
        while True:
            await hangup.wait()
            hangup.clear()
            with kept("the keys stay as they were"):
                self._service.access.reload()
            with kept("the certificate stays as it was"):
                renew_tls(self._settings, self._certificate)
                for renew in self.renewals:
                    renew()
            with kept("the presets stay as they were"):
                self._service.registry.take_presets(presets_of(self._settings))
            self._asked.set()

    @contextlib.asynccontextmanager
    async def models(self) -> AsyncIterator[None]:
        """Only during the block models are reloaded, too."""
        tasks = {begin(self._run_models(), "models after SIGHUP")}
        try:
            yield
        finally:
            tasks |= self._changed.tasks if self._changed is not None else set()
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)

    def started(self) -> None:
        """The models of the start are loaded: from now on others may take their place."""
        self._started.set()

    async def _run_models(self) -> None:
        while True:
            await self._asked.wait()
            if self._service.registry.are_several:
                await self._started.wait()
            self._asked.clear()
            if await self._take_settings():
                await self._files.renew()
            log.info("SIGHUP: keys, presets and model were checked")

    async def _take_settings(self) -> bool:
        """Whether the models are those of the settings: on a server of one model always."""
        is_taken = False
        with kept("models, tasks and memories stay as they were"):
            if self._changed is not None:
                await self._changed.take()
            is_taken = True
        return is_taken or not self._service.registry.are_several
