"""The input of a batch: a file of lines, of which one at a time is in memory."""

from __future__ import annotations

import hashlib
import threading
from array import array
from collections.abc import Callable, Container, Iterator
from dataclasses import dataclass
from itertools import count
from typing import BinaryIO

from .lines import Line, LineError, parse
from .order import sort_key

MOST_ERRORS = 100  # more than these are not looked for
MAX_LINE = 64 << 20  # bytes; more than the largest --max-body
DIGEST = 16  # bytes of a hash that stands for a custom_id
OFFSET = 6  # bytes of a line's place in the file, in the list that is sorted


@dataclass(frozen=True, slots=True)
class Bounds:
    """What a file may hold. endpoint: the one path that its lines may ask; lines: their most."""

    line_bytes: int = MAX_LINE
    lines: int | None = None
    endpoint: str | None = None


@dataclass(frozen=True, slots=True)
class Scan:
    """What one reading of a file has found.

    fingerprint: a hash of the whole file. order: the places of the lines that are to be sent, neighbours with
    common beginnings. count: of all lines. errors: the first ones; if there are any, the rest is incomplete.
    """

    fingerprint: str
    order: array[int]
    count: int
    errors: tuple[LineError, ...]


class Source:
    """An open file of lines. A line is known by its place, the number of bytes before it."""

    def __init__(self, file: BinaryIO, bounds: Bounds | None = None) -> None:
        self._file, self._bounds = file, bounds or Bounds()
        self._one_at_a_time = threading.Lock()

    def line(self, place: int) -> Line:
        """The line at a place of a file that was scanned."""
        with self._one_at_a_time:
            self._file.seek(place)
            data = self._file.readline()
        return parse(data)

    def scan(self, done: Container[bytes] = ()) -> Scan:
        """Reads and checks all lines. done: digests of those that are not to be sent."""
        records, numbers, errors = list[bytes](), dict[bytes, int](), list[LineError]()
        whole = hashlib.sha256()
        for place, number, line in self._read(errors, whole.update):
            digest = digest_of(line.custom_id)
            if (first := numbers.setdefault(digest, number)) != number:
                message = f"custom_id is {line.custom_id!r}, as on line {first}; each line must have its own"
                errors.append(LineError("duplicate_custom_id", message, number, "custom_id"))
            elif digest not in done:
                records.append(sort_key(line.beginning()) + place.to_bytes(OFFSET, "big"))
        if not numbers and not errors:
            errors.append(LineError("empty_file", "the file has no lines"))
        records.sort()
        order = array("Q", (int.from_bytes(record[-OFFSET:], "big") for record in records))
        return Scan(whole.hexdigest(), order, len(numbers), tuple(errors))

    def remaining(self, done: Container[bytes]) -> Iterator[str]:
        """The custom_id of each line whose digest is not in done. The file was scanned."""
        for _, _, line in self._read([]):
            if digest_of(line.custom_id) not in done:
                yield line.custom_id

    def _read(
        self, errors: list[LineError], note: Callable[[bytes], object] = len
    ) -> Iterator[tuple[int, int, Line]]:
        """Place, number and content of each line that is not empty. note: is called with all bytes.

        Lines with an error are added to `errors`; at MOST_ERRORS the reading stops.
        """
        place, lines, bounds = 0, 0, self._bounds
        self._file.seek(0)
        for number in count(1):
            data = self._file.readline(bounds.line_bytes + 1)
            if not data or len(errors) >= MOST_ERRORS:
                return
            note(data)
            try:
                if len(data.rstrip(b"\r\n")) > bounds.line_bytes:
                    message = f"it has more than {bounds.line_bytes} bytes, which is the most of a line"
                    errors.append(LineError("line_too_long", message, number))
                    return
                if data.strip():
                    lines += 1
                    if bounds.lines is not None and lines > bounds.lines:
                        message = f"the file has more than {bounds.lines} lines, which is the most of a batch"
                        errors.append(LineError("too_many_lines", message))
                        return
                    yield place, number, parse(data, number, bounds.endpoint)
            except LineError as error:
                errors.append(error)
            place += len(data)


def digest_of(custom_id: str) -> bytes:
    """A hash that stands for a custom_id, which may be long."""
    return hashlib.blake2b(custom_id.encode(), digest_size=DIGEST).digest()
