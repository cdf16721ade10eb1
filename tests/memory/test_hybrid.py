"""A memory is searched by words, by meaning or by both, in both stores, also without a model."""

from __future__ import annotations

import dataclasses
import logging
import sqlite3
from collections.abc import Sequence
from pathlib import Path

import pytest

from llama_srb.memory.filters import NO_FILTER, parse_filter
from llama_srb.memory.one_memory import Memory
from llama_srb.memory.records import (
    NO_MODEL,
    FileStore,
    MemoryOutdated,
    MemorySettings,
    MemoryUnusable,
    QdrantSettings,
)
from llama_srb.memory.requests import search_of
from llama_srb.memory.stores.points import FACTS, FACTS_OF_BEFORE, Points
from llama_srb.memory.words import asked, highlights
from llama_srb.request.values import RequestError, SearchBy
from tests.memory.conftest import Opening
from tests.support.memory import WordModel
from tests.support.waiting import until

CAT = "The cat sleeps on the warm roof. It dreams of fish."
SHIP = "A ship sails over the cold sea to Varnholm. The captain looks for order 4711."
TOWER = "他守着那座灯塔已经四十二年。"


async def found(memory: Memory, query: str, by: SearchBy | None = None, owner: str = "") -> list[str]:
    return [one.document for one in await memory.search(query, 5, owner=owner, by=by)]


async def put_all(memory: Memory) -> None:
    for id, text in (("cat", CAT), ("ship", SHIP), ("tower", TOWER)):
        await memory.put(id, text, metadata={"id": id})


async def test_words_find_names_and_numbers_and_say_why(memory: Memory) -> None:
    await put_all(memory)
    for query, id in (("Varnholm", "ship"), ("4711?", "ship"), ("roofs", "cat"), ("灯塔", "tower")):
        assert await found(memory, query, "words") == [id], query
    assert await found(memory, "nothing else", "words") == []
    (best,) = await memory.search("Varnholm", 5, by="words")
    assert best.score == best.scores.meaning is not None
    assert best.scores.fused is None
    if isinstance(memory.settings.store, FileStore):  # Qdrant's scores are of all keys' words
        assert best.scores.words is not None
        assert best.scores.words > 0


async def test_a_hybrid_search_has_both(memory: Memory) -> None:
    await put_all(memory)
    best, *others = await memory.search("the captain of Varnholm", 3, by="hybrid")
    assert best.document == "ship"
    assert {one.document for one in others} == {"cat", "tower"}, "by meaning all have a place"
    assert best.scores.fused is not None
    assert best.scores.meaning == best.score
    assert all((one.scores.fused or 0) < best.scores.fused for one in others)


async def test_filters_hold_for_all_ways_to_search(memory: Memory) -> None:
    await put_all(memory)
    ways: tuple[SearchBy, ...] = ("words", "hybrid")
    for by in ways:
        at_home = parse_filter({"metadata": {"id": "cat"}, "score": {"gt": 0.01}})
        assert [one.document for one in await memory.search("the cat of Varnholm", 5, at_home, by=by)] == [
            "cat"
        ]
        near = parse_filter({"score": {"gt": 0.99}})
        assert [one.document for one in await memory.search(CAT, 5, near, by=by)] == ["cat"], by


@pytest.mark.parametrize("by", ["words", "hybrid"])
async def test_words_of_other_keys_are_neither_found_nor_counted(opening: Opening, by: SearchBy) -> None:
    async def said(memory: Memory) -> list[tuple[str, list[float]]]:
        """All that an answer says, to what floats hold."""
        some = await memory.search("dragon Oxley", 5, owner="alice")
        return [(one.document, [round(x or 0, 5) for x in dataclasses.astuple(one.scores)]) for one in some]

    memory = await opening(search=by)
    await memory.put("own", "A dragon in the valley of Oxley.", owner="alice")
    await memory.put("also", "The dragon of Oxley sleeps in the valley.", owner="alice")
    before = await said(memory)
    for i in range(30):
        await memory.put(f"{i}", f"A dragon and a longer text about number {i} of the hills.", owner="bob")
    assert await said(memory) == before
    assert "own" not in await found(memory, "Oxley", owner="bob")


async def test_a_chunk_comes_with_its_neighbours_and_few_of_one_document(memory: Memory) -> None:
    text = " ".join(f"Traveller number{i} came to gate {i} and told a long story there." for i in range(12))
    await memory.put("long", text)
    await memory.put("short", "Another traveller came.")
    (one,) = await memory.search("number6", 1, by="words")
    (wide,) = await memory.search("number6", 1, by="words", around=1)
    assert (wide.id, text[wide.start : wide.end]) == (one.id, wide.text)
    assert wide.start < one.start < one.end < wide.end
    assert "number6" in wide.text
    (first,) = await memory.search("number0", 1, by="words", around=5)
    assert first.start == 0
    few = dataclasses.replace(NO_FILTER, per_document=1)
    assert sorted(one.document for one in await memory.search("traveller", 5, few, by="words")) == [
        "long",
        "short",
    ]


