"""How long a search by words takes among many chunks: this memory's postings, SQLite's FTS5, tantivy.

python -m benchmarks.recall.speed [--chunks 100000] [--words 150] [--fts] [--tantivy]

The chunks are made of words by Zipf's law, as texts have them. A third of the queries is nine of the 50 most
frequent words, a third three rare ones, a third eight drawn as the texts' words are. --tantivy needs the
package.
"""

from __future__ import annotations

import argparse
import math
import sqlite3
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import cycle, islice
from pathlib import Path
from statistics import median, quantiles
from typing import Any

import numpy as np

from llama_srb.memory.stores import Query
from llama_srb.memory.stores.vectors import Rows
from llama_srb.memory.words import asked, packed

VOCABULARY, AT_ONCE, K = 200_000, 4096, 10
MOST_MADE = 100_000  # chunks; more are these again
WORDS = [f"w{number}" for number in range(VOCABULARY)]


def texts(n_chunks: int, n_words: int) -> Iterator[list[str]]:
    """Chunks, some at a time."""
    drawn = np.random.default_rng(1)
    for first in range(0, n_chunks, AT_ONCE):
        count = min(AT_ONCE, n_chunks - first)
        numbers = drawn.zipf(1.1, (count, n_words)) % VOCABULARY
        yield [" ".join(map(WORDS.__getitem__, row)) for row in numbers.tolist()]


def queries(count: int = 20) -> dict[str, list[str]]:
    drawn = np.random.default_rng(2)

    def of(numbers: Any) -> str:
        return " ".join(WORDS[int(one)] for one in numbers)

    return {
        "nine common words": [of(drawn.choice(50, 9, replace=False) + 1) for _ in range(count)],
        "three rare words": [of(drawn.choice(50_000, 3) + 2_000) for _ in range(count)],
        "eight drawn words": [of(drawn.zipf(1.1, 8) % VOCABULARY) for _ in range(count)],
    }


def show(side: str, search: Callable[[str], Any]) -> None:
    search("w1 w2 w70000")
    for name, some in queries().items():
        times = []
        for one in some:
            begun = time.perf_counter()
            search(one)
            times.append(1000 * (time.perf_counter() - begun))
        print(f"| {side} | {name} | {median(times):.1f} | {quantiles(times, n=20)[-1]:.1f} |", flush=True)


def of_postings(n_chunks: int, n_words: int, owners: int) -> Rows:
    rows, made, n_characters, spent = Rows(0), list[list[bytes]](), 0, 0.0
    for some in texts(min(n_chunks, MOST_MADE), n_words):
        begun = time.perf_counter()
        made.append([packed(one) for one in some])
        spent += time.perf_counter() - begun
        n_characters += sum(map(len, some))
    n_bytes = sum(len(one) for words in made for one in words)
    for words in islice(cycle(made), math.ceil(n_chunks * len(made) / min(n_chunks, MOST_MADE))):
        numbers = np.arange(len(rows), len(rows) + len(words))
        names = [f"k{number % owners}" for number in numbers]
        rows.add(np.empty((len(words), 0), np.float32), numbers, numbers, names, words)
    begun = time.perf_counter()
    best(rows, "w1")
    print(
        f"packing {spent:.1f} s; the index is {n_bytes / n_characters:.2f} of the text's size in the file; "
        f"sorted in {time.perf_counter() - begun:.2f} s\n"
    )
    return rows


def best(rows: Rows, query: str, owners: frozenset[str] | None = None) -> list[Any]:
    found = rows.found(Query("words", None, asked(query)), owners, K, alive=lambda: None)
    return [one for one, _ in zip(found, range(K), strict=False)]


def of_fts(n_chunks: int, n_words: int, folder: str) -> Callable[[str], Any]:
    db = sqlite3.connect(Path(folder, "fts.db"))
    db.execute("CREATE VIRTUAL TABLE f USING fts5(text, content='', detail=none)")
    with db:
        for some in texts(n_chunks, n_words):
            db.executemany("INSERT INTO f (text) VALUES (?)", ((one,) for one in some))
    db.execute("INSERT INTO f (f) VALUES ('optimize')")
    db.commit()

    def search(query: str) -> Any:
        words = " OR ".join(f'"{one}"' for one in query.split())
        return db.execute("SELECT rowid FROM f WHERE f MATCH ? ORDER BY rank LIMIT ?", (words, K)).fetchall()

    return search


def of_tantivy(n_chunks: int, n_words: int, folder: str) -> Callable[[str], Any]:
    import tantivy  # type: ignore[import-not-found]  # not a package of this project

    builder = tantivy.SchemaBuilder()
    builder.add_text_field("text", tokenizer_name="default", index_option="freq")
    index = tantivy.Index(builder.build(), path=folder)
    writer = index.writer(num_threads=1)
    for some in texts(n_chunks, n_words):
        for one in some:
            writer.add_document(tantivy.Document(text=one))
    writer.commit()
    writer.wait_merging_threads()
    index.reload()
    searcher = index.searcher()
    return lambda query: searcher.search(index.parse_query(query, ["text"]), K).hits


def main(given: argparse.Namespace, sides: Sequence[str]) -> None:
    rows = of_postings(given.chunks, given.words, 10)
    print("| side | query | ms, median | ms, 95 % |\n|---|---|---|---|")
    show("postings, all chunks", lambda query: best(rows, query))
    show("postings, a tenth by its owner", lambda query: best(rows, query, frozenset({"k0"})))
    for side in sides:
        with tempfile.TemporaryDirectory() as folder:
            begun = time.perf_counter()
            search = (of_fts if side == "FTS5" else of_tantivy)(given.chunks, given.words, folder)
            size = sum(one.stat().st_size for one in Path(folder).iterdir())
            show(side, search)
            print(f"{side}: {size >> 20} MiB, made in {time.perf_counter() - begun:.1f} s with the texts")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--chunks", type=int, default=100_000)
    parser.add_argument("--words", type=int, default=150)
    parser.add_argument("--fts", action="store_true")
    parser.add_argument("--tantivy", action="store_true")
    given = parser.parse_args()
    main(given, [name for name, wanted in (("FTS5", given.fts), ("tantivy", given.tantivy)) if wanted])
