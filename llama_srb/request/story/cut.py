"""Where a story that is too long is cut, and where its note stands: rules on text and sizes alone.

The same text always gives the same cut, and so does one that has grown, until it fills the room: then
the cut moves on by a step. So the prompts of a story that grows begin with the same tokens.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from llama_srb.request.story.ruler import Ruler

WINDOW = 4  # a cut moves on by at most this part of a step to find a border
BORDERS = (
    re.compile(r"\n+"),
    re.compile(r"[.!?…][\"'”’»)\]*_]*\s+|[。！？][」』”’]*"),  # noqa: RUF001
    re.compile(r"\s+"),
)
"""Ends of paragraphs, of sentences, of words."""


@dataclass(frozen=True, slots=True)
class Cut:
    """The text before `place` is cut off: `tokens` of them. number: of the steps.

    seen: the end of the text that decides about lore at the top, which is there some time before this cut is.
    """

    number: int
    place: int
    tokens: int
    seen: int


def border_in(text: str, low: int, high: int) -> int:
    """The first border of the best kind at low or behind it, up to high; else low."""
    for kind in BORDERS:
        for found in kind.finditer(text, max(low - 1, 0), high):
            if found.end() >= low:
                return found.end()
    return low


def step_of(room: int, capacity: int) -> int:
    """Tokens by which the cut moves: a quarter of the room, but never more than half of the text in it."""
    return max(1, min(room // 4, capacity // 2))


async def find_cut(ruler: Ruler, capacity: int, step: int) -> Cut:
    """The first cut behind which the text has at most `capacity` tokens."""
    cut = Cut(0, 0, 0, 0)
    if ruler.total <= capacity:
        return cut
    number = max(1, (ruler.total - capacity - step // WINDOW) // step)
    while ruler.total - (await _place_of(ruler, number, step))[1] > capacity:
        number += 1
    return await _cut(ruler, number, capacity, step)


async def next_cut(ruler: Ruler, cut: Cut, capacity: int, step: int) -> Cut | None:
    """The cut behind this one, if all is known that decides about it: the text has nearly filled its room."""
    if ruler.total - cut.tokens <= capacity - step // WINDOW:
        return None
    return await _cut(ruler, cut.number + 1, capacity, step)


async def _cut(ruler: Ruler, number: int, capacity: int, step: int) -> Cut:
    place, tokens = await _place_of(ruler, number, step)
    before = (await _place_of(ruler, number - 1, step))[1]
    return Cut(number, place, tokens, ruler.block_at(before + capacity - step // WINDOW))


async def _place_of(ruler: Ruler, number: int, step: int) -> tuple[int, int]:
    """A cut's place, and the tokens before it; they depend only on the text up to it."""
    if number == 0:
        return 0, 0
    low, high = await ruler.place(number * step), await ruler.place(number * step + step // WINDOW)
    place = border_in(ruler.text, low, high)
    return place, await ruler.tokens_before(place)


async def find_note(ruler: Ruler, cut: Cut, depth: int) -> int:
    """Where a note stands: at most `depth` tokens before the end, at the first border of the best kind."""
    low, high = await ruler.place(ruler.total - depth), await ruler.place(ruler.total - depth // 2)
    return max(cut.place, border_in(ruler.text, low, high)) if ruler.total > depth else cut.place
