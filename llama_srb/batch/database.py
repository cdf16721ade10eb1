"""The folder of a server's files and batches, with its database. One process at a time has it open.

One thread owns the connection, so a slow disk delays no token.

    DIR/batches.db       the rows (SQLite, WAL)
    DIR/uploads/ID       the contents of files that clients have sent
    DIR/batches/ID/      the output of a batch

A content is named by a row before it is written, and until it is removed. So what no row names is another
program's, or of a database that is lost: it stays.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import logging
import os
import sqlite3
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Self, TypeVar

log = logging.getLogger("llama_srb.batches")  # this name is documented

FORMAT = 1
MOST_SHOWN = 5  # unknown files that a warning names
_SCHEMA = """
CREATE TABLE files (number INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT UNIQUE, owner TEXT, filename TEXT,
                    bytes INTEGER, purpose TEXT, created_at INTEGER, expires_at INTEGER, path TEXT);
CREATE INDEX files_of_owner ON files (owner, number);
CREATE TABLE batches (number INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT UNIQUE, owner TEXT, is_open INTEGER,
                      input_file_id TEXT, ended_at INTEGER, row TEXT);
CREATE INDEX batches_of_owner ON batches (owner, number);
CREATE INDEX open_batches ON batches (input_file_id) WHERE is_open;
"""
_LEFTOVERS = "CREATE TABLE IF NOT EXISTS leftovers (path TEXT PRIMARY KEY)"
"""Contents that have no row yet, as an upload that has begun, or none any more: they are removed."""

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

    async def remove_leftover(self, name: str) -> None:
        """Removes a content if no row has it. name: its path in the folder."""

        def remove() -> None:
            if self._db.execute("SELECT 1 FROM leftovers WHERE path = ?", (name,)).fetchone():
                self._remove(name)
                self._on_change(self._db)

        await self._do(remove)

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
            os.close(os.open(file, os.O_CREAT | os.O_RDWR, 0o600))  # it has what tokens grant
            self._db = self._opened.enter_context(contextlib.closing(sqlite3.connect(file)))
            self._db.execute("PRAGMA journal_mode = WAL")
            (version,) = self._db.execute("PRAGMA user_version").fetchone()
            if version == 0:
                self._db.executescript(f"BEGIN; {_SCHEMA} PRAGMA user_version = {FORMAT}; COMMIT;")
            elif version != FORMAT:
                raise StoreError(f"{file} has the format {version}; this version reads {FORMAT}")
            self._db.execute(_LEFTOVERS)
            self._remove_leftovers()
            self._on_change(self._db)
        except OSError as error:
            raise StoreError(f"{file} cannot be used: {error.strerror}") from None
        except sqlite3.Error as error:
            raise StoreError(f"{file} cannot be used: {error}") from None

    def _remove_leftovers(self) -> None:
        """Removes uploads that were cut, and outputs of batches that have none; lists what is unknown."""
        for (path,) in self._db.execute("SELECT path FROM leftovers").fetchall():
            self._remove(path)
        used = {path.split("/")[1] for (path,) in self._db.execute("SELECT path FROM files")}
        is_open = dict(self._db.execute("SELECT id, is_open FROM batches"))
        unknown = []
        for path in sorted([*(self.folder / "uploads").iterdir(), *(self.folder / "batches").iterdir()]):
            if path.name in used or is_open.get(path.name):
                continue
            if path.name in is_open:
                _remove_outputs(path)
            if path.exists():
                unknown.append(str(path.relative_to(self.folder)))
        if unknown:
            named = ", ".join(unknown[:MOST_SHOWN]) + (", …" if len(unknown) > MOST_SHOWN else "")
            log.warning(
                "--files-dir %s: %d files or folders are not in its database, and stay: %s",
                *(self.folder, len(unknown), named),
            )

    def _remove(self, name: str) -> None:
        """Removes a leftover, or says why it cannot; the folder of a batch goes with its last output."""
        path = self.folder / name
        try:
            path.unlink(missing_ok=True)
            if path.name.startswith("out") and not any(path.parent.glob("*.jsonl")):
                _remove_outputs(path.parent)
            with self._db as db:
                db.execute("DELETE FROM leftovers WHERE path = ?", (name,))
        except (OSError, sqlite3.Error) as error:
            log.warning("%s cannot be removed now: %s; it is tried again at the next start", path, error)


def _remove_outputs(folder: Path) -> None:
    """Removes what a batch has written, and its folder if nothing of another program is there."""
    for path in folder.glob("out.jsonl*"):
        path.unlink(missing_ok=True)
    with contextlib.suppress(OSError):
        folder.rmdir()
