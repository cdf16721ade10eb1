"""The folder of a server's files and batches, with its database. One process at a time has it open.

One thread owns the connection, so a slow disk delays no token.

    DIR/batches.db       the rows (SQLite, WAL)
    DIR/uploads/ID       the contents of files that clients have sent
    DIR/batches/ID/      the output of a batch
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import shutil
import sqlite3
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Self, TypeVar

FORMAT = 1
_SCHEMA = """
CREATE TABLE files (number INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT UNIQUE, owner TEXT, filename TEXT,
                    bytes INTEGER, purpose TEXT, created_at INTEGER, expires_at INTEGER, path TEXT);
CREATE INDEX files_of_owner ON files (owner, number);
CREATE TABLE batches (number INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT UNIQUE, owner TEXT, is_open INTEGER,
                      input_file_id TEXT, ended_at INTEGER, row TEXT);
CREATE INDEX batches_of_owner ON batches (owner, number);
CREATE INDEX open_batches ON batches (input_file_id) WHERE is_open;
"""

T = TypeVar("T")


class StoreError(Exception):
    """The folder cannot be used; the message is one line for the operator."""


class Database:
    """The database in a folder, for an `async with` block; StoreError.

    on_change: is called in its thread when it is open, and after each transaction.
    """

    def __init__(self, folder: Path, on_change: Callable[[sqlite3.Connection], None]) -> None:
        self.folder, self._on_change = folder, on_change
        self._thread = ThreadPoolExecutor(1, "files")
        self._opened = contextlib.ExitStack()
        self._db: sqlite3.Connection

    async def __aenter__(self) -> Self:
        try:
            await self._do(self._open)
        except BaseException:
            await self.__aexit__()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._do(self._opened.close)
        await asyncio.to_thread(self._thread.shutdown)

    async def read(self, sql: str, *values: object) -> list[tuple[Any, ...]]:
        """The rows of a query."""
        return await self._do(lambda: self._db.execute(sql, values).fetchall())

    async def write(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Does some work as one transaction. Works are done in the order of the calls."""

        def write() -> T:
            with self._db:
                found = work(self._db)
            self._on_change(self._db)
            return found

        return await self._do(write)

    async def _do(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    def _open(self) -> None:
        try:
            for folder in (self.folder, self.folder / "uploads", self.folder / "batches"):
                folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            lock = os.open(self.folder / "lock", os.O_RDWR | os.O_CREAT, 0o600)
            self._opened.callback(os.close, lock)
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise StoreError(f"another server uses {self.folder}; give each its own --files-dir") from None
        except OSError as error:
            raise StoreError(f"--files-dir {self.folder} cannot be used: {error.strerror}") from None
        file = self.folder / "batches.db"
        try:
            self._db = self._opened.enter_context(contextlib.closing(sqlite3.connect(file)))
            self._db.execute("PRAGMA journal_mode = WAL")
            (version,) = self._db.execute("PRAGMA user_version").fetchone()
            if version == 0:
                self._db.executescript(f"BEGIN; {_SCHEMA} PRAGMA user_version = {FORMAT}; COMMIT;")
            elif version != FORMAT:
                raise StoreError(f"{file} has the format {version}; this version reads {FORMAT}")
            self._remove_leftovers()
            self._on_change(self._db)
        except sqlite3.Error as error:
            raise StoreError(f"{file} cannot be used: {error}") from None

    def _remove_leftovers(self) -> None:
        """Removes contents without a row: uploads that were cut, outputs of batches that are forgotten."""
        known = {path for (path,) in self._db.execute("SELECT path FROM files")}
        used = {path.split("/")[1] for path in known}
        used |= {id for (id,) in self._db.execute("SELECT id FROM batches WHERE is_open")}
        for path in (self.folder / "uploads").iterdir():
            if path.name not in used:
                path.unlink(missing_ok=True)
        for folder in (self.folder / "batches").iterdir():
            if folder.name not in used:
                shutil.rmtree(folder, ignore_errors=True)
