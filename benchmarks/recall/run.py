"""How often a memory finds the passage that answers a question: by words, by meaning, by both.

python -m benchmarks.recall.run [MODEL.gguf …] [--stories FILE] [--tokens 200] [--only words]
    [--reranker FILE] [--ann 50000]

About 400 questions of six kinds: those of questions.tsv were written by hand, the others are made by rule of
what is installed (sources.py, rules.py), so other versions of it give other questions. Each is searched in
one memory of all texts. A search answers a question if one of the k best chunks has the passage. --stories: a
file of stories between <|endoftext|>, as TinyStories has them. --reranker: each search twice more, its first
chunks in the order of that model, and in one of both. --ann compares usearch with the exact search, on that
many vectors near those of the chunks.
"""

from __future__ import annotations

import argparse
import asyncio
import math
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, TypeAlias

import numpy as np

from benchmarks.recall.rules import Question, made
from benchmarks.recall.sources import HERE, Text, texts
from llama_srb import bundled
from llama_srb.config import Settings
from llama_srb.engine.pool import Pool
from llama_srb.engine.settings import EngineSettings
from llama_srb.memory.embedding import Vectoriser, relevance
from llama_srb.memory.one_memory import RANKED, Memory, Ranker
from llama_srb.memory.records import (
    NO_MODEL,
    Chunking,
    EmbeddingModel,
    FileStore,
    Found,
    MemorySettings,
)
from llama_srb.memory.stores.vectors import Rows
from llama_srb.models import gguf_header
from llama_srb.request.values import SEARCHES, SearchBy

BEST = (1, 5, 10)  # how many chunks are looked at
RANK_COUNTS = 4.0  # in fused(): of 0.25 to 4 the best on pairs of pairs.py that did not train
KINDS = ("exact", "heading", "paraphrase", "typos", "inflection", "long")
Search: TypeAlias = Callable[[str], Awaitable[Sequence[Found]]]


def questions(some: Sequence[Text]) -> list[Question]:
    lines = (HERE / "questions.tsv").read_text().splitlines()
    return [*(Question(*line.split("\t")) for line in lines), *made(some)]


@asynccontextmanager
async def running(path: Path) -> AsyncIterator[EmbeddingModel]:
    """The model of a file, by an engine of its own."""
    settings = Settings(model=path, engine=bundled.engine(), ctx=8192)
    async with serving(settings) as pool:
        yield Vectoriser.of(settings, gguf_header.read(path)).model(pool)


@asynccontextmanager
async def ranking(path: Path | None) -> AsyncIterator[Ranker | None]:
    """What orders texts by the model of a file, by an engine of its own; None: there is no file."""
    if path is None:
        yield None
        return
    async with serving(Settings(model=path, engine=bundled.engine(), rerank=True)) as pool:
        yield partial(relevance, pool)


@asynccontextmanager
async def serving(settings: Settings) -> AsyncIterator[Pool]:
    pool = Pool(EngineSettings(settings.engine_command, "recall", settings.engine_environment))
    async with pool:
        await pool.wait_ready()
        yield pool


