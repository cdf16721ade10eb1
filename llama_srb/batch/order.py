"""The order of a batch's lines: those whose prompts have a common beginning are neighbours. Pure.

A server then computes the beginning once: it is in the KV cache when the next line asks for it.
"""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Sequence
from itertools import pairwise
from zlib import crc32

LEVELS = tuple(int(64 * 2 ** (i / 6)) for i in range(72))  # bytes: 64, 71, 80, … 233,548


def sort_key(beginning: bytes) -> bytes:
    """A key of 72 bytes, of which each is a hash: of the first 64 bytes, of the first 71, and so on.

    Texts whose common beginning is longer have more of their key in common. So a list that is sorted by keys
    has groups of groups, as if it were sorted by the texts. A common part is seen if it is an eighth of all
    that is before it.
    """
    key, crc, at, text = bytearray(), 0, 0, memoryview(beginning)
    for end in LEVELS:
        if at < len(text):
            crc, at = crc32(text[at:end], crc), end
        key.append(crc & 0xFF)
    return bytes(key)


class Shares:
    """The lines that are to be sent, in order, and which of them each server gets.

    Each server has a range of neighbours. One that has no more takes over the back half of the largest range
    that is left. So lines with a common beginning mostly stay on one server, and no server waits for another.
    """

    def __init__(self, order: Sequence[int], servers: int) -> None:
        self._order = array("Q", order)
        cuts = [len(self._order) * i // servers for i in range(servers + 1)]
        self._ranges = [range(*pair) for pair in pairwise(cuts)]
        self._returned: deque[int] = deque()

    def __bool__(self) -> bool:
        return bool(self._returned) or any(self._ranges)

    def take(self, server: int) -> int:
        """The next line for a server; IndexError if there is none."""
        if self._returned:
            return self._returned.popleft()
        if not self._ranges[server]:
            self._take_over(server)
        own = self._ranges[server]
        self._ranges[server] = own[1:]
        return self._order[own[0]]

    def restore(self, line: int) -> None:
        """Takes a line back that was not answered: it is the next one, for any server."""
        self._returned.append(line)

    def _take_over(self, server: int) -> None:
        at = max(range(len(self._ranges)), key=lambda one: len(self._ranges[one]))
        largest = self._ranges[at]
        middle = len(largest) // 2
        self._ranges[at], self._ranges[server] = largest[:middle], largest[middle:]
