"""A search has a bound of work, ends when nobody waits for it, and holds up no other client's."""

from __future__ import annotations

import asyncio
import dataclasses
import itertools
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from llama_srb.memory import filters
from llama_srb.memory.filters import Filter, parse_filter
from llama_srb.memory.one_memory import Memory
from llama_srb.memory.records import FileStore, MemorySettings, Metadata
from llama_srb.memory.stores import search
from llama_srb.memory.stores.search import MOST_COMPARED, Candidate, Effort, Ended, Name, chosen
from llama_srb.request.values import RequestError
from tests.support.memory import WordModel
from tests.support.waiting import soon, until

DEAR = {"metadata": {f"key{i}": {"not_in": [f"word{j}" for j in range(200)]} for i in range(63)}}
NONE_PASSES = {"metadata": {**DEAR["metadata"], "none": {"exists": True}}}


def search_of(n_documents: int, filter: Filter, effort: Effort) -> list[tuple[Candidate, Name]]:
    ranked = (Candidate(i, i, 0.5) for i in range(n_documents))
    metadata = {f"key{i}": "word" for i in range(63)}
    return chosen(
        ranked,
        5,
        filter,
        lambda texts: {one: [Name("x", "", metadata)] for one in texts},
        lambda _: "",
        effort,
    )


def test_a_search_that_compares_too_much_is_refused_with_the_bound() -> None:
    filter = parse_filter(NONE_PASSES)
    assert search_of(5_000, filter, Effort()) == []
    says = f"more than {MOST_COMPARED:,} values, .*: 65 for the last document"
    with pytest.raises(RequestError, match=says):
        search_of(MOST_COMPARED // 65 + 1, filter, Effort())


def test_what_is_counted_grows_with_what_is_compared() -> None:
    """Conditions, items of lists, bytes of metadata, the length of chunks and what they must lack."""

    def counted(
        n_items: int = 0, n_conditions: int = 1, size: int = 0, length: int = 1, n_lacking: int = 1
    ) -> int:  # fmt: skip
        metadata: Metadata = {f"key{i}": list(range(n_items)) for i in range(n_conditions)}
        conditions = {key: {"contains": n_items - 1} for key in metadata}
        filter = dataclasses.replace(
            parse_filter({"metadata": conditions}), lacking=tuple(map(str, range(n_lacking)))
        )
        candidates = [Candidate(0, 0, 0.5)]
        chosen(
            candidates, 1, filter, lambda _: {0: [Name("x", "", metadata, size)]}, lambda _: "x" * length,
            effort := Effort(),
        )  # fmt: skip
        return effort.compared

    for name, many in (
        ("n_items", 256), ("n_conditions", 64), ("size", 16_000), ("length", 10_000), ("n_lacking", 100)
    ):  # fmt: skip
        few, half, all = (counted(**{"n_items": 1, name: count}) for count in (1, many // 2, many))
        assert half > few + many / 300, name
        assert all - half == pytest.approx(half - few, abs=2), name


def test_a_text_has_a_part_however_both_repeat(monkeypatch: pytest.MonkeyPatch) -> None:
    """The way for long texts, whose time grows with the text alone, finds the same as `in`."""
    monkeypatch.setattr(filters, "QUICK", 0)
    texts = ["".join(one) for n in range(5) for one in itertools.product("a.b", repeat=n)]
    for part in texts:
        filter = parse_filter({"metadata": {"key": {"contains": part}}})
        assert [filter.takes({"key": text}) for text in texts] == [part in text for text in texts]


def test_a_search_that_is_ended_compares_nothing_more() -> None:
    (effort := Effort()).end()
    with pytest.raises(Ended):
        search_of(5_000, parse_filter(), effort)


@dataclass(frozen=True)
class Endless(Filter):
    """Its first comparison waits for `may_end`; nothing passes."""

    begun: threading.Event = field(default_factory=threading.Event)
    may_end: threading.Event = field(default_factory=threading.Event)

    def takes(self, metadata: Metadata) -> bool:
        self.begun.set()
        assert self.may_end.wait(30)
        return False


async def test_a_search_whose_client_leaves_and_a_memory_that_is_closed_end_at_once(memory: Memory) -> None:
    for i in range(3):
        await memory.put(f"{i}", f"Text number {i}.")
    endless = Endless()
    for end in ("client", "memory"):
        endless.begun.clear(), endless.may_end.clear()
        search = asyncio.create_task(memory.search("text", 1, endless, "alice"))
        await until(endless.begun.is_set)
        other = asyncio.create_task(memory.of("bob").search("number", 1, owner="bob"))
        if end == "client":
            search.cancel()
        closing = asyncio.create_task(memory.close()) if end == "memory" else None
        await asyncio.sleep(0)
        endless.may_end.set()
        if closing is None:
            assert len(await soon(other)) == 1
        else:
            await soon(closing)
            other.cancel()
        with pytest.raises((asyncio.CancelledError, Ended)):
            await search


def test_each_document_is_looked_up_once_and_in_proportional_time() -> None:
    """A batch must not look through the documents of all batches before it."""
    filter, asked = parse_filter({"metadata": {"none": 1}}), list[int]()

    def names_of(texts: Sequence[int]) -> dict[int, list[Name]]:
        asked.extend(texts)
        return {one: [] for one in texts}

    def seconds(count: int) -> float:
        begun = time.process_time()
        ranked = (Candidate(i, i // 2, 0.5) for i in range(count))
        chosen(ranked, 5, filter, names_of, lambda _: "", Effort())
        return time.process_time() - begun

    few, many = seconds(20_000), seconds(400_000)
    assert asked == [*range(10_000), *range(200_000)]
    assert many < 60 * few, "20 times as many"


async def test_what_a_search_reads_of_documents_and_their_metadata_has_a_bound(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither a hundred names of one text nor words that all chunks have make a search long."""
    settings = MemorySettings("tales", "words", FileStore(tmp_path / "tales.db"))
    memory = await Memory.open(settings, WordModel(8).model)
    for i in range(20):
        await memory.put(f"name{i}", "one text", metadata={f"key{j}": "x" * 100 for j in range(10)})
    missing = parse_filter({"metadata": {"none": {"exists": True}}})
    assert await memory.search("text", 5, missing) == []
    with monkeypatch.context() as patch:
        patch.setattr(search, "MOST_COMPARED", 100)
        with pytest.raises(RequestError, match="compares more than 100 values"):
            await memory.search("text", 5, missing)
    await memory.put("long", "many words of a text")
    without = dataclasses.replace(missing, before=(), lacking=("text",))
    assert await memory.search("text", 5, without) == []
    monkeypatch.setattr(search, "MOST_READ", 10)
    with pytest.raises(RequestError, match="documents of more than 10 characters"):
        await memory.search("text", 5, without)
    await memory.close()
