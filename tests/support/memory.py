"""A model for tests of memories: vectors of the words of a text, tokens that are words."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence

from llama_srb.memory.records import EmbeddingModel

WIDTH = 2048


def vector_of(text: str, width: int = WIDTH, seed: str = "") -> list[float]:
    """How often each word is in the text, a word a place. No vector is zero."""
    vector = [1e-3] * width
    for word in re.findall(r"\w+", text.lower()):
        vector[int.from_bytes(hashlib.md5((seed + word).encode()).digest()[:4]) % width] += 1.0
    return vector


class WordModel:
    """The functions of an EmbeddingModel; notes the texts of each call."""

    def __init__(self, width: int = WIDTH, seed: str = "") -> None:
        self.width, self.seed = width, seed
        self.embedded: list[str] = []
        self.counted: list[list[str]] = []

    async def embed(self, texts: Sequence[str]) -> list[list[float]]:
        self.embedded += texts
        return [vector_of(text, self.width, self.seed) for text in texts]

    async def count_tokens(self, texts: Sequence[str]) -> list[int]:
        self.counted.append(list(texts))
        return [len(text.split()) for text in texts]

    @property
    def model(self) -> EmbeddingModel:
        return EmbeddingModel("words", f"words-{self.seed}", self.width, self.embed, self.count_tokens)
