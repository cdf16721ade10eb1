"""The files and batches of a server: their rows, and where their contents are. An owner is a text."""

from __future__ import annotations

import contextlib
import json
import sqlite3
import sys
import time
from collections.abc import AsyncIterator
from dataclasses import asdict, fields
from functools import partial
from pathlib import Path
from typing import Literal, Self

from .database import Database
from .records import Batch, FoundError, StoredFile
from .room import Room

_FILE = ", ".join(field.name for field in fields(StoredFile))
_SAVE = """
INSERT INTO batches (id, owner, is_open, input_file_id, ended_at, row) VALUES (?, ?, ?, ?, ?, ?)
ON CONFLICT (id) DO UPDATE SET is_open = excluded.is_open, ended_at = excluded.ended_at, row = excluded.row
"""
_INPUTS = "SELECT input_file_id FROM batches WHERE is_open"


class TooMany(Exception):
    """An owner has `count` files or batches, which is the most. of: what they are."""

    def __init__(self, of: Literal["files", "batches", "open_batches"], count: int) -> None:
        super().__init__(of, count)
        self.of, self.count = of, count


class UnknownId(LookupError):
    """A list was to begin after an id that its owner does not have."""


class Store:
    """The store in a folder, for an `async with` block; StoreError. most: bytes of all that it keeps."""

    def __init__(self, folder: Path, most: int = sys.maxsize) -> None:
        self.room = Room(most)
        self._database = Database(folder, partial(_count, self.room))

    async def __aenter__(self) -> Self:
        await self._database.__aenter__()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._database.__aexit__()

    # Contents

    def content(self, file: StoredFile) -> Path:
        """The path of a file's content."""
        return self._database.folder / file.path

    def relative(self, path: Path) -> str:
        """The path of a file's content as its row has it."""
        return str(path.relative_to(self._database.folder))

    def upload(self, id: str) -> Path:
        """The path of the content of a file that a client has sent."""
        return self._database.folder / "uploads" / id

    @contextlib.asynccontextmanager
    async def uploading(self, id: str) -> AsyncIterator[Path]:
        """The path to which the content of a new file is written; it is removed if the block fails."""
        path = self.upload(id)
        name = self.relative(path)
        try:
            await self._database.write(lambda db: _insert_leftover(db, name))
            yield path
        except BaseException:
            await self._database.remove_leftover(name)
            raise

    def output(self, batch: Batch) -> Path:
        """The path of a batch's output."""
        return self._database.folder / "batches" / batch.id / "out.jsonl"

    # Files

    async def add_file(self, file: StoredFile, most: int = sys.maxsize) -> None:
        """most: files of an owner; TooMany."""

        def add(db: sqlite3.Connection) -> None:
            _require_fewer(db, "files", file.owner, most)
            _insert(db, file)

        await self._database.write(add)

    async def file(self, id: str, owner: str) -> StoredFile | None:
        """A file of an owner."""
        sql = f"SELECT {_FILE} FROM files WHERE id = ? AND owner = ? AND expires_at > ?"
        rows = await self._database.read(sql, id, owner, int(time.time()))
        return StoredFile(*rows[0]) if rows else None

    async def files(
        self, owner: str, *, purpose: str | None, after: str | None, limit: int, newest_first: bool
    ) -> list[StoredFile]:
        """The files of an owner, in the order in which they came; UnknownId."""
        page = await self._page("files", owner, after, newest_first)
        where = "owner = ? AND purpose = ifnull(?, purpose) AND expires_at > ?"
        sql = f"SELECT {_FILE} FROM files WHERE {where} AND {page}"
        rows = await self._database.read(sql, owner, purpose, int(time.time()), limit)
        return [StoredFile(*row) for row in rows]

    async def count(self, table: Literal["files", "batches"], owner: str) -> int:
        """The number of an owner's files or batches."""
        ((count,),) = await self._database.read(f"SELECT count(*) FROM {table} WHERE owner = ?", owner)
        return int(count)

    async def remove_file(self, file: StoredFile) -> str | None:
        """Removes a file; or returns the id of an open batch whose input it is, and does nothing."""

        def remove(db: sqlite3.Connection) -> str | None:
            sql = "SELECT id FROM batches WHERE is_open AND input_file_id = ?"
            if (user := db.execute(sql, (file.id,)).fetchone()) is not None:
                return str(user[0])
            db.execute("DELETE FROM files WHERE id = ?", (file.id,))
            _insert_leftover(db, file.path)
            return None

        user = await self._database.write(remove)
        if user is None:
            await self._database.remove_leftover(file.path)
        return user

    async def expired(self, now: int) -> list[StoredFile]:
        """The files that have expired, except inputs of open batches."""
        sql = f"SELECT {_FILE} FROM files WHERE expires_at <= ? AND id NOT IN ({_INPUTS})"
        return [StoredFile(*row) for row in await self._database.read(sql, now)]

    # Batches

    async def add(self, batch: Batch, most_open: int, most: int) -> None:
        """Adds a batch. most: of an owner, and of these those that are open; TooMany."""

        def add(db: sqlite3.Connection) -> None:
            _require_fewer(db, "open_batches", batch.owner, most_open)
            _require_fewer(db, "batches", batch.owner, most)
            _save(db, batch)

        await self._database.write(add)

    async def save(self, batch: Batch, *outputs: StoredFile) -> None:
        """Adds or replaces a batch, and adds its outputs, all or nothing."""

        def save(db: sqlite3.Connection) -> None:
            _save(db, batch)
            for file in outputs:
                _insert(db, file)

        await self._database.write(save)

    async def batch(self, id: str, owner: str) -> Batch | None:
        """A batch of an owner."""
        rows = await self._database.read("SELECT row FROM batches WHERE id = ? AND owner = ?", id, owner)
        return _batch(rows[0][0]) if rows else None

    async def batches(self, owner: str, *, after: str | None, limit: int) -> list[Batch]:
        """The batches of an owner, the newest first; UnknownId."""
        page = await self._page("batches", owner, after, newest_first=True)
        rows = await self._database.read(f"SELECT row FROM batches WHERE owner = ? AND {page}", owner, limit)
        return [_batch(row) for (row,) in rows]

    async def open_batches(self, owner: str | None = None) -> list[Batch]:
        """Batches that are not over, the oldest first. owner: None: of all."""
        sql = "SELECT row FROM batches WHERE is_open AND owner = ifnull(?, owner) ORDER BY number"
        return [_batch(row) for (row,) in await self._database.read(sql, owner)]

    async def forget_batches(self, before: int) -> None:
        """Removes batches that were over before this time."""

        def forget(db: sqlite3.Connection) -> None:
            db.execute("DELETE FROM batches WHERE ended_at < ?", (before,))

        await self._database.write(forget)

    async def _page(self, table: str, owner: str, after: str | None, newest_first: bool) -> str:
        """The condition and the order of a page of a list, whose limit is the last value."""
        order, sign = ("DESC", "<") if newest_first else ("ASC", ">")
        start = "1"
        if after is not None:
            sql = f"SELECT number FROM {table} WHERE id = ? AND owner = ?"
            if not (rows := await self._database.read(sql, after, owner)):
                raise UnknownId(after)
            start = f"number {sign} {rows[0][0]}"
        return f"{start} ORDER BY number {order} LIMIT ?"


