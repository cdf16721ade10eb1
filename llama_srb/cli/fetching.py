"""Models of a hub for the commands that start an engine, with a progress bar on stderr."""

from __future__ import annotations

from pathlib import Path
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

from llama_srb.config import Settings, folders
from llama_srb.models import cache, hub
from llama_srb.models.cache import Cache, HubName

from . import say


def is_hub_name(model: Path) -> bool:
    """Whether --model names a model of a hub."""
    return str(model).startswith(cache.PREFIX)


def with_models(settings: Settings) -> Settings:
    """The settings with the paths of the models, which are downloaded if they are not there; HubError."""
    if settings.models:
        return settings.model_copy(update={"models": tuple(map(with_models, settings.models))})
    if not is_hub_name(settings.model):
        return settings
    path = fetch(cache.name_from(str(settings.model)), offline=settings.offline)
    return settings.model_copy(update={"model": path})


def fetch(name: HubName, *, offline: bool = False, newest: bool = False) -> Path:
    """A model's path, as `hub.fetch` has it, with a progress bar on a terminal; HubError."""
    with _Bar() as bar:
        return hub.fetch(name, Cache(folders.hub_models()), bar.show, offline=offline, newest=newest)


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
