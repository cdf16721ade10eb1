"""`llama-srb memory`: puts, lists and removes an operator's documents, and rebuilds a memory's vectors.

It opens the store itself, also while a server has it open, and starts an engine if it needs vectors.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import TypeAlias

import click

from llama_srb import config
from llama_srb.config import Settings, SettingsError
from llama_srb.engine.exchange import EngineError
from llama_srb.engine.pool import Pool
from llama_srb.engine.settings import EngineSettings
from llama_srb.memory import tables
from llama_srb.memory.documents import SUFFIXES, type_of
from llama_srb.memory.embedding import Vectoriser
from llama_srb.memory.one_memory import Memory
from llama_srb.memory.records import MAX_LISTED, OPERATOR, MemorySettings, MemoryUnusable, Progress
from llama_srb.models import gguf_header
from llama_srb.models.cache import HubError
from llama_srb.models.gguf_header import ModelFileError
from llama_srb.request.values import RequestError, shown

from . import Failed, Refused, fetching, say

Work: TypeAlias = Callable[[Memory], Awaitable[None]]
CANNOT = (SettingsError, HubError, ModelFileError, MemoryUnusable, RequestError, EngineError)
COLUMNS = ("id", "chunks", "characters", "stored at", "owner", "metadata")


def _put(
    config_file: str | None, name: str, files: tuple[Path, ...], id: str | None, metadata: str | None
) -> None:
    if id is not None and len(files) > 1:
        raise click.UsageError("--id is for one file.", click.get_current_context())
    given = _object(metadata)

    async def put(memory: Memory) -> None:
        for file in files:
            stored = await memory.put_body(id or file.as_posix(), _read(file), _type_of(file), metadata=given)
            click.echo(f"{stored.id}\t{stored.chunks}\t{stored.embedded}")

    _with_memory(config_file, name, put, computes=True)


def _object(metadata: str | None) -> object:
    try:
        return None if metadata is None else json.loads(metadata)
    except ValueError as error:
        raise Refused(f"--metadata is not JSON: {error}") from None


def _read(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        raise Refused(f"cannot read {file}: {error.strerror}") from None


def _type_of(file: Path) -> str:
    if not (found := type_of(file.name)):
        raise Refused(f"{file}: the name must end with {', '.join(SUFFIXES)}, which says what it is")
    return found


def _list(config_file: str | None, name: str | None) -> None:
    if name is None:
        for one in _settings(config_file)[1]:
            click.echo(one.name)
        return

    async def show(memory: Memory) -> None:
        after = ("", "")
        while rows := await memory.documents(after=after, limit=MAX_LISTED):
            for row in rows:
                at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(row.stored_at))
                metadata = json.dumps(row.metadata, ensure_ascii=False)
                click.echo(f"{row.id}\t{row.chunks}\t{row.characters}\t{at}\t{row.owner}\t{metadata}")
            after = (rows[-1].id, rows[-1].owner)

    _with_memory(config_file, name, show, sees_all=True)


def _remove(config_file: str | None, name: str, ids: tuple[str, ...], owner: str) -> None:
    async def remove(memory: Memory) -> None:
        missing = [id for id in ids if not await memory.delete(id, owner)]
        if missing:
            raise Failed(f"the memory {name} has no document {missing[0]} of {owner or 'the operator'}")

    _with_memory(config_file, name, remove)


def _rebuild(config_file: str | None, names: tuple[str, ...]) -> None:
    for name in names:

        async def rebuild(memory: Memory) -> None:
            count = await memory.rebuild(_shown)
            say(f"{memory.settings.name}: {count} texts were computed by {memory.model.name}")

        _with_memory(config_file, name, rebuild, computes=True, rebuilding=True)


def _shown(step: Progress) -> None:
    if step.stage == "embedded":
        logging.getLogger(__name__).info("%d of %d chunks", step.done, step.total)


# ----------------------------------------------------------------------------------------------------
# Settings, store and engine
# ----------------------------------------------------------------------------------------------------


def _settings(config_file: str | None) -> tuple[Settings, list[MemorySettings]]:
    try:
        settings = config.load({}, config=config_file)
        return settings, tables.read(settings)
    except SettingsError as error:
        raise Refused(error) from error


def _with_memory(
    config_file: str | None, name: str, work: Work, *, computes: bool = False, rebuilding: bool = False,
    sees_all: bool = False,
) -> None:  # fmt: skip
    """Opens a memory for some work. computes: it needs vectors. sees_all: also other owners' documents."""
    settings, memories = _settings(config_file)
    try:
        wanted = next((one for one in memories if one.name == name), None)
        if wanted is None:
            known = ", ".join(one.name for one in memories) or "none"
            raise Refused(f"there is no memory {shown(name)}; the configuration (--config FILE) has {known}")
        if sees_all:
            wanted = MemorySettings(name, wanted.embedding_model, wanted.store, wanted.chunking, shared=True)
        asyncio.run(_run(settings, wanted, work, computes, rebuilding))
    except CANNOT as error:
        raise Refused(error.message if isinstance(error, RequestError) else error) from error