def _count(room: Room, db: sqlite3.Connection) -> None:
    (files,) = db.execute("SELECT ifnull(sum(bytes), 0) FROM files").fetchone()
    batches = db.execute("SELECT id FROM batches WHERE is_open").fetchall()
    uploads = db.execute("SELECT substr(path, 9) FROM leftovers WHERE path GLOB 'uploads/*'").fetchall()
    room.count(files, {id for (id,) in batches + uploads})


def _require_fewer(
    db: sqlite3.Connection, of: Literal["files", "batches", "open_batches"], owner: str, most: int
) -> None:
    """TooMany if an owner has the most; in the transaction that adds one."""
    table, where = ("batches", "owner = ? AND is_open") if of == "open_batches" else (of, "owner = ?")
    (count,) = db.execute(f"SELECT count(*) FROM {table} WHERE {where}", (owner,)).fetchone()
    if count >= most:
        raise TooMany(of, count)


def _save(db: sqlite3.Connection, batch: Batch) -> None:
    ended = None if batch.is_open else max(batch.times.values(), default=batch.created_at)
    row = json.dumps(asdict(batch))
    db.execute(_SAVE, (batch.id, batch.owner, batch.is_open, batch.input_file_id, ended, row))


def _insert(db: sqlite3.Connection, file: StoredFile) -> None:
    marks = ", ".join("?" * len(fields(StoredFile)))
    db.execute(f"INSERT INTO files ({_FILE}) VALUES ({marks})", tuple(asdict(file).values()))
    db.execute("DELETE FROM leftovers WHERE path = ?", (file.path,))


def _insert_leftover(db: sqlite3.Connection, name: str) -> None:
    db.execute("INSERT OR IGNORE INTO leftovers VALUES (?)", (name,))


def _batch(row: str) -> Batch:
    found = json.loads(row)
    return Batch(**{**found, "errors": tuple(FoundError(**one) for one in found["errors"])})
