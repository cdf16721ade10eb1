"""The SQL of a memory's file: its tables, and what one transaction does to documents, texts and chunks."""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Iterator, Sequence
from typing import Any

from ..records import OPERATOR, PROMPT, PROMPT_ID, WITHOUT_KEY, Chunk, Document, Facts, Found, Usage, Vector
from . import NewDocument, Reader, Sizes, read_facts
from .search import Candidate, Name

SCHEMA = """
CREATE TABLE state (one INTEGER PRIMARY KEY CHECK (one = 1), generation INTEGER, changes INTEGER,
                    removals INTEGER);
CREATE TABLE facts (generation INTEGER PRIMARY KEY, facts TEXT);
CREATE TABLE texts (number INTEGER PRIMARY KEY AUTOINCREMENT, owner TEXT, hash BLOB, text TEXT,
                    UNIQUE (owner, hash));
CREATE TABLE documents (owner TEXT, id TEXT, text INTEGER REFERENCES texts, metadata TEXT, stored_at REAL,
                        PRIMARY KEY (owner, id)) WITHOUT ROWID;
CREATE INDEX documents_of_text ON documents (text);
CREATE TABLE chunks (number INTEGER PRIMARY KEY, generation INTEGER, text INTEGER REFERENCES texts,
                     start INTEGER, "end" INTEGER, tokens INTEGER, vector BLOB);
CREATE INDEX chunks_of_text ON chunks (text, generation);
INSERT INTO state VALUES (1, 1, 0, 0);
"""  # numbers of texts are never used again, so newer texts have higher ones
DOCUMENTS = """
SELECT d.id, d.owner, d.metadata, length(t.text), d.stored_at, d.text,
       (SELECT count(*) FROM chunks c WHERE c.text = d.text AND c.generation = (SELECT generation FROM state))
FROM documents d JOIN texts t ON t.number = d.text
"""
NEW_ROWS = """
SELECT c.number, c.text, c.vector, t.owner FROM chunks c JOIN texts t ON t.number = c.text
WHERE c.text > ? AND c.generation = ? ORDER BY c.text, c.number
"""
SIZES = """
CREATE TABLE IF NOT EXISTS sizes (text INTEGER PRIMARY KEY, bytes INTEGER, chunks INTEGER)
"""  # beside the texts, which would be read as a whole
MISSING_SIZES = """
INSERT INTO sizes SELECT t.number, length(CAST(t.text AS BLOB)), (SELECT count(*) FROM chunks c
    WHERE c.text = t.number AND c.generation = (SELECT generation FROM state))
FROM texts t WHERE t.number NOT IN (SELECT text FROM sizes)
"""
USAGE = """
SELECT is_prompt, sum(documents), sum(bytes), sum(chunks) FROM (
    SELECT d.metadata = ? AND d.id GLOB ? AS is_prompt, count(*) AS documents, s.bytes, s.chunks
    FROM documents d LEFT JOIN sizes s ON s.text = d.text WHERE d.owner = ? AND d.id <> ?
    GROUP BY is_prompt, d.text
) GROUP BY is_prompt
"""
PROMPTS = """
SELECT d.id, s.bytes FROM documents d LEFT JOIN sizes s ON s.text = d.text
WHERE d.metadata = ? AND d.id GLOB ? AND d.owner = ? ORDER BY d.stored_at DESC
"""
PROMPTS_OF_THE_OPERATOR = """
SELECT d.id, d.text, t.hash FROM documents d JOIN texts t ON t.number = d.text
WHERE d.owner = ? AND d.id GLOB ? AND d.metadata = ?
"""
COPIED_TEXT = """
INSERT INTO texts (owner, hash, text) SELECT ?, hash, text FROM texts WHERE number = ? RETURNING number
"""
COPIED_CHUNKS = """
INSERT INTO chunks (generation, text, start, "end", tokens, vector)
SELECT generation, ?, start, "end", tokens, vector FROM chunks WHERE text = ?
"""
UNFINISHED = """
SELECT number, text FROM texts t
WHERE NOT EXISTS (SELECT 1 FROM chunks c WHERE c.text = t.number AND c.generation = ?) ORDER BY number LIMIT 1
"""


PROMPT_ROWS = (json.dumps(PROMPT), PROMPT_ID + "*")  # metadata and id


