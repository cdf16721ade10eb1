"""A memory in a SQLite file (WAL). Two threads own its connections: one writes, one reads.

The reading thread owns the matrix of vectors, too. Each search begins a read transaction and first takes over
what this process or another one has changed in the file; so matrix and tables are always of one moment. A
write is one transaction. Vectors have a generation: a rebuild writes the next one beside the one in use. The
words of chunks and their headings stand beside their vectors; those of files of earlier versions are added
in the background.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

from llama_srb import background

from ..filters import Filter
from ..headings import HeadingPath
from ..records import Chunk, Document, Facts, Found, MemoryUnusable, Usage, Vector, extra
from . import ANN_ROWS, NewDocument, Query, Reader, Room, Turns, Unfinished, begun_in, written
from .search import Candidate, Effort, Efforts, chosen, up_to_the_bound
from .statements import (
    COUNT_WITHOUT_HEADINGS,
    COUNT_WITHOUT_WORDS,
    DOCUMENTS,
    MISSING_SIZES,
    NEW_ROWS,
    SCHEMA,
    UNFINISHED,
    WORDS_FROM,
    Earlier,
    Indexed,
    Parts,
    add_columns,
    document_of,
    facts_of,
    forget_prompts,
    indexed,
    insert_chunks,
    insert_text,
    move_prompts,
    name_text,
    names_of,
    remove_document,
    require_room,
    seen_by,
    set_size,
    text_number,
    text_of,
    texts_of_prompts,
    usage_of,
)
from .vectors import Rows

BUSY_SECONDS = 30.0  # another process may write a large document
FORMAT = 2  # chunks have words
EARLIER_FORMAT = 1  # becomes FORMAT when it is opened
ROWS_AT_ONCE = 4096  # taken over into the matrix; the event loop runs between them
PACKED_AT_ONCE, INDEXED_AT_ONCE = 256, 128  # chunks whose words are found at once: 20 ms
SHOWN_EVERY = 10.0  # seconds between two lines of the log about words that are indexed
_APPLICATION = 0x6C737262  # "lsrb"

T = TypeVar("T")
log = logging.getLogger(__name__)


class SqliteStore:
    """Documents, chunks and vectors in one file."""

    def __init__(self, path: Path, name: str, ann_rows: int = ANN_ROWS) -> None:
        self._path, self._name, self._ann_rows = path, name, ann_rows
        self._writing = ThreadPoolExecutor(1, "memory-write")
        self._reading = ThreadPoolExecutor(1, "memory-read")
        self._writer: sqlite3.Connection
        self._reader: sqlite3.Connection
        self._connections: list[sqlite3.Connection] = []
        self._efforts, self.turns = Efforts(), Turns()
        self.facts: Facts
        self._generation = 0
        self._accepted: set[tuple[str, int]] = set()  # fingerprints and widths that vectors may have
        self._rows: Rows
        self._seen = (-1, 0, 0, 0)  # generation, changes, removals and highest text of the rows
        # Chunks of an earlier version when it was opened; 0 when they are indexed.
        self._without_words = self._without_headings = 0
        self._indexing: asyncio.Task[None] | None = None

    @classmethod
    async def open(cls, path: Path, name: str, facts: Facts, ann_rows: int = ANN_ROWS,
                   rebuilding: bool = False) -> SqliteStore:  # fmt: skip
        """Opens or makes a file; MemoryUnusable. rebuilding: vectors of another model are accepted."""
        store = cls(path, name, ann_rows)
        try:
            await _in(store._writing, name, lambda: store._open(facts, rebuilding))
        except BaseException:
            await store.close()
            raise
        if store._without_headings:
            store._indexing = background.begin(store._index(), f"words of memory {name}")
        return store

    @property
    def has_words(self) -> bool:
        return not self._without_words

    async def require(self, facts: Facts) -> None:
        if not self.facts.fit(facts):
            await _in(self._writing, self._name, lambda: self._take(facts))

    async def close(self) -> None:
        """Closes the file after the write that has begun, and ends searches; a second call does nothing."""
        self._efforts.end()
        if self._indexing is not None:
            self._indexing.cancel()
            await asyncio.wait([self._indexing])
        for connection in self._connections[1:]:  # the one that reads
            connection.interrupt()
        for thread in (self._reading, self._writing):
            await asyncio.to_thread(thread.shutdown)
        while self._connections:
            self._connections.pop().close()

    # Writes

    async def add(self, document: NewDocument, chunks: Sequence[Chunk], vectors: Vector, room: Room) -> bool:
        def add(db: sqlite3.Connection) -> bool:
            number = text_number(db, document)  # another put may have stored it meanwhile
            require_room(db, document, room, 0 if number is not None else len(chunks))
            if number is None:
                number = insert_text(db, document)
                insert_chunks(db, self._generation, number, chunks, vectors, known)
                set_size(db, number, document.text, len(chunks))
            replaced = name_text(db, document, number)
            forget_prompts(db, document, room)
            return replaced

        known = await self._indexed(document.text, chunks, is_source=document.is_source)
        return await self._write(add)

    async def link(self, document: NewDocument, room: Room) -> tuple[int, bool] | None:
        def link(db: sqlite3.Connection) -> tuple[int, bool] | None:
            if (number := text_number(db, document)) is None:
                return None
            require_room(db, document, room, 0)  # its chunks are there
            (count,) = db.execute("SELECT count(*) FROM chunks WHERE text = ? AND generation = ?",
                                  (number, self._generation)).fetchone()  # fmt: skip
            replaced = name_text(db, document, number)
            forget_prompts(db, document, room)
            return count, replaced

        return await self._write(link)

    async def remove(self, owner: str, id: str) -> bool:
        def remove(db: sqlite3.Connection) -> bool:
            return remove_document(db, owner, id)

        return await self._write(remove)

    # Reads

    async def get(self, id: str, reader: Reader) -> Document | None:
        def get(db: sqlite3.Connection) -> Document | None:
            sql, values = seen_by(reader)
            rows = db.execute(f"{DOCUMENTS} WHERE d.id = ? AND {sql}", (id, *values)).fetchall()
            if not rows:
                return None
            row = min(rows, key=lambda row: reader.rank(row[1]))
            (text,) = db.execute("SELECT text FROM texts WHERE number = ?", (row[5],)).fetchone()
            return document_of(row, text)

        return await self._read(get)

    async def documents(
        self, reader: Reader, after: tuple[str, str], limit: int, id: str | None = None
    ) -> list[Document]:
        def listed(db: sqlite3.Connection) -> list[Document]:
            sql, values = seen_by(reader)
            named, names = ("1", ()) if id is None else ("d.id = ?", (id,))
            rows = db.execute(f"{DOCUMENTS} WHERE (d.id, d.owner) > (?, ?) AND {named} AND {sql} "
                              "ORDER BY d.id, d.owner LIMIT ?", (*after, *names, *values, limit))  # fmt: skip
            return [document_of(row) for row in rows]

        return await self._read(listed)

    async def used(self, owner: str, besides: str) -> Usage:
        return await self._read(lambda db: usage_of(db, owner, besides))

    async def search(self, query: Query, k: int, filter: Filter, reader: Reader) -> list[Found]:
        def search(db: sqlite3.Connection) -> list[Found]:
            self._update_rows(db)
            if query.vector is not None and len(query.vector) != self._rows.width:
                raise MemoryUnusable(f"memory {self._name} is being rebuilt")
            ranked = self._ranked(db, query, k, filter.prompts, reader, effort)
            parts = Parts(db, effort)
            best = chosen(ranked, k, filter, partial(names_of, db), lambda one: parts.of(one)[2], effort)
            found = dict[int, Found]()
            with up_to_the_bound(filter):
                for one, name in sorted(best, key=lambda pair: pair[0].text):  # each text is read once
                    effort.require_a_reader()
                    found[one.chunk] = parts.found(one, name, query.around)
            return [found[one.chunk] for one, _ in best if one.chunk in found]

        with self._efforts.begun() as effort:
            return await self._read(search)

    def _ranked(
        self, db: sqlite3.Connection, query: Query, k: int, prompts: bool | None, reader: Reader,
        effort: Effort,
    ) -> Iterator[Candidate]:  # fmt: skip
        texts, besides = None, prompts is False
        if prompts is not None:
            texts = extra("numpy").fromiter(texts_of_prompts(db, reader, only=besides), "i8")
        return self._rows.found(
            query, reader.owners, k, texts, besides=besides, alive=effort.require_a_reader
        )

    # Rebuilding

    async def rebuild_next(self, facts: Facts) -> Unfinished | None:
        """Puts the new vectors into use when all texts have them; a rebuild that was cut goes on."""

        def following(db: sqlite3.Connection) -> Unfinished | None:
            (current,) = db.execute("SELECT generation FROM state").fetchone()
            following = current + 1
            if facts_of(db, following) != facts:
                db.execute("DELETE FROM chunks WHERE generation = ?", (following,))
                db.execute("INSERT OR REPLACE INTO facts VALUES (?, ?)", (following, written(facts)))
            if (row := db.execute(UNFINISHED, (following,)).fetchone()) is not None:
                return Unfinished((row[0], following), *text_of(db, row[0]))
            db.execute("DELETE FROM chunks WHERE generation < ?", (following,))
            db.execute("DELETE FROM facts WHERE generation < ?", (following,))
            db.execute("UPDATE state SET generation = ?", (following,))
            return None

        self._accepted.add((facts.fingerprint, facts.width))
        if (text := await self._write(following)) is None:
            self.facts = facts
        return text

    async def rebuild_text(self, key: Any, chunks: Sequence[Chunk], vectors: Vector) -> None:
        number, generation = key

        def insert(db: sqlite3.Connection) -> None:
            if db.execute(
                "SELECT 1 FROM texts WHERE number = ?", (number,)
            ).fetchone():  # or removed meanwhile
                insert_chunks(db, generation, number, chunks, vectors, known)
                db.execute("UPDATE sizes SET chunks = ? WHERE text = ?", (len(chunks), number))

        text, is_source = await self._read(lambda db: text_of(db, number))
        known = await self._indexed(text, chunks, is_source=is_source)
        await self._write(insert)

    # Words and headings

    async def _indexed(self, text: str, chunks: Sequence[Chunk], *, is_source: bool) -> list[Indexed]:
        """Words and headings of chunks, some at a time: nothing else runs while they are found."""
        found, coming = list[Indexed](), iter(chunks)
        path = await _in(self._writing, self._name, partial(HeadingPath, text, is_source=is_source))
        while some := list(islice(coming, PACKED_AT_ONCE)):
            found += await _in(self._writing, self._name, partial(indexed, text, path, some))
        return found

    async def _index(self) -> None:
        """Indexes what an earlier version has stored, between the writes of others."""
        total, done, shown, earlier = self._without_headings, 0, time.monotonic(), Earlier()
        log.info("memory %s: the words of %d chunks of an earlier version are indexed", self._name, total)
        try:
            while count := await self._write(lambda db: earlier.index(db, INDEXED_AT_ONCE)):
                done += count
                if time.monotonic() > shown + SHOWN_EVERY:
                    shown = time.monotonic()
                    log.info("memory %s: the words of %d of %d chunks are indexed", self._name, done, total)
        except MemoryUnusable as error:
            log.warning("%s; the words of %d chunks are not indexed yet", error, total - done)
            return
        if total > self._without_words:  # others had words, to which those of headings have come

            def forget() -> None:
                self._seen = (-1, 0, 0, 0)

            await _in(self._reading, self._name, forget)
        self._without_words = self._without_headings = 0
        log.info("memory %s: all words are indexed", self._name)

    def _learn_words(self, db: sqlite3.Connection) -> None:
        """Takes over the words that were indexed since rows have been read; they come in order."""
        missing = self._rows.without_words()
        if not len(missing):
            return
        wanted, chunks, words = set(missing.tolist()), list[int](), list[bytes]()
        for number, some in db.execute(WORDS_FROM, (int(missing[0]),)):
            if number in wanted:
                if some is None:
                    break
                chunks.append(number)
                words.append(some)
        if chunks:
            self._rows.learn(chunks, words)

    # The matrix

    def _update_rows(self, db: sqlite3.Connection) -> None:
        """Takes over what the file has that the matrix has not."""
        np = extra("numpy")
        generation, changes, removals = db.execute(
            "SELECT generation, changes, removals FROM state"
        ).fetchone()
        is_other = self._seen[0] != generation or self._rows.width != self.facts.width
        if self._seen[:2] == (generation, changes) and not is_other:
            return
        if is_other:
            width = self._accepted_facts(db, generation).width
            self._rows, self._seen = Rows(width, self._ann_rows), (generation, 0, removals, 0)
        highest = self._seen[3]
        if self._seen[2] != removals:
            left = np.fromiter((n for (n,) in db.execute("SELECT number FROM texts")), np.int64)
            self._rows.remove_all_but(left)
        self._learn_words(db)
        new = db.execute(NEW_ROWS, (highest, generation))
        while some := new.fetchmany(ROWS_AT_ONCE):
            numbers, texts, vectors, owners, words = zip(*some, strict=True)
            matrix = np.frombuffer(b"".join(vectors), "<f4").reshape(len(some), self._rows.width)
            self._rows.add(matrix, numbers, texts, owners, words)
            highest = max(highest, texts[-1])
        self._seen = (generation, changes, removals, highest)

    # Connections and threads

    def _open(self, facts: Facts, rebuilding: bool) -> None:
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            os.close(os.open(self._path, os.O_CREAT | os.O_RDWR, 0o600))  # it has what clients store
            self._connections += (_connect(self._path), _connect(self._path))
            self._writer, self._reader = self._connections
            self._take(facts, rebuilding)
        except (OSError, sqlite3.Error) as error:
            raise MemoryUnusable(f"memory {self._name}: cannot use {self._path}: {error}") from None

    def _take(self, facts: Facts, rebuilding: bool = False) -> None:
        """Reads the facts of the file's vectors, which must be these unless they are rebuilt."""
        with _transaction(self._writer, "BEGIN IMMEDIATE") as db:
            self._prepare(db, facts)
        self._accepted.add((self.facts.fingerprint, self.facts.width))
        if not rebuilding:
            self.facts.require(self._name, facts)

    def _accepted_facts(self, db: sqlite3.Connection, generation: int) -> Facts:
        """The facts of the file's vectors; MemoryUnusable if a rebuild has made them with another model."""
        facts = facts_of(db, generation)
        if facts is None or (facts.fingerprint, facts.width) not in self._accepted:
            raise MemoryUnusable(
                f"memory {self._name} was rebuilt by another process with another model: make that its "
                "embedding_model, then send SIGHUP or restart the server"
            )
        return facts

    def _prepare(self, db: sqlite3.Connection, facts: Facts) -> None:
        """Makes the tables of a new file; a memory without texts takes the given facts."""
        (version,), (application,) = (db.execute(f"PRAGMA {name}").fetchone()
                                      for name in ("user_version", "application_id"))  # fmt: skip
        if (tables := db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]) == 0:
            for statement in filter(str.strip, SCHEMA.split(";")):
                db.execute(statement)
            db.execute(f"PRAGMA user_version = {FORMAT}")
            db.execute(f"PRAGMA application_id = {_APPLICATION}")
        elif application != _APPLICATION or version not in (EARLIER_FORMAT, FORMAT):
            what = (
                f"format {version}" if application == _APPLICATION else f"{tables} tables of another program"
            )
            raise MemoryUnusable(f"memory {self._name}: {self._path} has {what}; wanted: format {FORMAT}")
        add_columns(db)
        db.execute(f"PRAGMA user_version = {FORMAT}")
        (self._without_words,) = db.execute(COUNT_WITHOUT_WORDS).fetchone()
        (self._without_headings,) = db.execute(COUNT_WITHOUT_HEADINGS).fetchone()
        move_prompts(db)
        db.execute(MISSING_SIZES)
        (self._generation,) = db.execute("SELECT generation FROM state").fetchone()
        found = facts_of(db, self._generation)
        if found is None or db.execute("SELECT 1 FROM texts LIMIT 1").fetchone() is None:
            db.execute("INSERT OR REPLACE INTO facts VALUES (?, ?)", (self._generation, written(facts)))
            found = facts
        self.facts = found

    async def _write(self, work: Callable[[sqlite3.Connection], T]) -> T:
        def write() -> T:
            with _transaction(self._writer, "BEGIN IMMEDIATE") as db:
                (generation,) = db.execute("SELECT generation FROM state").fetchone()
                if generation != self._generation:
                    self._accepted_facts(db, generation)
                    self._generation = generation
                db.execute("UPDATE state SET changes = changes + 1")
                return work(db)

        return await _in(self._writing, self._name, write)

    async def _read(self, work: Callable[[sqlite3.Connection], T]) -> T:
        def read() -> T:
            with _transaction(self._reader, "BEGIN") as db:
                return work(db)

        return await _in(self._reading, self._name, read)


async def _in(thread: ThreadPoolExecutor, name: str, work: Callable[[], T]) -> T:
    """Does some work in a thread; MemoryUnusable if the memory's file fails, as on a full disk."""
    try:
        return await begun_in(thread, name, work)  # no name has it: its error would live on with a read
    except (OSError, sqlite3.OperationalError) as error:
        raise MemoryUnusable(f"memory {name}: cannot use its file: {error}") from error


def _connect(path: Path) -> sqlite3.Connection:
    db = sqlite3.connect(path, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False)
    db.execute("PRAGMA journal_mode = WAL")
    db.execute("PRAGMA synchronous = FULL")
    return db


@contextmanager
def _transaction(db: sqlite3.Connection, begin: str) -> Iterator[sqlite3.Connection]:
    db.execute(begin)
    try:
        yield db
        db.execute("COMMIT")
    except BaseException:
        if db.in_transaction:  # SQLite rolls back by itself on a full disk
            db.execute("ROLLBACK")
        raise
