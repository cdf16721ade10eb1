"""How many bytes the files of a store have, with what is being written: outputs and uploads.

Each counts its bytes before it writes them, so however many write at once, none goes beyond the bound. Any
thread may ask.
"""

from __future__ import annotations

import threading
from collections.abc import Set


class NoRoom(Exception):
    """An output or an upload may not grow by `size`; the message is for an output."""

    def __init__(self, used: int, most: int, size: int) -> None:
        super().__init__(
            f"all files and outputs of batches here have {used} bytes, and may have {most} "
            f"(--files-size); no room for an answer of {size}. Delete files, or wait until some expire; "
            "then begin a batch of the lines that are left"
        )
        self.used, self.most, self.size = used, most, size


class Room:
    """most: the bytes that all files, outputs and uploads may have together."""

    def __init__(self, most: int) -> None:
        self._most, self._files, self._lock = most, 0, threading.Lock()
        self._growing: dict[str, int] = {}  # outputs by the id of the batch, uploads by the file's

    @property
    def used(self) -> int:
        """The bytes of the files, and of the outputs and uploads so far."""
        with self._lock:
            return self._used()

    def count(self, files: int, is_open: Set[str]) -> None:
        """Sets the bytes of the files, among which is what grows no more. is_open: the ids of what grows."""
        with self._lock:
            self._files = files
            self._growing = {id: size for id, size in self._growing.items() if id in is_open}

    def begin(self, id: str, size: int) -> None:
        """Counts the output of an open batch, which has this size."""
        with self._lock:
            self._growing[id] = size

    def grow(self, id: str, size: int) -> None:
        """Counts so many bytes more of an output or an upload before they are written; NoRoom."""
        with self._lock:
            self._require(size)
            self._growing[id] = self._growing.get(id, 0) + size

    def require(self, size: int) -> None:
        """NoRoom if so many bytes more have no room."""
        with self._lock:
            self._require(size)

    def _require(self, size: int) -> None:
        if (used := self._used()) + size > self._most:
            raise NoRoom(used, self._most, size)

    def _used(self) -> int:
        return self._files + sum(self._growing.values())
