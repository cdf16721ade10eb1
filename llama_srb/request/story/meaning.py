"""Entries of lore that are near to a text's end by meaning, by the vectors of an embedding model.

Knows no model: a function computes vectors of length 1, so that a product says how near two texts are.
"""

from __future__ import annotations

import asyncio
from array import array
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from operator import mul
from typing import TypeAlias

from llama_srb.request.story.parts import Call
from llama_srb.request.story.remembered import Remembered
from llama_srb.request.story.shape import Story

Vector: TypeAlias = Sequence[float]
Embed: TypeAlias = Callable[[Sequence[str]], Awaitable[Sequence[Vector]]]

LOOKED_AT = 500  # characters of an entry, and of the text's end, at most
SPARE = 8  # tokens that a model adds; a character has one, in most models
MAX_KEPT = 2000  # vectors


class Vectors:
    """The vectors of texts by one model."""

    def __init__(self) -> None:
        self._kept = Remembered[Vector](MAX_KEPT)

    async def of(self, texts: Sequence[str], embed: Embed) -> list[Vector]:
        async def packed(new: list[str]) -> list[Vector]:
            return [array("f", vector) for vector in await embed(new)]

        return await self._kept.of(texts, packed)


async def with_near(
    calls: Sequence[Call], story: Story, text: str, longest: int, vectors: Vectors, embed: Embed
) -> list[Call]:
    """The calls of a story's entries; those without a key are called if they are near to the text's end.

    longest: tokens of a text that gets a vector.
    """
    asked = [i for i, call in enumerate(calls) if call.why == "no_key" and _is_comparable(story, i)]
    most, made = max(1, min(LOOKED_AT, longest - SPARE)), list(calls)
    end = text[-most:].strip()
    if not asked or not end:
        return made
    texts = [story.lore[i].text.strip()[:most] for i in asked]
    last, *entries = await vectors.of([end, *texts], embed)
    for i, nearness in zip(asked, await asyncio.to_thread(_products, last, entries), strict=True):
        is_near = nearness >= (story.lore[i].meaning or 0)
        made[i] = replace(calls[i], why="meaning" if is_near else "no_key", nearness=nearness)
    return made


def _products(last: Vector, entries: Sequence[Vector]) -> list[float]:
    return [sum(map(mul, last, vector)) for vector in entries]


def _is_comparable(story: Story, i: int) -> bool:
    return story.lore[i].meaning is not None and bool(story.lore[i].text.strip())
