"""A memory in a collection of Qdrant. Not run against a server so far: tests use the client's local mode.

There are points of four kinds: a text, its chunks (the only ones with vectors), a document, the facts. A
document names a text by its hash. It is written last, with one call, so it is there as a whole or not at all:
chunks whose text no document names are never found. The collection's name is an alias, and a rebuild fills a
new collection beside it. Metadata filters are applied here, not by Qdrant. The writes of a process are in
order; two processes must not write to one collection.
"""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from itertools import islice
from operator import itemgetter
from typing import Any, TypeVar

from ..filters import Filter
from ..headings import HeadingPath
from ..records import (
    OPERATOR,
    PROMPT,
    REBUILD,
    WITHOUT_KEY,
    Chunk,
    Document,
    Facts,
    Found,
    MemoryOutdated,
    MemoryUnusable,
    QdrantSettings,
    Scores,
    Usage,
    Vector,
    extra,
    is_prompt,
)
from ..source_code import looks_like_source
from . import NewDocument, Query, Reader, Room, Turns, Unfinished, begun_in, id_of_chunk
from .fusion import fused
from .points import Points, blank, key_of
from .search import Candidate, Efforts, Name, chosen

T = TypeVar("T")
FIRST = 64  # points of the first call of a search


class QdrantStore:
    """Documents, chunks and vectors in one collection. One thread makes the calls, one the searches."""

    def __init__(self, settings: QdrantSettings, name: str, points: Points) -> None:
        self._name, self._where, self._points = name, settings.url, points
        self._efforts, self.turns = Efforts(), Turns()
        self._writing = ThreadPoolExecutor(1, "memory-write")
        # The local mode is not made for two threads.
        self._reading = self._writing if self._points.is_local else ThreadPoolExecutor(1, "memory-read")
        self.facts: Facts
        self.has_words = True
        self._missing: Iterator[dict[str, Any]] | None = None  # texts that a rebuild has not computed yet

    @classmethod
    async def open(
        cls, settings: QdrantSettings, name: str, facts: Facts, rebuilding: bool = False
    ) -> QdrantStore:
        """Opens or makes a collection; MemoryUnusable. rebuilding: vectors of another model are accepted."""
        points = await asyncio.to_thread(Points, settings)  # the client asks for the server's version
        store = cls(settings, name, points)
        try:
            await store._in(store._writing, lambda: store._open(facts))
            if not rebuilding:
                store.facts.require(name, facts)
        except BaseException:
            await store.close()
            raise
        return store

    async def require(self, facts: Facts) -> None:
        if not self.facts.fit(facts):
            await self._in(self._writing, lambda: self._open(facts))
            self.facts.require(self._name, facts)

    async def close(self) -> None:
        self._efforts.end()
        for thread in (self._reading, self._writing):
            await asyncio.to_thread(thread.shutdown)
        await asyncio.to_thread(self._points.close)

    # Writes

    async def add(self, document: NewDocument, chunks: Sequence[Chunk], vectors: Vector, room: Room) -> bool:
        def add() -> bool:
            self._require_room(document, room, len(chunks))
            hash = document.hash.hex()
            text = {"owner": document.owner, "hash": hash, "text": document.text,
                    "is_source": document.is_source}  # fmt: skip
            self._write_text("", text, chunks, vectors)
            replaced = self._name_text(document, hash)
            self._forget_prompts(document, room)
            return replaced

        return await self._in(self._writing, add)

    async def link(self, document: NewDocument, room: Room) -> tuple[int, bool] | None:
        def link() -> tuple[int, bool] | None:
            hash = document.hash.hex()
            if (text := self._points.payload(key_of("text", document.owner, hash))) is None:
                return None
            self._require_room(document, room, 0)  # its chunks are there
            replaced = self._name_text(document, hash)
            self._forget_prompts(document, room)
            return text["chunks"], replaced

        return await self._in(self._writing, link)

    async def remove(self, owner: str, id: str) -> bool:
        return await self._in(self._writing, lambda: self._remove(owner, id))

    # Reads

    async def get(self, id: str, reader: Reader) -> Document | None:
        def get() -> Document | None:
            found = list(self._points.scroll("document", owners=reader.owners, id=[id]))
            if not found:
                return None
            row = min((one.payload for one in found), key=lambda row: reader.rank(row["owner"]))
            text = self._points.payload(key_of("text", row["owner"], row["hash"])) or {
                "text": "",
                "chunks": 0,
            }
            return _document(row, text["text"])

        return await self._in(self._reading, get)

    async def documents(
        self, reader: Reader, after: tuple[str, str], limit: int, id: str | None = None
    ) -> list[Document]:
        def listed() -> list[Document]:
            rows = [one.payload for one in self._points.scroll("document", owners=reader.owners)]
            rows = [row for row in rows if (row["id"], row["owner"]) > after and id in (None, row["id"])]
            return [_document(row) for row in sorted(rows, key=lambda row: (row["id"], row["owner"]))[:limit]]

        return await self._in(self._reading, listed)

    async def used(self, owner: str, besides: str) -> Usage:
        return await self._in(self._reading, lambda: self._used(owner, besides))

    async def search(self, query: Query, k: int, filter: Filter, reader: Reader) -> list[Found]:
        def search() -> list[Found]:
            points: list[Any] = []
            texts: list[tuple[str, str]] = []
            if (condition := self._condition(filter.prompts, reader)) is None:
                return []
            if query.by != "meaning" and not self.has_words:
                raise MemoryOutdated(
                    f"memory {self._name}: an earlier version has made Qdrant's collection without words: "
                    f"run {REBUILD} {self._name}, or search by meaning"
                )
            ranked = self._ranked(query, k, condition, points, texts)
            names_of = partial(self._names, texts=texts)
            best = chosen(ranked, k, filter, names_of, lambda one: points[one.chunk].payload["text"], effort)
            return [self._found_in(points[one.chunk], one, name, query.around) for one, name in best]

        with self._efforts.begun() as effort:
            return await self._in(self._reading, search)

    # Rebuilding

    async def rebuild_next(self, facts: Facts) -> Unfinished | None:
        """Lets the alias mean the new collection when it has all texts; a rebuild that was cut goes on."""

        def following() -> Unfinished | None:
            target = self._points.target()
            if self._missing is None:
                self._points.prepare(target, facts)
                self._missing = _texts_missing_in(self._points, target)
            text = next(self._missing, None) or next(
                _texts_missing_in(self._points, target), None
            )  # stored meanwhile
            if text is not None:
                text.setdefault("is_source", looks_like_source(text["text"]))
                return Unfinished(text, text["text"], text["is_source"])
            self._points.switch(target, facts)
            self._missing, self.facts, self.has_words = None, facts, True
            return None

        return await self._in(self._writing, following)

    async def rebuild_text(self, key: Any, chunks: Sequence[Chunk], vectors: Vector) -> None:
        def write() -> None:
            self._write_text(self._points.target(), key, chunks, vectors)

        await self._in(self._writing, write)

    # Parts of them; each runs in one of the threads

    def _open(self, facts: Facts) -> None:
        points = self._points
        if not points.has_alias():
            if points.is_collection():
                raise MemoryUnusable(f"memory {self._name}: Qdrant has a collection {points.alias} that is "
                                     "no memory: name another one")  # fmt: skip
            points.prepare(f"{points.alias}.1", facts)
            points.point_alias(f"{points.alias}.1")
        if (found := points.facts()) is None:
            raise MemoryUnusable(f"memory {self._name}: Qdrant's collection {points.alias} is no memory")
        self.facts = found
        points.learn_secret(found)
        _move_prompts(points, found.width)
        is_empty = next(points.scroll("text"), None) is None
        self.has_words = points.has_words()
        if is_empty and not (found == facts and self.has_words):  # a memory without texts takes what is given
            points.prepare(points.target(), facts)
            points.switch(points.target(), facts)
            self.facts, self.has_words = facts, True

    def _used(self, owner: str, besides: str) -> Usage:
        rows = [one.payload for one in self._points.scroll("document", frozenset({owner}))]
        return _usage([row for row in rows if row["id"] != besides])

    def _require_room(self, document: NewDocument, room: Room, chunks: int) -> None:
        """RequestError if there is none for a document that is written next. chunks: that come with it."""
        if document.owner != OPERATOR:
            room.require(document, self._used(document.owner, document.id), chunks)

    def _forget_prompts(self, document: NewDocument, room: Room) -> None:
        """Removes the oldest prompts of an owner that has too many with the one that was written."""
        if document.is_prompt and document.owner != OPERATOR:
            rows = [one.payload for one in self._points.scroll("document", frozenset({document.owner}))]
            prompts = sorted(filter(_is_prompt, rows), key=lambda row: -row["stored_at"])
            for id in room.too_old([(row["id"], _size(row)) for row in prompts]):
                self._remove(document.owner, id)

    def _remove(self, owner: str, id: str) -> bool:
        key = key_of("document", owner, id)
        if (old := self._points.payload(key)) is None:
            return False
        self._points.delete(key)
        _remove_unnamed(self._points, owner, old["hash"])
        return True

    def _write_text(
        self, collection: str, new: dict[str, Any], chunks: Sequence[Chunk], vectors: Vector
    ) -> None:
        """Writes the chunks, then the text, which says that they are all there. new: the text's payload."""
        owner, hash, text = (new[name] for name in ("owner", "hash", "text"))
        about, path = {"owner": owner, "hash": hash}, HeadingPath(text, is_source=new["is_source"])
        self._points.upsert([
            (
                key_of("chunk", owner, hash, str(i)),
                about | {
                    "kind": "chunk", "start": one.start, "end": one.end, "text": part,
                    "headings": list(known.above),
                },
                self._points.with_words(vector.tolist(), known.words(part), self.facts.chunking.tokens),
            )
            for i, (one, vector) in enumerate(zip(chunks, vectors, strict=True))
            for part, known in [(text[one.start : one.end], path.of(one))]
        ], collection)  # fmt: skip
        payload = new | {"kind": "text", "chunks": len(chunks)}
        self._points.upsert([(key_of("text", owner, hash), payload, blank(vectors.shape[1]))], collection)

    def _name_text(self, document: NewDocument, hash: str) -> bool:
        """Writes the document; whether there was one of its name. A text that is left without a name goes."""
        key = key_of("document", document.owner, document.id)
        old = self._points.payload(key)
        text = self._points.payload(key_of("text", document.owner, hash)) or {"chunks": 0}
        payload = {
            "kind": "document", "owner": document.owner, "id": document.id, "hash": hash,
            "metadata": dict(document.metadata), "stored_at": time.time(), "chunks": text["chunks"],
            "characters": len(document.text), "bytes": len(document.text.encode()),
        }  # fmt: skip
        self._points.upsert([(key, payload, blank(self.facts.width))])
        if old is not None and old["hash"] != hash:
            _remove_unnamed(self._points, document.owner, old["hash"])
        return old is not None

    def _condition(self, prompts: bool | None, reader: Reader) -> Any:
        """The chunks that a search looks at; None if there are none. prompts: as of a Filter."""
        if prompts is None:
            return self._points.filter("chunk", reader.owners)
        rows = self._points.scroll("document", reader.owners, kind_of_document=[PROMPT["kind"]])
        hashes = sorted({row["hash"] for one in rows for row in [one.payload] if _is_prompt(row)})
        if prompts:
            return self._points.filter("chunk", reader.owners, hash=hashes) if hashes else None
        rows = self._points.scroll("document", reader.owners, hash=hashes)
        also = {row["hash"] for one in rows for row in [one.payload] if not _is_prompt(row)}
        return self._points.filter("chunk", reader.owners, [one for one in hashes if one not in also])

    def _ranked(
        self, query: Query, k: int, condition: Any, points: list[Any], texts: list[tuple[str, str]]
    ) -> Iterator[Candidate]:
        """Chunks by rank; their points and texts are appended to the lists, which their numbers count."""
        numbers: dict[tuple[str, str], int] = {}
        for point, score, both in self._found(query, k, condition):
            text = (point.payload["owner"], point.payload["hash"])
            if text not in numbers:
                numbers[text] = len(texts)
                texts.append(text)
            points.append(point)
            yield Candidate(
                len(points) - 1, numbers[text], score, Scores(meaning=score, fused=both), query.by
            )

    def _found(
        self, query: Query, k: int, condition: Any
    ) -> Iterator[tuple[Any, float | None, float | None]]:  # fmt: skip
        """Points by rank, with the cosine and what fused() says; Qdrant's words are those of all owners."""
        vector: Any = None if query.vector is None else query.vector.tolist()
        if query.by == "meaning":
            by_meaning = _paged(partial(self._points.nearest, vector, condition), k)
            yield from ((one, min(1.0, float(one.score)), None) for one in by_meaning)
            return
        known, cosines = dict[str, Any](), dict[str, float]()

        def keys(pages: Iterator[Any], *, are_by_meaning: bool) -> Iterator[str]:
            for one in pages:
                known[str(one.id)] = one
                if are_by_meaning:
                    cosines[str(one.id)] = min(1.0, float(one.score))
                yield str(one.id)

        asked = query.asked
        wordiest = _paged(partial(self._points.wordiest, asked, condition), k) if asked else iter(())
        by_words = keys(wordiest, are_by_meaning=False)
        ranked: Iterator[tuple[str, float | None]] = ((one, None) for one in by_words)
        if query.by == "hybrid":
            nearest = _paged(partial(self._points.nearest, vector, condition), k)
            ranked = fused(by_words, keys(nearest, are_by_meaning=True), max(2 * k, FIRST))
        while some := list(islice(ranked, max(k, FIRST))):
            if vector is not None and (missing := [key for key, _ in some if key not in cosines]):
                cosines |= self._points.cosines(vector, missing)
            yield from ((known[key], cosines.get(key), both) for key, both in some)

    def _found_in(self, point: Any, one: Candidate, name: Name, around: int) -> Found:
        """What was found, with the text of so many chunks before and behind it."""
        found = _found(point, one, name, self._points.secret)
        if not around:
            return found
        owner, hash = point.payload["owner"], point.payload["hash"]
        rows = [one.payload for one in self._points.scroll("chunk", frozenset({owner}), hash=[hash])]
        rows.sort(key=itemgetter("start", "end"))
        at = [(row["start"], row["end"]) for row in rows].index((found.start, found.end))
        first, end = rows[max(0, at - around)], rows[min(at + around, len(rows) - 1)]["end"]
        text = (self._points.payload(key_of("text", owner, hash)) or {"text": ""})["text"]
        start, headings = first["start"], _headings(first)
        return replace(found, text=text[start:end], start=start, end=end, headings=headings)

    def _names(self, some: Sequence[int], texts: Sequence[tuple[str, str]]) -> dict[int, list[Name]]:
        """The documents of each text, the first stored one first."""
        found: dict[int, list[Name]] = {text: [] for text in some}
        numbers = {texts[text]: text for text in some}
        owners = frozenset(owner for owner, _ in numbers)
        points = self._points.scroll("document", owners, hash=[hash for _, hash in numbers])
        rows = [one.payload for one in points]
        for row in sorted(rows, key=lambda row: (row["stored_at"], row["id"])):
            if (number := numbers.get((row["owner"], row["hash"]))) is not None:
                found[number].append(Name(row["id"], row["owner"], row["metadata"]))
        return found

    async def _in(self, thread: ThreadPoolExecutor, work: Callable[[], T]) -> T:
        def called() -> T:
            errors = extra("qdrant_client.http.exceptions")
            try:
                return work()
            except (errors.ApiException, OSError, sqlite3.OperationalError) as error:
                reason = str(error).partition("\n")[0][:200]
                raise MemoryUnusable(f"memory {self._name}: Qdrant at {self._where}: {reason}") from None

        return await begun_in(thread, self._name, called)