async def _run(
    settings: Settings, wanted: MemorySettings, work: Work, computes: bool, rebuilding: bool
) -> None:
    found = next(one for one in settings.served if wanted.embedding_model in one.model_names)
    model = fetching.with_models(found)
    vectoriser = Vectoriser.of(model, gguf_header.read(model.model))
    async with contextlib.AsyncExitStack() as stack:
        pool = await stack.enter_async_context(_pool(model, computes=computes))
        opened = await Memory.open(wanted, vectoriser.model(pool), rebuilding=rebuilding)
        stack.push_async_callback(opened.close)
        await work(opened)


@contextlib.asynccontextmanager
async def _pool(model: Settings, *, computes: bool) -> AsyncIterator[Pool]:
    """The pool of the model; without `computes` it is not started."""
    pool = Pool(EngineSettings(model.engine_command, model.model.name, model.engine_environment))
    if not computes:
        yield pool
        return
    async with pool:
        await pool.wait_ready()
        yield pool


CONFIG = click.Option(
    ["--config", "config_file"], metavar="FILE", type=click.Path(),
    help="The file with the table [memories.NAME]; LLAMA_SRB_CONFIG names it, too.",
)  # fmt: skip
NAME = click.Argument(["name"])
COMMAND = click.Group(
    "memory",
    help="Put, list and remove an operator's documents of a memory, and rebuild its vectors. What the "
    "operator puts in is found by all keys. A server may have the memory open meanwhile.",
    commands=[
        click.Command(
            "put",
            callback=_put,
            params=[
                CONFIG, NAME,
                click.Argument(["files"], nargs=-1, required=True, metavar="FILE…",
                               type=click.Path(path_type=Path)),
                click.Option(["--id"], metavar="ID",
                             help="The document's id (default: FILE as it is written)."),
                click.Option(["--metadata"], metavar="JSON", help='As {"year": 1900}.'),
            ],
            help="Store files: text, Markdown, HTML, PDF, DOCX, EPUB. All keys find them. Prints a line for "
            "each, fields separated by tabs: id, chunks, chunks whose vectors were computed.",
        ),
        click.Command(
            "list", callback=_list, params=[CONFIG, click.Argument(["name"], required=False)],
            help="List the memories, or the documents of one, of all owners: one line each, separated by "
            "tabs: " + ", ".join(COLUMNS) + ".",
        ),
        click.Command(
            "rm", callback=_remove,
            params=[
                CONFIG, NAME, click.Argument(["ids"], nargs=-1, required=True, metavar="ID…"),
                click.Option(["--owner"], default=OPERATOR, metavar="OWNER",
                             help="Whose documents, as list shows it (default: the operator's)."),
            ],
            help="Remove documents.",
        ),
        click.Command(
            "rebuild", callback=_rebuild,
            params=[CONFIG, click.Argument(["names"], nargs=-1, required=True, metavar="NAME…")],
            help="Compute all vectors anew, after a change of embedding_model or of the chunks' settings. A "
            "rebuild that was cut goes on where it was; a server uses the old vectors until it is over.",
        ),
    ],
)  # fmt: skip
