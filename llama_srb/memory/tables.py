"""From the tables [memories.X] of a file to settings of memories; what is wrong is an error at the start."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields, replace
from functools import partial
from pathlib import Path
from typing import Any, Protocol, TypeAlias

from llama_srb.config import Settings, SettingsError, Table
from llama_srb.config.names import fault
from llama_srb.config.readers import size
from llama_srb.config.words import Given, nearest, quoted
from llama_srb.request.values import SEARCHES, RequestError, SearchBy, is_text, named, switch, whole, wrong

from .filters import parse
from .records import (
    INSTALL,
    Bounds,
    Chunking,
    FileStore,
    MemorySettings,
    QdrantSettings,
)

Reader: TypeAlias = Callable[[object], Any]
MODULES = ("lxml", "numpy", "pypdf", "qdrant_client", "semchunk", "usearch")  # of the extra
STORE = 'a table: { file = "FILE" } or { qdrant = { url = "http://…", collection = "NAME" } }'
DEFAULT = Chunking()
MOST_PREFIX = 512  # bytes
QDRANT = ("url", "collection", "api_key")  # the last one may be absent


def _text(name: str) -> Reader:
    def read(value: object) -> object:
        if not is_text(value) or not value:
            raise wrong(name, value, "a text that is not empty")
        return value

    return read


def _prefix(name: str) -> Reader:
    def read(value: object) -> object:
        if not isinstance(value, str) or not is_text(value) or len(value.encode()) > MOST_PREFIX:
            raise wrong(name, value, f"a text of at most {MOST_PREFIX} bytes")
        return value

    return read


def _texts(value: object) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(is_text(one) for one in value):
        raise wrong("chunk_separators", value, "a list of texts")
    return tuple(value)


def _embedding_model(value: object) -> object:
    """A name; False: none."""
    return value if value is False else _text("embedding_model")(value)


def _store(value: object) -> FileStore | QdrantSettings:
    """The store; a file's path is relative to the folder of the settings."""
    if not isinstance(value, dict) or len(value) != 1:
        raise wrong("store", value, STORE)
    (kind, where), *_ = value.items()
    if kind == "file":
        return FileStore(Path(_text("store.file")(where)).expanduser())
    if kind != "qdrant":
        raise RequestError(f"store has {kind!r}; it must be {STORE}{nearest(kind, ('file', 'qdrant'))}")
    if not isinstance(where, dict):
        raise wrong("store.qdrant", where, 'a table: { url = "http://…", collection = "NAME" }')
    for name in where:
        if name not in QDRANT:
            hint = nearest(name, QDRANT)
            raise RequestError(f"store.qdrant has {name!r}; it may have {', '.join(QDRANT)}{hint}")
    for name in QDRANT[:2]:
        if name not in where:
            raise RequestError(f"store.qdrant has no {name}")
    return QdrantSettings(**{name: _text(f"store.qdrant.{name}")(one) for name, one in where.items()})


def _bound(name: str) -> Reader:
    return lambda value: whole(name, size(value), 1, 2**63 - 1)


def _as_it_is(value: object) -> object:
    return value  # Chunking checks it


FIELDS: Mapping[str, Reader] = {
    "embedding_model": _embedding_model,
    "store": _store,
    "chunk_tokens": _as_it_is,
    "chunk_overlap": _as_it_is,
    "chunk_separators": _texts,
    "shared": partial(switch, "shared"),
    "search": partial(named, "search", SEARCHES),
    "query_prefix": _prefix("query_prefix"),
    "passage_prefix": _prefix("passage_prefix"),
    "reranker": _text("reranker"),
    **{f"max_{one.name}": _bound(f"max_{one.name}") for one in fields(Bounds)},
}
"""The fields of a memory's table."""


def read(settings: Settings) -> list[MemorySettings]:
    """The memories of a server; SettingsError names the table and its field.

    A memory without embedding_model has the server's default model.
    """
    found = [_memory(table, settings) for table in settings.memories]
    places: dict[object, str] = {}
    for memory in found:
        if (other := places.setdefault(_place(memory.store), memory.name)) != memory.name:
            raise SettingsError(
                f"the memories {other} and {memory.name} have one store, {_shown(memory.store)}"
            )
    if found:
        require_modules()
    return found


