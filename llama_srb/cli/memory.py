"""`llama-srb memory`: puts, lists, finds and removes an operator's documents, and rebuilds vectors.

It opens the store itself, also while a server has it open, and starts an engine if it needs vectors.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
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
from llama_srb.memory.records import (
    MAX_FOUND,
    MAX_LISTED,
    NO_MODEL,
    OPERATOR,
    MemorySettings,
    MemoryUnusable,
    Progress,
    Scores,
)
from llama_srb.memory.words import asked, highlights
from llama_srb.models import gguf_header
from llama_srb.models.cache import HubError
from llama_srb.models.gguf_header import ModelFileError
from llama_srb.request.values import SEARCHES, RequestError, SearchBy, shown

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
            try:
                stored = await memory.put_body(
                    id or file.as_posix(), _read(file), _type_of(file), metadata=given
                )
            except RequestError as error:
                raise Refused(f"{file}: {error}") from None
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


def _search(
    config_file: str | None, name: str, query: tuple[str, ...], by: SearchBy | None, k: int, as_json: bool
) -> None:
    """With --by words no engine is started; without, a file of before may be searched by meaning yet."""
    text = " ".join(query)

    async def search(memory: Memory) -> None:
        way = by or memory.search_by
        found = await memory.search(text, k, by=way, cosines=way != "words")
        words = asked(text)
        for one in found:
            places = highlights(one.text, words, one.instead)
            if as_json:
                click.echo(json.dumps({
                    "id": one.id, "document": one.document, "text": one.text,
                    "headings": one.headings, "score": one.score, "scores": one.scores.known(),
                    "highlights": places, "metadata": dict(one.metadata),
                }, ensure_ascii=False))  # fmt: skip
            else:
                where = " / ".join((click.style(one.document, fg="green"), *one.headings))
                click.echo(where + _why(one.scores))
                click.echo(_styled(one.text, places) + "\n")
        if not found:
            raise Failed(f"the memory {name} has found nothing for {shown(text)}")
        if memory.settings.reranker is not None:
            click.echo(f"the reranker {memory.settings.reranker} is asked by servers only", err=True)

    _with_memory(config_file, name, search, computes=by != "words")


def _why(scores: Scores) -> str:
    return "".join(f"  {key} {score:.3g}" for key, score in scores.known().items())


def _styled(text: str, places: list[tuple[int, int]]) -> str:
    """The text with its highlights in bold; plain where no terminal reads it."""
    parts, begin = list[str](), 0
    for start, end in places:
        parts += [text[begin:start], click.style(text[start:end], bold=True, fg="yellow")]
        begin = end
    return "".join(parts) + text[begin:]


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
            by = memory.model.name or "their words alone"
            say(f"{memory.settings.name}: {count} texts were computed by {by}")

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
    config_file: str | None, name: str, work: Work, *, computes: bool = False,
    rebuilding: bool = False, sees_all: bool = False,
) -> None:  # fmt: skip
    """Opens a memory for some work. computes: it needs vectors. sees_all: also other owners' documents."""
    settings, memories = _settings(config_file)
    try:
        wanted = next((one for one in memories if one.name == name), None)
        if wanted is None:
            known = ", ".join(one.name for one in memories) or "none"
            raise Refused(f"there is no memory {shown(name)}; the configuration (--config FILE) has {known}")
        if sees_all:
            wanted = replace(wanted, shared=True)
        asyncio.run(_run(settings, wanted, work, computes, rebuilding))
    except CANNOT as error:
        raise Refused(error.message if isinstance(error, RequestError) else error) from error


async def _run(
    settings: Settings, wanted: MemorySettings, work: Work, computes: bool, rebuilding: bool
) -> None:
    if wanted.embedding_model is None:
        opened = await Memory.open(wanted, NO_MODEL, rebuilding=rebuilding)
        try:
            await work(opened)
        finally:
            await opened.close()
        return
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
    help="Put, list, find and remove an operator's documents of a memory, and rebuild its vectors. What the "
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
            "search", callback=_search,
            params=[
                CONFIG, NAME, click.Argument(["query"], nargs=-1, required=True, metavar="WORD…"),
                click.Option(["--by"], type=click.Choice(SEARCHES),
                             help="How (default: as the memory is searched); words start no engine."),
                click.Option(["-k", "k"], type=click.IntRange(1, MAX_FOUND), default=5, metavar="N",
                             help="The most chunks (default: 5)."),
                click.Option(["--json", "as_json"], is_flag=True, help="A line of JSON for each chunk."),
            ],
            help="Find the operator's chunks that fit a query best; its words in them are highlighted.",
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
