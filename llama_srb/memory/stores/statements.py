"""The SQL of a memory's file: its tables, and what one transaction does to documents, texts and chunks."""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import orjson

from ..headings import HeadingPath
from ..records import OPERATOR, PROMPT, PROMPT_ID, WITHOUT_KEY, Chunk, Document, Facts, Found, Usage, Vector
from ..source_code import looks_like_source
from ..words import packed
from . import NewDocument, Reader, Room, Sizes, id_of_chunk, read_facts
from .search import Candidate, Effort, Name

SCHEMA = """
CREATE TABLE state (one INTEGER PRIMARY KEY CHECK (one = 1), generation INTEGER, changes INTEGER,
                    removals INTEGER, secret BLOB);
CREATE TABLE facts (generation INTEGER PRIMARY KEY, facts TEXT);
CREATE TABLE texts (number INTEGER PRIMARY KEY AUTOINCREMENT, owner TEXT, hash BLOB, text TEXT,
                    is_source INTEGER, UNIQUE (owner, hash));
CREATE TABLE documents (owner TEXT, id TEXT, text INTEGER REFERENCES texts, metadata TEXT, stored_at REAL,
                        is_prompt INTEGER, PRIMARY KEY (owner, id)) WITHOUT ROWID;
CREATE TABLE chunks (number INTEGER PRIMARY KEY, generation INTEGER, text INTEGER REFERENCES texts,
                     start INTEGER, "end" INTEGER, tokens INTEGER, vector BLOB, words BLOB, headings TEXT);
CREATE INDEX chunks_of_text ON chunks (text, generation);
INSERT INTO state VALUES (1, 1, 0, 0, NULL);
"""
# Numbers of texts are never used again, so newer texts have higher ones. is_source: NULL: of before.
DOCUMENTS = """
SELECT d.id, d.owner, d.metadata, s.characters, d.stored_at, d.text, s.chunks
FROM documents d JOIN sizes s ON s.text = d.text
"""
NEW_ROWS = """
SELECT c.number, c.text, c.vector, t.owner, c.words FROM chunks c JOIN texts t ON t.number = c.text
WHERE c.text > ? AND c.generation = ? ORDER BY c.text, c.number
"""
SIZES = """
CREATE TABLE IF NOT EXISTS sizes (text INTEGER PRIMARY KEY, bytes INTEGER, chunks INTEGER, characters INTEGER)
"""  # beside the texts, which would be read as a whole
MISSING_SIZES = """
INSERT OR REPLACE INTO sizes SELECT t.number, length(CAST(t.text AS BLOB)), (SELECT count(*) FROM chunks c
    WHERE c.text = t.number AND c.generation = (SELECT generation FROM state)), length(t.text)
FROM texts t WHERE t.number NOT IN (SELECT text FROM sizes WHERE characters IS NOT NULL)
"""
INDEXES = (  # what is counted and ordered without reading the metadata, which stand in the table's own rows
    "CREATE INDEX IF NOT EXISTS documents_of_owners ON documents (owner, is_prompt, text)",
    "CREATE INDEX IF NOT EXISTS documents_of_texts ON documents (text, stored_at)",
    "CREATE INDEX IF NOT EXISTS prompts ON documents (owner, text) WHERE is_prompt",
    "DROP INDEX IF EXISTS documents_of_text",
    "CREATE INDEX IF NOT EXISTS chunks_without_words ON chunks (number) WHERE words IS NULL",
    "CREATE INDEX IF NOT EXISTS chunks_without_headings ON chunks (number) WHERE headings IS NULL",
)
WITHOUT_HEADINGS = """
SELECT number, text, generation, start, "end", tokens FROM chunks INDEXED BY chunks_without_headings
WHERE headings IS NULL ORDER BY number LIMIT ?
"""
TEXT = "SELECT text, is_source FROM texts WHERE number = ?"
SPAN = 'SELECT start, "end", headings FROM chunks WHERE number = :chunk'
AROUND = """
WITH found AS (SELECT number, text, generation FROM chunks WHERE number = :chunk)
SELECT c.start, last, c.headings FROM chunks c JOIN (SELECT min(number) AS first, max("end") AS last FROM (
    SELECT * FROM (
        SELECT c.number, c."end" FROM chunks c, found f
        WHERE c.text = f.text AND c.generation = f.generation AND c.number <= f.number
        ORDER BY c.number DESC LIMIT 1 + :around)
    UNION ALL SELECT * FROM (
        SELECT c.number, c."end" FROM chunks c, found f
        WHERE c.text = f.text AND c.generation = f.generation AND c.number > f.number
        ORDER BY c.number LIMIT :around))
) ON c.number = first
"""  # numbers of a text's chunks are in its order
COUNT_WITHOUT_WORDS = "SELECT count(*) FROM chunks INDEXED BY chunks_without_words WHERE words IS NULL"
COUNT_WITHOUT_HEADINGS = (
    "SELECT count(*) FROM chunks INDEXED BY chunks_without_headings WHERE headings IS NULL"
)
WORDS_FROM = "SELECT number, words FROM chunks WHERE number >= ? ORDER BY number"
USAGE = """
SELECT is_prompt, sum(documents), sum(bytes), sum(chunks) FROM (
    SELECT d.is_prompt, count(*) AS documents, s.bytes, s.chunks
    FROM documents d INDEXED BY documents_of_owners LEFT JOIN sizes s ON s.text = d.text
    WHERE d.owner = ? AND d.id <> ? GROUP BY d.is_prompt, d.text
) GROUP BY is_prompt
"""
PROMPTS = """
SELECT d.id, s.bytes FROM documents d INDEXED BY documents_of_owners LEFT JOIN sizes s ON s.text = d.text
WHERE d.owner = ? AND d.is_prompt ORDER BY d.stored_at DESC
"""
TEXTS_OF_PROMPTS = """
SELECT d.text FROM documents d INDEXED BY prompts WHERE d.is_prompt AND {seen}
"""
ONLY_OF_PROMPTS = """
AND NOT EXISTS (SELECT 1 FROM documents o INDEXED BY documents_of_owners
                WHERE o.owner = d.owner AND o.is_prompt = 0 AND o.text = d.text)
"""
PROMPTS_OF_THE_OPERATOR = """
SELECT d.id, d.text, t.hash FROM documents d JOIN texts t ON t.number = d.text
WHERE d.owner = ? AND d.id GLOB ? AND d.metadata = ?
"""
COPIED_TEXT = """
INSERT INTO texts (owner, hash, text, is_source) SELECT ?, hash, text, is_source FROM texts WHERE number = ?
RETURNING number
"""
COPIED_CHUNKS = """
INSERT INTO chunks (generation, text, start, "end", tokens, vector, words, headings)
SELECT generation, ?, start, "end", tokens, vector, words, headings FROM chunks WHERE text = ?
"""
NAMES = "SELECT owner, id FROM documents WHERE text = ? ORDER BY stored_at, id"
METADATA = "SELECT metadata FROM documents WHERE owner = ? AND id = ?"
UNFINISHED = """
SELECT number FROM texts t
WHERE NOT EXISTS (SELECT 1 FROM chunks c WHERE c.text = t.number AND c.generation = ?) ORDER BY number LIMIT 1
"""


