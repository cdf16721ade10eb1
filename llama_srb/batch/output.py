"""The output of a batch: OUT, OUT.errors.jsonl for the lines that failed, and OUT.state.

A line is written once, when its answer is complete. After a crash the same batch goes on: the last line of a
file is cut if it is torn, and lines that are there are not sent again. OUT.state has the fingerprint of the
input, and is locked while a process writes.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import secrets
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Self

import orjson

from .files import opened
from .source import digest_of

FORMAT = 1
APPENDING = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NONBLOCK  # a FIFO is an error at once


class OutputError(Exception):
    """The output cannot be used; the message is one line that says what to do."""


class Output:
    """The files of one batch, for a `with` block; OutputError.

    read() what is there, then begin(). retry_failed: lines that failed earlier are not done. on_growth: is
    called with the bytes of each line before it is written, and may refuse it by an exception.
    """

    def __init__(
        self, path: Path, *, retry_failed: bool = False, on_growth: Callable[[int], None] = lambda size: None
    ) -> None:
        self.path, self._retry_failed, self._on_growth = path, retry_failed, on_growth
        self.errors = path.with_name(path.name + ".errors.jsonl")
        self.state = path.with_name(path.name + ".state")
        self.done: set[bytes] = set()  # digests of the lines that are there
        self.failed = 0  # of them, those in `errors`
        self._files: dict[Path, int] = {}
        self._writing = threading.Lock()

    def __enter__(self) -> Self:
        try:
            self._lock = os.open(self.state, os.O_RDWR | os.O_CREAT, 0o666)
        except OSError as error:
            raise OutputError(f"cannot write {self.state}: {error.strerror}") from None
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._begun = self._read_state()
        except BlockingIOError:
            os.close(self._lock)
            raise OutputError(f"another process writes {self.path}; wait for its end") from None
        except BaseException:
            os.close(self._lock)
            raise
        return self

    def __exit__(self, *_: object) -> None:
        with self._writing:
            if self._begun is None:
                self.state.unlink(missing_ok=True)
            for file in self._files.values():
                os.close(file)
            self._files.clear()
        os.close(self._lock)

    def read(self) -> None:
        """Finds the lines that are there."""
        self.done.update(map(digest_of, _custom_ids(self.path)))
        if not self._retry_failed:
            failed = [digest_of(one) for one in _custom_ids(self.errors)]
            self.done.update(failed)
            self.failed = len(failed)

    def begin(self, fingerprint: str) -> None:
        """Opens the files for writing; OutputError if they are another input's."""
        if self._begun not in (None, fingerprint):
            names = ", ".join(file.name for file in (self.path, self.errors, self.state))
            raise OutputError(
                f"the input has changed since {self.path} was begun; "
                f"name another output, or delete {names} to begin anew"
            )
        if self._begun is None:
            state = {"format": FORMAT, "input": fingerprint}
            os.pwrite(self._lock, json.dumps(state).encode() + b"\n", 0)
            os.fsync(self._lock)
            self._begun = fingerprint
        for path in (self.path, self.errors):
            self._files[path] = file = os.open(path, APPENDING, 0o666)
            is_forgotten = self._retry_failed and path == self.errors
            os.truncate(file, 0 if is_forgotten else _end_of_lines(path))

    def write(self, custom_id: str, *, response: object = None, error: object = None, failed: bool) -> None:
        """Writes the line of a request. It may be called in any thread; OSError, on_growth's."""
        id = "batch_req_" + secrets.token_hex(12)
        line = {"id": id, "custom_id": custom_id, "response": response, "error": error}
        data = memoryview(orjson.dumps(line, option=orjson.OPT_APPEND_NEWLINE))
        digest = digest_of(custom_id)
        with self._writing:
            if digest in self.done or not self._files:
                return  # closed meanwhile: the line is sent again when the batch goes on
            self._on_growth(len(data))
            file = self._files[self.errors if failed else self.path]
            size = os.fstat(file).st_size
            try:
                while data:
                    data = data[os.write(file, data) :]
            except OSError:
                os.truncate(file, size)  # later lines must not follow a torn one
                raise
            self.done.add(digest)
            self.failed += failed

    def sync(self) -> None:
        """Returns when all lines are on the disk; an empty file of errors is removed."""
        with self._writing:
            for file in self._files.values():
                os.fsync(file)
            if not self.failed:
                self.errors.unlink(missing_ok=True)

    # What is there

    def _read_state(self) -> str | None:
        """The fingerprint of the input; None if the batch has not begun."""
        data = os.pread(self._lock, 1 << 16, 0)
        if not data:
            if self.path.exists() and self.path.stat().st_size:
                message = f"{self.path} is there, and no batch has begun it; name another output"
                raise OutputError(message)
            return None
        with contextlib.suppress(ValueError, TypeError, KeyError):
            state = json.loads(data)
            if state["format"] == FORMAT:
                return str(state["input"])
        raise OutputError(f"{self.state} is not the state of a batch; delete it, or name another output")


def _custom_ids(path: Path) -> Iterator[str]:
    """The custom_id of each complete line of a file; OutputError."""
    for number, line in enumerate(_complete_lines(path), 1):
        try:
            yield str(orjson.loads(line)["custom_id"])
        except (ValueError, TypeError, KeyError):
            raise OutputError(
                f"line {number} of {path} is no line of a batch; mend it, or name another output"
            ) from None


def _complete_lines(path: Path) -> Iterator[bytes]:
    try:
        with opened(path, may_be_link=True) as file:
            yield from (line for line in file if line.endswith(b"\n"))
    except FileNotFoundError:
        return
    except OSError as error:
        raise OutputError(f"cannot read {path}: {error.strerror}") from None


def _end_of_lines(path: Path) -> int:
    """The size of a file without a last line that is torn."""
    with path.open("rb") as file:
        at = file.seek(0, os.SEEK_END)
        while at:
            begin = max(0, at - (1 << 16))
            file.seek(begin)
            if (found := file.read(at - begin).rfind(b"\n")) >= 0:
                return begin + found + 1
            at = begin
    return 0
