"""How many bytes the files of a store have, with the outputs that are being written. Any thread may ask."""

from __future__ import annotations

import threading
from collections.abc import Set


class NoRoom(Exception):
    """An output may not grow; the message says by how much, and what to do."""


class Room:
    """most: the bytes that all files and outputs may have together."""

    def __init__(self, most: int) -> None:
        self._most, self._files, self._lock = most, 0, threading.Lock()
        self._outputs: dict[str, int] = {}  # of open batches, by id

    @property
    def used(self) -> int:
        """The bytes of the files, and of the outputs so far."""
        with self._lock:
            return self._used()

    def count(self, files: int, is_open: Set[str]) -> None:
        """Sets the bytes of the files, among which are the outputs of batches that are not open any more."""
        with self._lock:
            self._files = files
            self._outputs = {id: size for id, size in self._outputs.items() if id in is_open}

    def begin(self, id: str, size: int) -> None:
        """Counts the output of an open batch, which has this size."""
        with self._lock:
            self._outputs[id] = size

    def grow(self, id: str, size: int) -> None:
        """Counts so many bytes more of an output before they are written; NoRoom."""
        with self._lock:
            if (used := self._used()) + size > self._most:
                raise NoRoom(
                    f"all files and outputs of batches here have {used} bytes, and may have {self._most} "
                    f"(--files-size); no room for an answer of {size}. Delete files, or wait until some "
                    "expire; then begin a batch of the lines that are left"
                )
            self._outputs[id] = self._outputs.get(id, 0) + size

    def _used(self) -> int:
        return self._files + sum(self._outputs.values())