PROMPT_ROWS = (json.dumps(PROMPT), PROMPT_ID + "*")  # metadata and id


def usage_of(db: sqlite3.Connection, owner: str, besides: str) -> Usage:
    rows = db.execute(USAGE, (owner, besides))
    found = {is_prompt: (number, size or 0, chunks or 0) for is_prompt, number, size, chunks in rows}
    (documents, size, chunks), (prompts, prompts_size, more) = (found.get(one, (0, 0, 0)) for one in (0, 1))
    return Usage(documents, size, chunks + more, prompts, prompts_size)


def prompts_of(db: sqlite3.Connection, owner: str) -> Sizes:
    return [(id, size or 0) for id, size in db.execute(PROMPTS, (owner,))]


def set_size(db: sqlite3.Connection, number: int, text: str, chunks: int) -> None:
    values = (number, len(text.encode()), chunks, len(text))
    db.execute("INSERT OR REPLACE INTO sizes (text, bytes, chunks, characters) VALUES (?, ?, ?, ?)", values)


def text_of(db: sqlite3.Connection, number: int) -> tuple[str, bool]:
    """A text, empty if it was removed, and whether it is source code."""
    text, is_source = db.execute(TEXT, (number,)).fetchone() or ("", False)
    return text, looks_like_source(text) if is_source is None else bool(is_source)


def text_number(db: sqlite3.Connection, document: NewDocument) -> int | None:
    row = db.execute("SELECT number FROM texts WHERE owner = ? AND hash = ?",
                     (document.owner, document.hash)).fetchone()  # fmt: skip
    return int(row[0]) if row else None


def insert_text(db: sqlite3.Connection, new: NewDocument) -> int:
    row = db.execute("INSERT INTO texts (owner, hash, text, is_source) VALUES (?, ?, ?, ?) RETURNING number",
                     (new.owner, new.hash, new.text, new.is_source)).fetchone()  # fmt: skip
    return int(row[0])