@asynccontextmanager
async def filled(model: EmbeddingModel, tokens: int, some: Sequence[Text]) -> AsyncIterator[Memory]:
    """A memory of all texts."""
    chunking = Chunking(tokens, tokens // 5)
    with tempfile.TemporaryDirectory() as folder:
        settings = MemorySettings(
            "recall", model.name or None, FileStore(Path(folder, "recall.db")), chunking
        )
        memory = await Memory.open(settings, model)
        try:
            for one in some:
                await memory.put(one.name, one.text)
            yield memory
        finally:
            await memory.close()


@dataclass(frozen=True)
class Figures:
    """ranks: of each question's passage among the best chunks, from 1; None: it is not there."""

    ranks: dict[Question, int | None]
    ms: float

    def hit(self, k: int, kind: str = "", language: str = "") -> float:
        some = self._of(kind, language)
        return sum(rank is not None and rank <= k for rank in some) / len(some) if some else math.nan

    @property
    def mrr(self) -> float:
        return sum(1 / rank for rank in self._of() if rank) / len(self.ranks)

    def _of(self, kind: str = "", language: str = "") -> list[int | None]:
        return [
            rank
            for one, rank in self.ranks.items()
            if kind in ("", one.kind) and language in ("", one.language)
        ]


async def show_each(
    side: str, memory: Memory, asked: Sequence[Question], by: SearchBy, ranker: Ranker | None
) -> None:
    """A row of the search, one of its first chunks in the reranker's order, one of both."""
    ways: dict[str, Search] = {side: partial(memory.search, k=max(BEST), by=by)}
    if ranker is not None:
        ways[f"{side}, reranked"] = partial(memory.ranked_by(ranker).search, k=max(BEST), by=by)
        ways[f"{side}, both"] = partial(fused, memory, ranker, by)
    for name, search in ways.items():
        show(name, await figures(search, asked))


async def fused(memory: Memory, ranker: Ranker, by: SearchBy, question: str) -> list[Found]:
    """What the search finds, by the relevance less the logarithm of the rank; a memory does not do this."""
    found = await memory.search(question, RANKED, by=by)
    told = await ranker(question, [one.text for one in found]) if found else []
    worth = [score - RANK_COUNTS * math.log(rank) for rank, score in enumerate(told, 1)]
    return [found[i] for i in sorted(range(len(found)), key=lambda i: -worth[i])]


async def figures(search: Search, asked: Sequence[Question]) -> Figures:
    ranks, times = dict[Question, int | None](), list[float]()
    for one in asked:
        begun = time.perf_counter()
        found = (await search(one.question))[: max(BEST)]
        times.append(time.perf_counter() - begun)
        ranks[one] = next((i for i, hit in enumerate(found, 1) if one.is_in(hit.document, hit.text)), None)
    return Figures(ranks, 1000 * median(times))


def show(side: str, found: Figures) -> None:
    row = [*(found.hit(k) for k in BEST), found.mrr, *(found.hit(5, kind) for kind in KINDS)]
    row += [found.hit(5, language=one) for one in ("de", "zh")]
    print(f"| {side} | " + " | ".join(f"{one:.2f}" for one in row) + f" | {found.ms:.1f} |", flush=True)


# ----------------------------------------------------------------------------------------------------
# usearch against exact
# ----------------------------------------------------------------------------------------------------


async def near_chunks(divided: Sequence[str], count: int) -> Any:
    """Vectors near those of the chunks, as a memory of many texts about few things has them."""
    async with running(bundled.model()) as model:
        own = np.array([v for some in batches(divided, 32) for v in await model.embed(some)])
    drawn = np.random.default_rng(1)
    spread = float(np.linalg.norm(own - own.mean(0), axis=1).mean()) / math.sqrt(own.shape[1])
    made = own[drawn.integers(len(own), size=count)] + drawn.normal(0, spread, (count, own.shape[1]))
    return (made / np.linalg.norm(made, axis=1, keepdims=True)).astype(np.float32)


def batches(some: Sequence[str], size: int) -> list[Sequence[str]]:
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


async def main(given: argparse.Namespace) -> None:
    some = texts(given.stories)
    asked = questions(some)
    print(f"{len(asked)} questions, {len(some)} texts of {sum(len(one.text) for one in some):,} characters\n")
    heads = [*(f"@{k}" for k in BEST), "MRR", *(f"{kind} @5" for kind in KINDS), "de @5", "zh @5", "ms"]
    print("| side | " + " | ".join(heads) + " |\n|---|" + "---|" * len(heads))
    async with ranking(given.reranker) as ranker:
        if given.only == "words":
            async with filled(NO_MODEL, given.tokens, some) as memory:
                await show_each("words, no model", memory, asked, "words", ranker)
            return
        for path in (bundled.model(), *given.models):
            async with running(path) as model, filled(model, given.tokens, some) as memory:
                for by in SEARCHES:
                    await show_each(f"{path.stem}, {by}", memory, asked, by, ranker)
    if given.ann:
        english = [one.text for one in some if one.language == "en"]
        divided = [one[i : i + 800] for one in english for i in range(0, len(one), 800)][:2000]
        share = approximate(await near_chunks(divided, given.ann))
        print(f"\nusearch finds {share:.3f} of the 10 nearest of {given.ann:,} vectors")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "models", nargs="*", type=Path, metavar="MODEL", help="GGUF files, beside the bundled model"
    )
    parser.add_argument("--stories", type=Path, help="a file of stories")
    parser.add_argument("--tokens", type=int, default=200, help="most tokens of a chunk")
    parser.add_argument("--only", choices=["words"], help="a memory without a model, which takes a second")
    parser.add_argument("--reranker", type=Path, metavar="FILE", help="a model that orders what is found")
    parser.add_argument("--ann", type=int, default=0, help="vectors for usearch against the exact search")
    asyncio.run(main(parser.parse_args()))
