"""How often the passage that answers a question is among the best chunks: by BM25, and by models' vectors.

python benchmarks/recall/run.py [MODEL.gguf …] [--tokens 200] [--ann 50000]

questions.tsv has a text's file, a passage of it, and a question that the passage answers, a line each. A
search answers a question if one of the k best chunks has the passage. All sides search the same chunks, which
are divided by the bundled model's tokens. --ann compares usearch with the exact search, on that many vectors
near those of the chunks.
"""

from __future__ import annotations

import argparse
import asyncio
import math
import re
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from llama_srb import bundled
from llama_srb.config import Settings
from llama_srb.engine.pool import Pool
from llama_srb.engine.settings import EngineSettings
from llama_srb.memory.chunks import chunks_of, cleaned
from llama_srb.memory.embedding import Vectoriser
from llama_srb.memory.one_memory import Memory
from llama_srb.memory.records import Chunking, EmbeddingModel, FileStore, MemorySettings
from llama_srb.memory.stores.vectors import Rows
from llama_srb.models import gguf_header

HERE = Path(__file__).parent
BEST = (1, 5)  # how many chunks are looked at
K1, B = 1.5, 0.75  # BM25's usual parameters


@dataclass(frozen=True)
class Question:
    """passage: a part of the text of this name, which answers it."""

    text: str
    passage: str
    question: str

    def is_in(self, name: str, chunk: str) -> bool:
        return name == self.text and plain(self.passage) in plain(chunk)


def plain(text: str) -> str:
    return re.sub(r"\s+", " ", text)


def questions() -> list[Question]:
    lines = (HERE / "questions.tsv").read_text().splitlines()
    return [Question(*line.split("\t")) for line in lines]


def texts() -> dict[str, str]:
    return {path.name: cleaned(path.read_text()) for path in sorted((HERE / "texts").glob("*.md"))}


# ----------------------------------------------------------------------------------------------------
# Sides
# ----------------------------------------------------------------------------------------------------


class Bm25:
    """Okapi BM25 over words in lower case."""

    def __init__(self, chunks: Sequence[tuple[str, str]]) -> None:
        self._chunks = chunks
        self._counts = [Counter(words(text)) for _, text in chunks]
        self._mean = sum(map(Counter.total, self._counts)) / len(chunks)
        self._with = Counter(word for counts in self._counts for word in counts)

    def best(self, question: str, k: int) -> list[tuple[str, str]]:
        scores = [self._score(counts, words(question)) for counts in self._counts]
        order = sorted(range(len(scores)), key=lambda i: -scores[i])
        return [self._chunks[i] for i in order[:k]]

    def _score(self, counts: Counter[str], asked: Sequence[str]) -> float:
        length = K1 * (1 - B + B * counts.total() / self._mean)
        return sum(
            math.log(1 + (len(self._chunks) - self._with[word] + 0.5) / (self._with[word] + 0.5))
            * counts[word] * (K1 + 1) / (counts[word] + length)
            for word in asked
        )  # fmt: skip


def words(text: str) -> list[str]:
    return re.findall(r"\w+", text.lower())


@asynccontextmanager
async def running(path: Path) -> AsyncIterator[EmbeddingModel]:
    """The model of a file, by an engine of its own."""
    settings = Settings(model=path, engine=bundled.engine(), ctx=8192)
    pool = Pool(EngineSettings(settings.engine_command, path.stem, settings.engine_environment))
    async with pool:
        await pool.wait_ready()
        yield Vectoriser.of(settings, gguf_header.read(path)).model(pool)


async def chunks(chunking: Chunking) -> list[tuple[str, str]]:
    """Names of texts, and their chunks by the bundled model's tokens."""
    async with running(bundled.model()) as model:
        return [
            (name, text[one.start : one.end])
            for name, text in texts().items()
            for one in await chunks_of(text, chunking, model.count_tokens)
        ]