def usage_of(db: sqlite3.Connection, owner: str, besides: str) -> Usage:
    rows = db.execute(USAGE, (*PROMPT_ROWS, owner, besides))
    found = {is_prompt: (number, size or 0, chunks or 0) for is_prompt, number, size, chunks in rows}
    (documents, size, chunks), (prompts, prompts_size, more) = (found.get(one, (0, 0, 0)) for one in (0, 1))
    return Usage(documents, size, chunks + more, prompts, prompts_size)


def prompts_of(db: sqlite3.Connection, owner: str) -> Sizes:
    return [(id, size or 0) for id, size in db.execute(PROMPTS, (*PROMPT_ROWS, owner))]


def set_size(db: sqlite3.Connection, number: int, text: str, chunks: int) -> None:
    db.execute("INSERT OR REPLACE INTO sizes VALUES (?, ?, ?)", (number, len(text.encode()), chunks))


def text_number(db: sqlite3.Connection, document: NewDocument) -> int | None:
    row = db.execute("SELECT number FROM texts WHERE owner = ? AND hash = ?",
                     (document.owner, document.hash)).fetchone()  # fmt: skip
    return int(row[0]) if row else None


def insert_text(db: sqlite3.Connection, document: NewDocument) -> int:
    row = db.execute("INSERT INTO texts (owner, hash, text) VALUES (?, ?, ?) RETURNING number",
                     (document.owner, document.hash, document.text)).fetchone()  # fmt: skip
    return int(row[0])


def insert_chunks(db: sqlite3.Connection, generation: int, number: int, chunks: Sequence[Chunk],
                   vectors: Vector) -> None:  # fmt: skip
    db.executemany(
        'INSERT INTO chunks (generation, text, start, "end", tokens, vector) VALUES (?, ?, ?, ?, ?, ?)',
        ((generation, number, one.start, one.end, one.tokens, vector.astype("<f4").tobytes())
         for one, vector in zip(chunks, vectors, strict=True)),
    )  # fmt: skip


def name_text(db: sqlite3.Connection, document: NewDocument, number: int) -> bool:
    """Lets a document's name mean this text; whether it meant another one, or this one, before."""
    key = (document.owner, document.id)
    old = db.execute("SELECT text FROM documents WHERE owner = ? AND id = ?", key).fetchone()
    metadata = json.dumps(document.metadata)
    db.execute(
        "INSERT OR REPLACE INTO documents VALUES (?, ?, ?, ?, ?)", (*key, number, metadata, time.time())
    )
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


def document_of(row: tuple[Any, ...], text: str = "") -> Document:
    id, owner, metadata, characters, stored_at, _, chunks = row
    return Document(id, owner, json.loads(metadata), characters, chunks, stored_at, text)


def names_of(db: sqlite3.Connection, texts: Sequence[int]) -> dict[int, Iterator[Name]]:
    """The documents of each text, the first stored one first; each is parsed when it is looked at."""
    found: dict[int, list[tuple[str, str, str]]] = {text: [] for text in texts}
    rows = db.execute("SELECT text, id, owner, metadata FROM documents WHERE text IN "
                      f"({', '.join('?' * len(found))}) ORDER BY stored_at, id", tuple(found))  # fmt: skip
    for text, *name in rows:
        found[text].append(tuple(name))
    return {text: (Name(id, owner, json.loads(data)) for id, owner, data in found[text]) for text in found}


class Parts:
    """Chunks' own texts. Texts of documents stay while they are few: of a long one each chunk is wanted."""

    KEPT = 32 << 20  # characters

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db
        self._texts: dict[int, str] = {}
        self._characters = 0

    def of(self, one: Candidate) -> tuple[int, int, str]:
        """Where a chunk begins and ends in its document's text, and its own text."""
        start, end = self._db.execute(
            'SELECT start, "end" FROM chunks WHERE number = ?', (one.chunk,)
        ).fetchone()
        return start, end, self._text(one.text)[start:end]

    def found(self, one: Candidate, name: Name) -> Found:
        start, end, text = self.of(one)
        return Found(str(one.chunk), name.id, text, one.score, name.metadata, name.owner, start, end)

    def _text(self, number: int) -> str:
        if (text := self._texts.get(number)) is None:
            (text,) = self._db.execute("SELECT text FROM texts WHERE number = ?", (number,)).fetchone()
            self._characters += len(text)
            if self._characters > self.KEPT:
                self._texts.clear()
                self._characters = len(text)
            self._texts[number] = text
        return text
