"""What was computed of texts, so that it is not computed again. Knows no text: its hash stands for it."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from hashlib import blake2b
from typing import Generic, TypeVar

Value = TypeVar("Value")


class Remembered(Generic[Value]):
    """The values of at most so many texts; the least recently used are forgotten."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._known: OrderedDict[bytes, Value] = OrderedDict()

    async def of(
        self, texts: Sequence[str], compute: Callable[[list[str]], Awaitable[Sequence[Value]]]
    ) -> list[Value]:
        """The value of each text; `compute` is asked once, for those that are not known."""
        keys = [blake2b(text.encode(), digest_size=16).digest() for text in texts]
        found = {key: self._known[key] for key in keys if key in self._known}
        unknown = {key: text for key, text in zip(keys, texts, strict=True) if key not in found}
        if unknown:
            found |= zip(unknown, await compute([*unknown.values()]), strict=True)
        for key, value in found.items():
            self._known[key] = value
            self._known.move_to_end(key)
        while len(self._known) > self._most:
            self._known.popitem(last=False)
        return [found[key] for key in keys]