async def by_vectors(path: Path, divided: Sequence[tuple[str, str]], folder: Path) -> dict[int, float]:
    """The shares of answered questions. Each chunk is a document, so that all sides have the same ones."""
    settings = MemorySettings("recall", path.stem, FileStore(folder / f"{path.stem}.db"), Chunking(8192, 0))
    async with running(path) as model:
        memory = await Memory.open(settings, model)
        try:
            for i, (name, text) in enumerate(divided):
                await memory.put(f"{i}", text, metadata={"text": name})
            found = {
                one: [
                    (str(hit.metadata["text"]), hit.text)
                    for hit in await memory.search(one.question, max(BEST))
                ]
                for one in questions()
            }
        finally:
            await memory.close()
    return shares(found)


def shares(found: Mapping[Question, Sequence[tuple[str, str]]]) -> dict[int, float]:
    """For each k the share of the questions whose passage is in one of the k best chunks."""
    return {
        k: sum(any(one.is_in(*chunk) for chunk in some[:k]) for one, some in found.items()) / len(found)
        for k in BEST
    }


# ----------------------------------------------------------------------------------------------------
# usearch against exact
# ----------------------------------------------------------------------------------------------------


async def near_chunks(divided: Sequence[tuple[str, str]], count: int) -> Any:
    """Vectors near those of the chunks, as a memory of many texts about few things has them."""
    async with running(bundled.model()) as model:
        own = np.array(
            [v for some in batches(divided, 32) for v in await model.embed([text for _, text in some])]
        )
    drawn = np.random.default_rng(1)
    spread = float(np.linalg.norm(own - own.mean(0), axis=1).mean()) / math.sqrt(own.shape[1])
    made = own[drawn.integers(len(own), size=count)] + drawn.normal(0, spread, (count, own.shape[1]))
    return (made / np.linalg.norm(made, axis=1, keepdims=True)).astype(np.float32)


def batches(some: Sequence[tuple[str, str]], size: int) -> list[Sequence[tuple[str, str]]]:
    return [some[first : first + size] for first in range(0, len(some), size)]


def approximate(vectors: Any, k: int = 10, queries: int = 200) -> float:
    """The share of the k nearest vectors that usearch finds."""
    stored, asked = vectors[:-queries], vectors[-queries:]
    found = []
    for ann_rows in (len(vectors), 0):
        rows = Rows(vectors.shape[1], ann_rows)
        numbers = np.arange(len(stored))
        rows.add(stored, numbers, numbers, [""] * len(stored))
        found.append([{chunk for chunk, _, _ in _first(rows, one, k)} for one in asked])
    return sum(len(a & b) for a, b in zip(*found, strict=True)) / (k * queries)


def _first(rows: Rows, query: Any, k: int) -> list[tuple[int, int, float]]:
    ranked = rows.ranked(query, None, k)
    return [next(ranked) for _ in range(k)]


async def main(models: Sequence[Path], tokens: int, ann: int) -> None:
    divided = await chunks(Chunking(tokens, tokens // 5))
    asked, lexical = questions(), Bm25(divided)
    whole = sum(any(one.is_in(*chunk) for chunk in divided) for one in asked)
    print(
        f"{len(asked)} questions, {len(texts())} texts, {len(divided)} chunks of at most {tokens} tokens; "
        f"{whole} passages are whole in a chunk\n"
    )
    print("| side | " + " | ".join(f"recall@{k}" for k in BEST) + " |\n|---|" + "---|" * len(BEST))
    show("BM25", shares({one: lexical.best(one.question, max(BEST)) for one in asked}))
    with tempfile.TemporaryDirectory() as folder:
        for path in (bundled.model(), *models):
            show(path.stem, await by_vectors(path, divided, Path(folder)))
    if ann:
        share = approximate(await near_chunks(divided, ann))
        print(f"\nusearch finds {share:.3f} of the 10 nearest of {ann:,} vectors")


def show(side: str, found: Mapping[int, float]) -> None:
    print(f"| {side} | " + " | ".join(f"{found[k]:.2f}" for k in BEST) + " |", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "models", nargs="*", type=Path, metavar="MODEL", help="GGUF files, beside the bundled model"
    )
    parser.add_argument("--tokens", type=int, default=200, help="most tokens of a chunk")
    parser.add_argument("--ann", type=int, default=0, help="vectors for usearch against the exact search")
    given = parser.parse_args()
    asyncio.run(main(given.models, given.tokens, given.ann))
