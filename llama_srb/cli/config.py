"""`llama-srb config check FILE`: whether a file of settings is right; it starts nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import click

from llama_srb import config, tasks
from llama_srb.config import Settings, SettingsError, folders
from llama_srb.memory import tables
from llama_srb.memory.embedding import Vectoriser, check_reranker
from llama_srb.memory.records import NO_MODEL, Facts, FileStore, MemorySettings, MemoryUnusable
from llama_srb.memory.stores.sqlite import SqliteStore
from llama_srb.models import cache, defaults, fingerprint, gguf_header
from llama_srb.models.cache import Cache, HubError
from llama_srb.models.gguf_header import ModelFileError
from llama_srb.models.model_memory import cells_of
from llama_srb.models.served import readable
from llama_srb.tasks import Task, pins

from . import Refused, fetching, say

COLUMNS = ("name", "aliases", "path", "size in bytes", "context", "when it is loaded")
UNITS = ((86400, "d"), (3600, "h"), (60, "m"), (1, "s"))


@dataclass
class _Checked:
    """What the files of a model say, and what is wrong with them."""

    settings: Settings
    path: Path
    size_bytes: int | None = None  # None: it is not downloaded
    context: int | None = None
    cells: int | None = None  # about, of its engine's KV cache
    file: Path | None = None  # of a model of a hub, where it is
    faults: list[str] = field(default_factory=list)


def _check(file: str) -> None:
    try:
        settings = readable(config.load({}, config=file, environ={}))
        defaults.check(settings)
        found = tasks.read(settings)
        memories = tables.read(settings)
        for task in found:
            if task.recall is not None:
                tables.check_recall(task.name, task.recall, memories)
    except SettingsError as error:
        raise Refused(error) from error
    checked = [_examine(model) for model in settings.served]
    for one in checked:
        _tell_of_pins(one, pins.pinned(pins.tasks_of(one.settings, settings, found)))
    faults = [fault for one in checked for fault in one.faults]
    faults += [fault for memory in memories for fault in _faults_of_memory(memory, checked)]
    for fault in faults:
        say(fault)
    if faults:
        click.get_current_context().exit(Refused.exit_code)
    for one in checked:
        click.echo("\t".join(_row(one, settings)))


def _examine(model: Settings) -> _Checked:
    checked = _Checked(model, model.model)
    try:
        path = _downloaded(str(model.model)) if fetching.is_hub_name(model.model) else model.model
        if path is not None:
            checked.file = path
            _examine_files(checked, path)
    except (HubError, ModelFileError) as error:
        checked.faults.append(f"{model.place}{'path' if model.name else 'model'}: {error}")
    checked.faults += _faults_of_adapters(model)
    try:
        model.warm_up()
    except SettingsError as error:
        checked.faults.append(str(error))
    if model.adapters_dir is not None and not model.adapters_dir.is_dir():
        checked.faults.append(f"{model.place}adapters_dir: {model.adapters_dir} is no folder")
    return checked


def _downloaded(name: str) -> Path | None:
    """The path of a model of a hub; None, and a line that says so, if it is not downloaded."""
    wanted = cache.name_from(name)
    kept = {one.name: one.path for one in Cache(folders.hub_models()).all()}
    if wanted not in kept:
        say(
            f"{wanted} is not downloaded; llama-srb models pull {wanted} does that, else serve when it starts"
        )
    return kept.get(wanted)


def _examine_files(checked: _Checked, path: Path) -> None:
    parts = [gguf_header.read_model(part) for part in fingerprint.parts_of(path)]
    checked.size_bytes = sum(part.size_bytes for part in parts)
    checked.context = checked.settings.ctx or parts[0].context
    checked.cells = cells_of(parts[0], checked.settings.engine_command)


def _faults_of_memory(memory: MemorySettings, checked: Iterable[_Checked]) -> Iterator[str]:
    """Whether its model takes its chunks, and is that of the vectors in its file; and its reranker ranks."""
    known = {
        name: (one.settings, one.file)
        for one in checked
        if one.file is not None and not one.faults
        for name in one.settings.model_names
    }
    try:
        if memory.reranker in known:
            settings, file = known[memory.reranker]
            check_reranker(memory, settings, gguf_header.read(file))
        if memory.embedding_model is None:
            facts = NO_MODEL.facts(memory)
        else:
            if memory.embedding_model not in known:
                return
            settings, file = known[memory.embedding_model]
            vectoriser = Vectoriser.of(settings, gguf_header.read(file))
            vectoriser.check(memory)
            facts = vectoriser.facts(memory)
        if isinstance(memory.store, FileStore) and memory.store.path.exists():
            asyncio.run(_try_file(memory.store.path, memory.name, facts))
    except (MemoryUnusable, ModelFileError) as error:
        yield str(error)


async def _try_file(path: Path, name: str, facts: Facts) -> None:
    """Opens the file of a memory; MemoryUnusable."""
    store = await SqliteStore.open(path, name, facts)
    await store.close()


def _faults_of_adapters(model: Settings) -> Iterator[str]:
    named = [(f"adapters.{name}", path) for name, path in model.adapters.items()]
    for key, path in (*(("lora", path) for path in model.lora), *named):
        try:
            gguf_header.check_adapter(path)
        except ModelFileError as error:
            yield f"{model.place}{key}: {error}"


def _tell_of_pins(one: _Checked, pinned: list[Task]) -> None:
    """A line says about how much preludes need; only the engine, which counts them, refuses too many."""
    if not pinned or one.cells is None or one.settings.engine_mode == "per-request":
        return
    name, need = one.settings.model_names[0], pins.estimated(pinned)
    names = ", ".join(task.name for task in pinned)
    size = f"its {one.cells}" if one.settings.ctx else f"about {one.cells}"
    about = f"{name}: the preludes of {names} need about {need} of {size} tokens, as long as it is loaded"
    too_many = "; more than half of them are refused at the start: shorten the preludes, or raise ctx"
    say(about + (too_many if need > one.cells // 2 else ""))


def _row(one: _Checked, server: Settings) -> tuple[str, ...]:
    name, *aliases = one.settings.model_names
    size, context = ("" if number is None else str(number) for number in (one.size_bytes, one.context))
    is_at_start = one.settings.preload or len(server.served) == 1
    when = "at the start" if is_at_start else "when a request asks for it"
    if (seconds := one.settings.unload_after) is not None:
        when += f", unloaded after {_as_time(seconds)} without requests"
    return name, ",".join(aliases), str(one.path), size, context, when


def _as_time(seconds: float) -> str:
    """Seconds as in a file: 10m."""
    per, unit = next((pair for pair in UNITS if seconds % pair[0] == 0), (1, "s"))
    return f"{seconds / per:g}{unit}"


COMMAND = click.Group(
    "config",
    help="Check the file of --config.",
    commands=[
        click.Command(
            "check",
            callback=_check,
            params=[click.Argument(["file"], metavar="FILE", type=click.Path())],
            help="Say whether a server can start with this file: its settings, names and limits, and the "
            "files of its models and adapters. Prints one line a model, fields separated by tabs: "
            + ", ".join(COLUMNS)
            + ". Exits with 2 if something is wrong, and one line for each fault.",
            epilog="It uses the file alone, no LLAMA_SRB_ variables. Engine, port and keys: llama-srb doctor "
            "--config FILE.",
        )
    ],
)
