"""One memory: documents become chunks with vectors, and a question finds the nearest chunks.

A client finds what it has stored and what the operator has put in, or all if the memory is shared. It changes
only what it has stored. Vectors are computed outside of the store, which then writes a document at once. So
searches go on meanwhile, and of two puts of one document the later one stays.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain
from operator import attrgetter
from typing import Any, TypeAlias

from llama_srb.engine.exchange import CommandRefused
from llama_srb.request.values import RequestError, SearchBy, whole

from .chunks import SHORT, cleaned
from .documents import PLAIN, CleanText, Documents, Reading, more_exact, said_source
from .filters import NO_FILTER, Filter
from .records import (
    MAX_FOUND,
    MAX_LISTED,
    MAX_QUERY,
    OPERATOR,
    Chunk,
    Document,
    EmbeddingModel,
    Facts,
    FileStore,
    Found,
    MemorySettings,
    MemoryUnusable,
    Progress,
    Stored,
    Vector,
    checked_id,
    checked_metadata,
    checked_text,
    extra,
    nothing_shown,
)
from .room import Room
from .stores import NewDocument, Query, Reader, Store
from .stores.diversity import different, pool_of
from .stores.qdrant import QdrantStore
from .stores.sqlite import SqliteStore
from .stores.vectors import normalised
from .words import asked

EMBEDDED_AT_ONCE = 32  # chunks of one call
RANKED = 50  # chunks that a reranker orders
Ranker: TypeAlias = Callable[[str, Sequence[str]], Awaitable[Sequence[float]]]
"""The relevance of each text to a query."""
OnProgress: TypeAlias = Callable[[Progress], None]


async def open_store(settings: MemorySettings, facts: Facts, rebuilding: bool = False) -> Store:
    """Opens the store of a memory; MemoryUnusable. rebuilding: vectors of another model are accepted."""
    for module in ("numpy", "semchunk"):  # now, not when a client waits for the event loop
        extra(module)
    if isinstance(settings.store, FileStore):
        return await SqliteStore.open(settings.store.path, settings.name, facts, rebuilding=rebuilding)
    return await QdrantStore.open(settings.store, settings.name, facts, rebuilding)


class Memory:
    """A memory with its store open; `close` it at the end."""

    def __init__(
        self, settings: MemorySettings, model: EmbeddingModel, store: Store, documents: Documents,
        client: str = "", ranker: Ranker | None = None,
    ) -> None:  # fmt: skip
        """client: to which the slots of what it does belong. ranker: orders what a search finds."""
        self.settings = settings
        self.model = model
        self._store, self._room = store, Room(settings)
        self._documents, self._client, self._ranker = documents, client, ranker

    @classmethod
    async def open(
        cls,
        settings: MemorySettings,
        model: EmbeddingModel,
        documents: Documents | None = None,
        rebuilding: bool = False,
    ) -> Memory:
        """MemoryUnusable if its vectors are another model's, unless it is opened for `rebuild`."""
        store = await open_store(settings, model.facts(settings), rebuilding)
        return cls(settings, model, store, documents or Documents())

    async def close(self) -> None:
        await self._store.close()

    async def using(self, model: EmbeddingModel) -> Memory:
        """This memory, whose new vectors `model` computes; MemoryOutdated if it is another model."""
        await self._store.require(model.facts(self.settings))
        return Memory(self.settings, model, self._store, self._documents, self._client)

    def of(self, client: str) -> Memory:
        """This memory for a client: it reads and writes in turn with the others, however much one does."""
        return Memory(self.settings, self.model, self._store, self._documents, client)

    def ranked_by(self, ranker: Ranker) -> Memory:
        """This memory, whose searches are ordered by a reranker."""
        return Memory(self.settings, self.model, self._store, self._documents, self._client, ranker)

    @property
    def facts(self) -> Facts:
        """What the stored vectors were made with; new texts are cut as the settings say."""
        return self._store.facts

    async def put_body(
        self, id: object, body: bytes, content_type: str, *, metadata: object = None, owner: str = OPERATOR,
        on_progress: OnProgress = nothing_shown,
    ) -> Stored:  # fmt: skip
        """Stores a file in place of what the owner's document had before; RequestError."""
        content_type = more_exact(content_type, checked_id(id))
        async with self._documents.reading_body(body, content_type, self.settings.chunking, owner) as read:
            return await self.put_read(id, read, metadata=metadata, owner=owner, on_progress=on_progress)

    async def put(
        self, id: object, text: object, *, metadata: object = None, owner: str = OPERATOR,
        on_progress: OnProgress = nothing_shown,
    ) -> Stored:  # fmt: skip
        """Stores a text in place of what the owner's document had before; RequestError."""
        given = checked_text(text, "text", self._documents.limits.text)
        if len(given) > SHORT:
            body = given.encode()
            return await self.put_body(
                id, body, f"{PLAIN}; charset=utf-8", metadata=metadata, owner=owner, on_progress=on_progress
            )
        kept = checked_text(cleaned(given), "text", self._documents.limits.text)
        said = said_source(more_exact(PLAIN, checked_id(id)))
        read = CleanText(kept, self.settings.chunking, said)
        return await self.put_read(id, read, metadata=metadata, owner=owner, on_progress=on_progress)

    async def put_read(
        self, id: object, read: Reading, *, metadata: object = None, owner: str = OPERATOR,
        on_progress: OnProgress = nothing_shown,
    ) -> Stored:  # fmt: skip
        """Stores what was read of a document in place of what the owner's had before; RequestError.

        A text that the owner has stored before, under any id, is not computed again.
        """
        new = NewDocument(checked_id(id), owner, read.text, checked_metadata(metadata), read.is_source)
        on_progress(Progress("read", len(new.text), len(new.text)))
        if owner != OPERATOR:
            async with self._store.turns.reads.slot(self._client):
                used = await self._store.used(owner, new.id)
            self._room.require(new, used, 0)  # before anything is computed for it
        async with self._store.turns.writes.slot(self._client):
            linked = await self._store.link(new, self._room)
        if linked is not None:
            await read.close()
            count, replaced = linked
            on_progress(Progress("stored", count, count))
            return Stored(new.id, count, 0, replaced)
        chunks = await read.chunks(self.model.count_tokens)
        if owner != OPERATOR:
            self._room.require(new, used, len(chunks))
        vectors = await self._computed(read, chunks, on_progress)
        async with self._store.turns.writes.slot(self._client):
            replaced = await self._store.add(new, chunks, vectors, self._room)
        on_progress(Progress("stored", len(chunks), len(chunks)))
        return Stored(new.id, len(chunks), len(chunks) if self.model.width else 0, replaced)

    async def delete(self, id: object, owner: str = OPERATOR) -> bool:
        """Deletes an owner's own document; whether there was one."""
        name = checked_id(id)
        async with self._store.turns.writes.slot(self._client):
            return await self._store.remove(owner, name)

    async def get(self, id: object, owner: str = OPERATOR) -> Document | None:
        """A document that a client sees: its own, else the operator's, else (if shared) another one's."""
        return await self._get(checked_id(id), self._reader(owner))

    async def documents(
        self, owner: str = OPERATOR, after: tuple[str, str] = ("", ""), limit: int = 100, *,
        of_all: bool = False,
    ) -> list[Document]:  # fmt: skip
        """What a client sees, without texts, by (id, owner); `after` is that of the last one of a page.

        of_all: the documents of all clients.
        """
        reader = Reader(owner, shared=of_all or self.settings.shared)
        most = whole("limit", limit, 1, MAX_LISTED)
        async with self._store.turns.reads.slot(self._client):
            return await self._store.documents(reader, after, most)

    async def named(self, id: object, owner: str | None = None) -> list[Document]:
        """The documents of this id, those of all owners or of one, without texts; the operator's first."""
        name = checked_id(id)
        first = await self._get(name, Reader(OPERATOR))
        async with self._store.turns.reads.slot(self._client):
            everybody, after = Reader(OPERATOR, shared=True), (name, OPERATOR)
            others = await self._store.documents(everybody, after, MAX_LISTED, name)
        found = [*([first] if first else []), *others]
        return [one for one in found if owner in (None, one.owner)]

    @property
    def search_by(self) -> SearchBy:
        """How it is searched where nothing is said; by meaning until all words are there."""
        if self.model.width and not self._store.has_words:
            return "meaning"
        return self.settings.searched_by(self.model.is_made_to_embed)

    @property
    def has_words(self) -> bool:
        """Whether the words of all chunks are there; those of an older file are added in the background."""
        return self._store.has_words

    async def search(
        self, query: object, k: object = 5, filter: Filter = NO_FILTER, owner: str = OPERATOR,
        by: SearchBy | None = None, around: int = 0, *, cosines: bool = True,
    ) -> list[Found]:  # fmt: skip
        """The k chunks that an owner sees and that fit the query best: by words, by vectors or by both.

        by: as the memory is configured, unless it is given. around: how many chunks before and behind it the
        text of each has, too. cosines: of what is found by words; they need the model. RequestError if the
        filter compares too much.
        """
        count = whole("k", k, 1, MAX_FOUND)
        return await self.search_each(query, [(count, filter)], owner, by, around, cosines=cosines)

    async def search_each(
        self, query: object, wanted: Sequence[tuple[int, Filter]], owner: str = OPERATOR,
        by: SearchBy | None = None, around: int = 0, *, cosines: bool = True,
    ) -> list[Found]:  # fmt: skip
        """As search(), for several numbers of chunks, each with its filter; the best of all are first."""
        text, by = checked_text(query, "query", MAX_QUERY), by or self.search_by
        self.settings.require_search(by)
        for _, filter in wanted:
            if filter.has_scores:
                self.settings.require_scores("filter")
        is_embedded = self.model.width and (cosines or by != "words")
        vector = await self._vector(text, by) if is_embedded else None
        looked_for = Query(by, vector, [] if by == "meaning" else asked(text), around)
        pools = wanted if self._ranker is None else [_pool(k, filter) for k, filter in wanted]
        async with self._store.turns.reads.slot(self._client):
            each = [
                await self._store.search(looked_for, k, filter, self._reader(owner)) for k, filter in pools
            ]
        if self._ranker is not None:
            each = [
                _different(await self._in_order(self._ranker, text, some), k, filter)
                for some, (k, filter) in zip(each, wanted, strict=True)
            ]
        found = list(chain.from_iterable(each))
        return sorted(found, key=partial(_rank, by)) if len(wanted) > 1 else found

    async def _in_order(self, ranker: Ranker, query: str, found: list[Found]) -> list[Found]:
        """The first ones by their relevance, then the others."""
        first, rest = found[:RANKED], found[RANKED:]
        if not first:
            return found
        told = zip(first, await ranker(query, [one.text for one in first]), strict=True)
        scored = [replace(one, scores=replace(one.scores, relevance=score)) for one, score in told]
        return sorted(scored, key=lambda one: -(one.scores.relevance or 0.0)) + rest

    async def _vector(self, query: str, by: SearchBy) -> Any:
        """None: it is too long for the model, and words are enough."""
        try:
            return (await self._vectors([self.settings.query_prefix + query]))[0]
        except CommandRefused as error:
            if error.error.param != "input":
                raise
            if by == "words":
                return None
            raise RequestError(error.error.message.replace("input[0]", "query"), param="query") from None

    async def rebuild(self, on_progress: OnProgress = nothing_shown) -> int:
        """Cuts and computes all stored texts anew; how many. The old vectors are used until all are there.

        A rebuild that was cut goes on where it was, if model and chunking are the same.
        """
        facts = self.model.facts(self.settings)
        done = 0
        while (text := await self._store.rebuild_next(facts)) is not None:
            key, content, is_source = text
            read = CleanText(content, self.settings.chunking, is_source)  # however long: nobody else waits
            chunks = await read.chunks(self.model.count_tokens)
            await self._store.rebuild_text(key, chunks, await self._computed(read, chunks, on_progress))
            done += 1
        return done

    async def _computed(self, read: Reading, chunks: Sequence[Chunk], on_progress: OnProgress) -> Vector:
        """The vectors of the chunks of a text."""
        on_progress(Progress("chunked", len(chunks), len(chunks)))
        vectors = extra("numpy").empty((len(chunks), self.model.width), "f4")
        if not self.model.width:
            return vectors
        for first in range(0, len(chunks), EMBEDDED_AT_ONCE):
            some = chunks[first : first + EMBEDDED_AT_ONCE]
            behind = first + len(some)
            prefix = self.settings.passage_prefix
            texts = [prefix + read.text[one.start : one.end] for one in some]
            vectors[first:behind] = await self._vectors(texts)
            on_progress(Progress("embedded", behind, len(chunks)))
        return vectors

    async def _vectors(self, texts: Sequence[str]) -> Any:
        """MemoryUnusable if the model gives vectors of another width than it has said."""
        try:
            return normalised(await self.model.embed(texts), self.model.width)
        except ValueError as error:
            raise MemoryUnusable(f"memory {self.settings.name}: {self.model.name}: {error}") from None

    async def _get(self, id: str, reader: Reader) -> Document | None:
        async with self._store.turns.reads.slot(self._client):
            return await self._store.get(id, reader)

    def _reader(self, owner: str) -> Reader:
        return Reader(owner, self.settings.shared)


def _pool(k: int, filter: Filter) -> tuple[int, Filter]:
    """What a reranker orders for the k best chunks; which of them differ is seen in its order."""
    return max(pool_of(k) if filter.diversity else k, RANKED), replace(filter, diversity=0.0)


def _different(ranked: list[Found], k: int, filter: Filter) -> list[Found]:
    return different(ranked, k, filter.diversity, attrgetter("text")) if filter.diversity else ranked[:k]


def _rank(by: SearchBy, one: Found) -> float:
    """Orders what several searches have found; words are rare or frequent in other texts for each of them."""
    scores = one.scores
    if scores.relevance is not None:
        return -scores.relevance
    found = {"words": scores.words, "meaning": one.score, "hybrid": scores.fused}[by]
    return -(found or 0.0)