TYPOS: dict[tuple[str, SearchBy, str], list[str]] = {  # query, way, owner: what is shown of SHIP
    ("Varnhlom", "words", ""): ["Varnholm"],
    ("capitain order", "hybrid", ""): ["captain", "order"],
    ("sials", "words", ""): ["sails"],
    ("cald captain", "words", ""): ["cold", "captain"],
    ("cald captain", "words", "bob"): ["captain"],  # he has a text with the word as it is written
}


async def test_highlights_show_the_words_that_were_found_in_place_of_those_with_a_typo(
    tmp_path: Path,
) -> None:
    memory = await Memory.open(
        MemorySettings("a", "words", FileStore(tmp_path / "a.db")), WordModel(64).model
    )
    await put_all(memory)
    await memory.put("other", "Cald and gold.", owner="bob")
    shown = {}
    for query, by, owner in TYPOS:
        some = await memory.search(query, 5, owner=owner, by=by)
        (ship,) = (one for one in some if one.document == "ship")
        places = highlights(ship.text, asked(query), ship.instead)
        shown[query, by, owner] = [ship.text[start:end] for start, end in places]
    assert shown == TYPOS
    await memory.close()


async def by_barrels(query: str, texts: Sequence[str]) -> list[float]:
    """A reranker."""
    return [float("".join(filter(str.isdigit, text)) or 0) / 10 for text in texts]


async def test_chunks_that_say_the_same_make_room_for_others(memory: Memory) -> None:
    for i in range(4):
        await memory.put(f"ship{i}", f"The ship came to the harbour of Varnholm with {i} barrels of salt.")
    await memory.put("law", "In Varnholm nobody may sell fish after noon, says the old law of the town.")
    found = {}
    for diversity in (0.0, 0.5, 1.0):
        filter = dataclasses.replace(NO_FILTER, diversity=diversity)
        best = await memory.search("the ship of Varnholm harbour", 2, filter, by="words")
        found[diversity] = [one.document for one in best]
    assert all(one.startswith("ship") for one in found[0.0])
    assert found[0.5][0] == found[1.0][0] == found[0.0][0]
    assert found[0.5][1] == found[1.0][1] == "law"
    ranked = memory.ranked_by(by_barrels)  # then of its order
    best = await ranked.search("the ship of Varnholm harbour", 2, filter, by="words")
    assert [one.document for one in best] == ["ship3", "law"]
    with pytest.raises(RequestError, match="diversity is 2; it must be a number between 0 and 1"):
        search_of({"query": "x", "diversity": 2})


async def test_what_is_removed_is_not_found_by_its_words(memory: Memory) -> None:
    await put_all(memory)
    await memory.delete("ship")
    assert await found(memory, "Varnholm", "words") == []
    await memory.put("ship", SHIP.replace("Varnholm", "Oxley"))
    assert (await found(memory, "Varnholm", "words"), await found(memory, "Oxley", "words")) == ([], ["ship"])


async def test_a_memory_without_a_model_finds_by_words(opening: Opening, words: WordModel) -> None:
    memory = await opening(None, search=None)
    await put_all(memory)
    (best,) = await memory.search("Varnholm", 5)
    assert (best.document, best.score, best.scores.meaning) == ("ship", None, None)
    with pytest.raises(RequestError, match='has no embedding model: "words" is possible'):
        await memory.search("Varnholm", by="hybrid")
    with pytest.raises(RequestError, match="filter has a score"):
        await memory.search("Varnholm", 5, parse_filter({"score": {"gt": 0.5}}))
    assert words.embedded == []
    await memory.close()
    with pytest.raises(
        MemoryOutdated, match="without an embedding model, but embedding_model is words: run llama"
    ):
        await opening()
    with_model = await opening(rebuilding=True)
    assert await with_model.rebuild() == 3
    assert (await found(with_model, "warm roof fish"))[0] == "cat"
    assert await found(with_model, "Varnholm", "words") == ["ship"]
    await with_model.close()
    with pytest.raises(MemoryOutdated, match="but embedding_model is false"):
        await opening(None, search=None)