def insert_chunks(db: sqlite3.Connection, generation: int, number: int, chunks: Sequence[Chunk],
                   vectors: Vector, indexed: Sequence[Indexed]) -> None:  # fmt: skip
    db.executemany(
        'INSERT INTO chunks (generation, text, start, "end", tokens, vector, words, headings) '
        "VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
        ((generation, number, one.start, one.end, one.tokens, vector.astype("<f4").tobytes(), *some)
         for one, vector, some in zip(chunks, vectors, indexed, strict=True)),
    )  # fmt: skip


class Indexed(NamedTuple):
    """What a chunk is found by beside its vector. words: packed; headings: those above it, a line each."""

    words: bytes
    headings: str


def indexed(text: str, path: HeadingPath, chunks: Iterable[Chunk]) -> list[Indexed]:
    """path: the text's, asked for chunks before these alone."""
    known = [(one, path.of(one)) for one in chunks]
    return [
        Indexed(packed(some.words(text[one.start : one.end])), "\n".join(some.above)) for one, some in known
    ]


class Earlier:
    """The chunks of an earlier version, whose words or headings are not indexed yet."""

    def __init__(self) -> None:
        self._of = (0, 0)  # a text, and the generation of its chunks
        self._text, self._path = "", HeadingPath("")

    def index(self, db: sqlite3.Connection, most: int) -> int:
        """Indexes the next ones; how many."""
        rows = db.execute(WITHOUT_HEADINGS, (most,)).fetchall()
        for number, text, generation, *chunk in rows:
            if self._of != (text, generation):
                self._text, is_source = text_of(db, text)
                self._of, self._path = (text, generation), HeadingPath(self._text, is_source=is_source)
            (found,) = indexed(self._text, self._path, [Chunk(*chunk)])
            db.execute("UPDATE chunks SET words = ?, headings = ? WHERE number = ?", (*found, number))
        return len(rows)


def name_text(db: sqlite3.Connection, document: NewDocument, number: int) -> bool:
    """Lets a document's name mean this text; whether it meant another one, or this one, before."""
    key = (document.owner, document.id)
    old = db.execute("SELECT text FROM documents WHERE owner = ? AND id = ?", key).fetchone()
    values = (*key, number, json.dumps(document.metadata), time.time(), document.is_prompt)
    names = "owner, id, text, metadata, stored_at, is_prompt"
    db.execute(f"INSERT OR REPLACE INTO documents ({names}) VALUES (?, ?, ?, ?, ?, ?)", values)
    if old and old[0] != number:
        remove_unnamed(db, old[0])
    return old is not None


def remove_unnamed(db: sqlite3.Connection, number: int) -> None:
    """Removes a text that no document has any more."""
    if db.execute("SELECT 1 FROM documents WHERE text = ?", (number,)).fetchone() is None:
        db.execute("DELETE FROM chunks WHERE text = ?", (number,))
        db.execute("DELETE FROM texts WHERE number = ?", (number,))
        db.execute("DELETE FROM sizes WHERE text = ?", (number,))
        db.execute("UPDATE state SET removals = removals + 1")


def remove_document(db: sqlite3.Connection, owner: str, id: str) -> bool:
    """Removes a document, and its text if no other one has it; whether it was there."""
    sql = "DELETE FROM documents WHERE owner = ? AND id = ? RETURNING text"
    if (old := db.execute(sql, (owner, id)).fetchone()) is not None:
        remove_unnamed(db, old[0])
    return old is not None


def require_room(db: sqlite3.Connection, document: NewDocument, room: Room, chunks: int) -> None:
    """RequestError if there is none for a document that is written next. chunks: that come with it."""
    if document.owner != OPERATOR:
        room.require(document, usage_of(db, document.owner, document.id), chunks)


def forget_prompts(db: sqlite3.Connection, document: NewDocument, room: Room) -> None:
    """Removes the oldest prompts of an owner that has too many with the one that was written."""
    if document.is_prompt and document.owner != OPERATOR:
        for id in room.too_old(prompts_of(db, document.owner)):
            remove_document(db, document.owner, id)


def move_prompts(db: sqlite3.Connection) -> None:
    """Gives the prompts that were stored as the operator's, which every key finds, another owner.

    The texts get new numbers, by which other processes that have the file open notice it.
    """
    values = (OPERATOR, PROMPT_ID + "?" * 32, PROMPT_ROWS[0])
    for id, old, hash in db.execute(PROMPTS_OF_THE_OPERATOR, values).fetchall():
        where = (WITHOUT_KEY, hash)
        new = db.execute("SELECT number FROM texts WHERE owner = ? AND hash = ?", where).fetchone()
        if new is None:
            new = db.execute(COPIED_TEXT, (WITHOUT_KEY, old)).fetchone()
            db.execute(COPIED_CHUNKS, (new[0], old))
        db.execute("UPDATE OR REPLACE documents SET owner = ?, text = ? WHERE owner = ? AND id = ?",
                   (WITHOUT_KEY, new[0], OPERATOR, id))  # fmt: skip
        remove_unnamed(db, old)
        db.execute("UPDATE state SET changes = changes + 1")