def _move_prompts(points: Points, width: int) -> None:
    """Gives the prompts that were stored as the operator's, which every key finds, another owner."""
    old, new = frozenset({OPERATOR}), WITHOUT_KEY
    for row in [one.payload for one in points.scroll("document", old)]:
        if not _is_prompt(row):
            continue
        hash = row["hash"]
        for kind in ("chunk", "text"):
            found = points.scroll(kind, old, vectors=True, hash=[hash])
            points.upsert([
                (key_of(kind, new, hash, *numbered), {**one.payload, "owner": new}, one.vector)
                for i, one in enumerate(found)
                for numbered in [[str(i)] if kind == "chunk" else []]
            ])  # fmt: skip
        vector = blank(width)
        points.upsert([(key_of("document", new, row["id"]), {**row, "owner": new}, vector)])
        points.delete(key_of("document", OPERATOR, row["id"]))
        _remove_unnamed(points, OPERATOR, hash)


def _paged(page: Callable[[int, int], Sequence[Any]], k: int) -> Iterator[Any]:
    """The points of pages, each larger than the one before. page: limit, offset → points."""
    limit, offset = max(k, FIRST), 0
    while some := page(limit, offset):
        yield from some
        if len(some) < limit:
            return
        limit, offset = limit * 4, offset + len(some)