async def test_the_way_to_search_is_the_settings_or_what_the_model_was_made_for(tmp_path: Path) -> None:
    async def way(search: SearchBy | None, *, made_to_embed: bool, model: str | None = "words") -> str:
        settings = MemorySettings("a", model, FileStore(tmp_path / "a.db"), search=search)
        used = dataclasses.replace(WordModel(8).model, is_made_to_embed=made_to_embed)
        memory = await Memory.open(settings, used if model else NO_MODEL)
        await memory.close()
        return memory.search_by

    assert await way(None, made_to_embed=False) == "words"
    assert await way(None, made_to_embed=True) == "hybrid"
    assert await way("meaning", made_to_embed=True) == "meaning"
    (tmp_path / "a.db").unlink()
    assert await way(None, made_to_embed=False, model=None) == "words"


# ----------------------------------------------------------------------------------------------------
# Files and collections of earlier versions
# ----------------------------------------------------------------------------------------------------


def as_format_1(path: Path) -> None:
    """The file as an earlier version has made it."""
    db = sqlite3.connect(path)
    db.executescript(
        "DROP INDEX chunks_without_words; ALTER TABLE chunks DROP COLUMN words; "
        "DROP INDEX chunks_without_headings; ALTER TABLE chunks DROP COLUMN headings; PRAGMA user_version = 1"
    )
    db.close()


async def test_words_of_an_earlier_file_are_indexed_in_the_background(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    file = FileStore(tmp_path / "a.db")
    settings, model = MemorySettings("a", "words", file, search="words"), WordModel(64).model
    memory = await Memory.open(settings, model)
    for i in range(300):
        await memory.put(f"{i}", f"Traveller number{i} came to Varnholm.")
    await memory.close()
    as_format_1(file.path)
    memory = await Memory.open(settings, model)
    assert memory.search_by == "meaning", "until all words are there"
    assert len(await memory.search("traveller", 3)) == 3
    await memory.put("new", "A new text about Oxley.")
    await until(lambda: memory.search_by == "words")
    assert await found(memory, "number217") == ["217"]
    assert await found(memory, "Oxley") == ["new"]
    assert "the words of 300 chunks of an earlier version are indexed" in caplog.text
    assert "all words are indexed" in caplog.text
    await memory.close()
    again = await Memory.open(settings, model)
    assert (again.search_by, await found(again, "number3")) == ("words", ["3"])
    await again.close()


async def test_a_memory_is_closed_while_its_words_are_indexed_and_goes_on_later(tmp_path: Path) -> None:
    file = FileStore(tmp_path / "a.db")
    settings = MemorySettings("a", "words", file, search="words")
    memory = await Memory.open(settings, WordModel(8).model)
    for i in range(400):
        await memory.put(f"{i}", f"Traveller number{i} came.")
    await memory.close()
    as_format_1(file.path)
    await (await Memory.open(settings, WordModel(8).model)).close()
    memory = await Memory.open(settings, WordModel(8).model)
    await until(lambda: memory.search_by == "words")
    assert await found(memory, "number399") == ["399"]
    await memory.close()


async def test_a_later_format_is_refused(tmp_path: Path) -> None:
    file = FileStore(tmp_path / "a.db")
    settings = MemorySettings("a", None, file)
    await (await Memory.open(settings, NO_MODEL)).close()
    with sqlite3.connect(file.path) as db:
        assert db.execute("PRAGMA user_version").fetchone() == (2,), "which an earlier version refuses"
        db.execute("PRAGMA user_version = 3")
    with pytest.raises(MemoryUnusable, match="has format 3; wanted: format 2"):
        await Memory.open(settings, NO_MODEL)


async def test_a_collection_of_before_is_searched_by_meaning_until_it_is_rebuilt(tmp_path: Path) -> None:
    where = QdrantSettings(str(tmp_path / "qdrant"), "memory")
    settings, model = MemorySettings("a", "words", where, search="hybrid"), WordModel(64).model
    memory = await Memory.open(settings, model)
    await put_all(memory)
    await memory.close()
    points = Points(where)  # an earlier version had its facts at another point
    payload = points.payload(str(FACTS))
    points.upsert([(str(FACTS_OF_BEFORE), payload, [0.0] * 64)])
    points.delete(str(FACTS))
    points.close()
    memory = await Memory.open(settings, model)
    assert memory.search_by == "meaning"
    assert (await found(memory, "warm roof fish"))[0] == "cat"
    with pytest.raises(
        MemoryOutdated, match="without words: run llama-srb memory rebuild a, or search by meaning"
    ):
        await memory.search("Varnholm", by="words")
    assert await memory.rebuild() == 3
    assert (memory.search_by, await found(memory, "Varnholm", "words")) == ("hybrid", ["ship"])
    await memory.close()