def facts_of(db: sqlite3.Connection, generation: int) -> Facts | None:
    row = db.execute("SELECT facts FROM facts WHERE generation = ?", (generation,)).fetchone()
    return read_facts(row[0]) if row else None


def seen_by(reader: Reader) -> tuple[str, tuple[str, ...]]:
    """The condition for the documents that a reader sees, and its values."""
    if (owners := reader.owners) is None:
        return "1", ()
    return f"d.owner IN ({', '.join('?' * len(owners))})", tuple(owners)


def texts_of_prompts(db: sqlite3.Connection, reader: Reader, *, only: bool) -> Iterator[int]:
    """The texts of the prompts that a reader sees; only: those that no other document has."""
    seen, values = seen_by(reader)
    sql = TEXTS_OF_PROMPTS.format(seen=seen) + (ONLY_OF_PROMPTS if only else "")
    return (number for (number,) in db.execute(sql, values))


def document_of(row: tuple[Any, ...], text: str = "") -> Document:
    id, owner, metadata, characters, stored_at, _, chunks = row
    return Document(id, owner, json.loads(metadata), characters, chunks, stored_at, text)


def names_of(db: sqlite3.Connection, texts: Sequence[int]) -> dict[int, Iterator[Name]]:
    """The documents of each text, the first stored one first; each is read when it is looked at."""

    def names(text: int) -> Iterator[Name]:
        for owner, id in db.execute(NAMES, (text,)):
            (data,) = db.execute(METADATA, (owner, id)).fetchone()
            yield Name(id, owner, orjson.loads(data), len(data))

    return {text: names(text) for text in texts}


def add_columns(db: sqlite3.Connection) -> None:
    """A file of before has not all columns."""
    db.execute(SIZES)
    for table, column, kind in (
        ("sizes", "characters", "INTEGER"), ("documents", "is_prompt", "INTEGER"),
        ("chunks", "words", "BLOB"), ("chunks", "headings", "TEXT"), ("state", "secret", "BLOB"),
        ("texts", "is_source", "INTEGER"),
    ):  # fmt: skip
        if column not in [row[1] for row in db.execute(f"PRAGMA table_info({table})")]:
            db.execute(f"ALTER TABLE {table} ADD COLUMN {column} {kind}")
    db.execute("UPDATE state SET secret = randomblob(16) WHERE secret IS NULL")
    is_prompt = "metadata = ? AND id GLOB ?"
    db.execute(f"UPDATE documents SET is_prompt = ({is_prompt}) WHERE is_prompt IS NULL", PROMPT_ROWS)
    for statement in INDEXES:
        db.execute(statement)


class Parts:
    """Chunks' own texts. Texts of documents stay while they are few: of a long one each chunk is wanted."""

    KEPT = 32 << 20  # characters

    def __init__(self, db: sqlite3.Connection, effort: Effort) -> None:
        self._db, self._effort = db, effort
        self._texts: dict[int, str] = {}
        self._characters = 0
        (self._secret,) = db.execute("SELECT secret FROM state").fetchone()

    def of(self, one: Candidate) -> tuple[int, int, str]:
        """Where a chunk begins and ends in its document's text, and its own text."""
        start, end, _ = self._db.execute(SPAN, {"chunk": one.chunk}).fetchone()
        return start, end, self._text(one.text)[start:end]

    def found(self, one: Candidate, name: Name, around: int = 0) -> Found:
        """around: how many chunks before and behind it the text has, too."""
        wanted = {"chunk": one.chunk, "around": around}
        start, end, headings = self._db.execute(SPAN, wanted).fetchone()
        id = id_of_chunk(self._secret, one.text, start)
        if around:
            start, end, headings = self._db.execute(AROUND, wanted).fetchone()
        return Found(
            id, name.id, self._text(one.text)[start:end], one.score, name.metadata, name.owner,
            start, end, one.scores, tuple(headings.split("\n")) if headings else (),
            one.instead,
        )  # fmt: skip

    def _text(self, number: int) -> str:
        if (text := self._texts.get(number)) is None:
            (text,) = self._db.execute("SELECT text FROM texts WHERE number = ?", (number,)).fetchone()
            self._effort.read(len(text))
            self._characters += len(text)
            if self._characters > self.KEPT:
                self._texts.clear()
                self._characters = len(text)
            self._texts[number] = text
        return text
