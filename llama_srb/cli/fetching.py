"""Models of a hub for the commands that start an engine, with a progress bar on stderr."""

from __future__ import annotations

import logging
from pathlib import Path
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

from llama_srb.config import Settings, folders
from llama_srb.models import cache, hub
from llama_srb.models.cache import Cache, HubName, OnProgress

from . import say

log = logging.getLogger("llama_srb.models")  # this name is documented


def is_hub_name(model: Path) -> bool:
    """Whether --model names a model of a hub."""
    return str(model).startswith(cache.PREFIX)


def with_models(settings: Settings, on_progress: OnProgress | None = None) -> Settings:
    """The settings with the paths of the models, which are downloaded if they are not there; HubError.

    on_progress: None shows a progress bar.
    """
    if settings.models:
        models = tuple(with_models(model, on_progress) for model in settings.models)
        return settings.model_copy(update={"models": models})
    if not is_hub_name(settings.model):
        return settings
    path = fetch(cache.name_from(str(settings.model)), on_progress, offline=settings.offline)
    return settings.model_copy(update={"model": path})


def fetch(
    name: HubName, on_progress: OnProgress | None = None, *, offline: bool = False, newest: bool = False
) -> Path:
    """A model's path, as `hub.fetch` has it; with a progress bar on a terminal if nobody else gets it.

    HubError.
    """
    found = Cache(folders.hub_models())
    if on_progress is not None:
        return hub.fetch(name, found, on_progress, offline=offline, newest=newest)
    with _Bar() as bar:
        return hub.fetch(name, found, bar.show, offline=offline, newest=newest)


def logged() -> OnProgress:
    """Writes each step of downloads as a line of the log."""
    begun: set[str] = set()

    def write(step: str, done: int, total: int) -> None:
        if step not in begun:
            begun.add(step)
            log.info("%s (%d bytes)", step, total)

    return write


class _Bar:
    """One bar, for one step after the other. If stderr is no terminal, each step is a line."""

    def __init__(self) -> None:
        console = Console(stderr=True)
        columns = (BarColumn(), DownloadColumn(binary_units=True), TransferSpeedColumn())
        self._progress = Progress(
            TextColumn("{task.description}"), *columns, console=console, transient=True,
            disable=not console.is_terminal,
        )  # fmt: skip
        self._steps: dict[str, object] = {}

    def __enter__(self) -> _Bar:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()

    def show(self, step: str, done: int, total: int) -> None:
        """Shows a step of which `done` of `total` bytes are done."""
        if step not in self._steps:
            for task in self._progress.task_ids:
                self._progress.remove_task(task)
            self._steps[step] = self._progress.add_task(step, total=total)
            if self._progress.disable:
                say(f"{step} ({total:,} bytes)")
        self._progress.update(self._progress.task_ids[-1], completed=done)