def _texts_missing_in(points: Points, target: str) -> Iterator[dict[str, Any]]:
    for point in points.scroll("text"):
        if points.payload(str(point.id), target) is None:
            yield point.payload


def _remove_unnamed(points: Points, owner: str, hash: str) -> None:
    if next(points.scroll("document", frozenset({owner}), hash=[hash]), None) is None:
        for kind in ("text", "chunk"):  # the text first: it says that the chunks are there
            points.delete_all(kind, owner, hash)


def _usage(rows: list[dict[str, Any]]) -> Usage:
    """What documents have together; their texts count once."""
    texts = {row["hash"]: row for row in rows}
    prompts, documents = ([row for row in texts.values() if _is_prompt(row) is one] for one in (True, False))
    n_prompts = sum(map(_is_prompt, rows))
    chunks = sum(row["chunks"] for row in texts.values())
    return Usage(
        len(rows) - n_prompts, sum(map(_size, documents)), chunks, n_prompts, sum(map(_size, prompts))
    )


def _is_prompt(row: dict[str, Any]) -> bool:
    return is_prompt(row["id"], row["metadata"])


def _size(row: dict[str, Any]) -> int:
    """The bytes of a document's text; of an earlier version's the characters."""
    return int(row.get("bytes", row["characters"]))


def _document(row: dict[str, Any], text: str = "") -> Document:
    return Document(
        row["id"], row["owner"], row["metadata"], row["characters"], row["chunks"], row["stored_at"], text
    )


def _found(point: Any, one: Candidate, name: Name, secret: bytes) -> Found:
    row = point.payload
    id = id_of_chunk(secret, row["owner"], row["hash"], row["start"])
    return Found(
        id, name.id, row["text"], one.score, name.metadata, name.owner, row["start"], row["end"],
        one.scores, _headings(row),
    )  # fmt: skip


def _headings(row: dict[str, Any]) -> tuple[str, ...]:
    """The headings above a chunk; those of an earlier version's are not known until a rebuild."""
    return tuple(row.get("headings", ()))