class Recalls(Protocol):
    """What a task recalls: as llama_srb.tasks.task.Recall."""

    @property
    def memory(self) -> str: ...
    @property
    def search(self) -> SearchBy | None: ...
    @property
    def pre_filter(self) -> Mapping[str, Any]: ...
    @property
    def post_filter(self) -> Mapping[str, Any]: ...


def check_recall(task: str, recall: Recalls, memories: Iterable[MemorySettings]) -> None:
    """SettingsError if a task's filter is wrong, or its memory cannot be searched so."""
    memory = next(one for one in memories if one.name == recall.memory)
    try:
        if recall.search is not None:
            memory.require_search(recall.search)
        for name in ("pre_filter", "post_filter"):
            if any(one.key is None for one in parse(getattr(recall, name) or None, name)):  # about the score
                memory.require_scores(name)
    except RequestError as error:
        raise SettingsError(f"tasks.{quoted(task)}.recall: {error.message}") from None


def require_modules(names: Iterable[str] = MODULES) -> None:
    """SettingsError with the command that installs what memories need."""
    if missing := [name for name in names if importlib.util.find_spec(name) is None]:
        raise SettingsError(
            f"[memories.NAME] needs packages that are not installed ({', '.join(missing)}): {INSTALL}"
        )


def _memory(table: Table, settings: Settings) -> MemorySettings:
    if (why := fault(table.name)) is not None or "/" in table.name:
        raise SettingsError(f"{table.name!r} cannot be the name of {table.place}: {why or 'it has a slash'}")
    for key, given in table.values.items():
        if key not in FIELDS:
            raise SettingsError(f"{given.place()} is not a field of a memory{nearest(key, FIELDS)}")
    if "store" not in table.values:
        raise SettingsError(f'{table.place} has no store; write store = {{ file = "{table.name}.db" }}')
    try:
        values = {key: read(table.values[key].value) for key, read in FIELDS.items() if key in table.values}
        chunking = _chunking(values)
    except RequestError as error:
        where = next(given.where for given in table.values.values())
        raise SettingsError(f"{table.place}{where}: {error.message}") from None
    memory = MemorySettings(
        table.name,
        _model(table.values.get("embedding_model"), settings),
        _beside(table.folder, values["store"]),
        chunking,
        values.get("shared", False),
        Bounds(**{key[4:]: value for key, value in values.items() if key.startswith("max_")}),
        values.get("search"),
        values.get("passage_prefix", ""),
        values.get("query_prefix", ""),
        _named_model(table.values["reranker"], settings) if "reranker" in table.values else None,
    )
    if memory.search is not None:
        try:
            memory.require_search(memory.search)
        except RequestError as error:
            raise SettingsError(f"{table.values['search'].place()}: {error.message}") from None
    return memory


def _chunking(values: Mapping[str, Any]) -> Chunking:
    """An overlap that is not given is at most a fifth of a chunk."""
    tokens = values.get("chunk_tokens", DEFAULT.tokens)
    default = min(DEFAULT.overlap, tokens // 5) if isinstance(tokens, int) else DEFAULT.overlap
    return Chunking(tokens, values.get("chunk_overlap", default), values.get("chunk_separators", ()))


def _model(given: Given | None, settings: Settings) -> str | None:
    """The own name of the model; None: the memory has none."""
    if given is not None and given.value is False:
        return None
    return settings.default.model_names[0] if given is None else _named_model(given, settings)


def _named_model(given: Given, settings: Settings) -> str:
    """The own name of a model that is served."""
    for model in settings.served:
        if given.value in model.model_names:
            return model.model_names[0]
    known = [name for model in settings.served for name in model.model_names]
    adapters = [name for model in settings.served for name in model.adapters]
    why = (
        "an adapter, and vectors are made without one"
        if given.value in adapters
        else "there is no such model"
    )
    raise SettingsError(f"{given.place()} is {given.value!r}; {why}{nearest(str(given.value), known)}")


def _beside(folder: Path, store: FileStore | QdrantSettings) -> FileStore | QdrantSettings:
    if isinstance(store, FileStore):
        return FileStore(folder / store.path)
    return store if "://" in store.url else replace(store, url=str(folder / Path(store.url).expanduser()))


def _place(store: FileStore | QdrantSettings) -> object:
    return store.path.resolve() if isinstance(store, FileStore) else (store.url.rstrip("/"), store.collection)


def _shown(store: FileStore | QdrantSettings) -> str:
    return str(store.path) if isinstance(store, FileStore) else f"{store.collection} at {store.url}"
