"""A memory in both stores: what is stored is found by the clients who may find it, and is whole or absent."""

from __future__ import annotations

import asyncio
import re
from dataclasses import replace
from pathlib import Path

import pytest

from llama_srb.memory.filters import NO_FILTER, parse_filter
from llama_srb.memory.named import Memories
from llama_srb.memory.one_memory import Memory
from llama_srb.memory.records import (
    MAX_FOUND,
    MAX_ID,
    MAX_METADATA,
    OPERATOR,
    PROMPT,
    PROMPT_ID,
    WITHOUT_KEY,
    Bounds,
    Chunking,
    EmbeddingModel,
    FileStore,
    MemorySettings,
    MemoryUnusable,
    Progress,
    QdrantSettings,
    Stored,
    is_prompt,
)
from llama_srb.memory.stores import search
from llama_srb.request.values import RequestError
from tests.memory.conftest import Opening
from tests.support.memory import WordModel
from tests.support.rows import each_row

CAT = "The cat sleeps on the warm roof. It dreams of fish."
SHIP = "A ship sails over the cold sea. The captain looks for an island."
LONG = " ".join(f"Traveller number {i} came through gate {i} and told story {i}." for i in range(40))


async def found(memory: Memory, query: str, owner: str = "", k: int = 3) -> list[tuple[str, str]]:
    return [(one.document, one.owner) for one in await memory.search(query, k, owner=owner)]


def modes(store: FileStore | QdrantSettings) -> list[int]:
    """Of a database's files, or of the folder around them."""
    paths = store.path.parent.glob("memory.db*") if isinstance(store, FileStore) else [Path(store.url)]
    return [path.stat().st_mode & 0o777 for path in paths]


async def test_only_the_owner_of_the_process_reads_a_new_store(
    memory: Memory, store: FileStore | QdrantSettings
) -> None:
    await memory.put("cat", CAT)
    assert modes(store) == ([0o600] * 3 if isinstance(store, FileStore) else [0o700])


async def test_what_was_stored_is_found_with_its_place_in_the_text(memory: Memory) -> None:
    await memory.put("cat", CAT, metadata={"year": 1900, "tags": ["pet", "roof"]})
    stored = await memory.put("long", LONG)
    assert stored.chunks == stored.embedded > 10
    assert not stored.replaced
    best, *_ = await memory.search("sleeps on the roof", 2)
    assert (best.document, best.metadata, best.text) == ("cat", {"year": 1900, "tags": ["pet", "roof"]}, CAT)
    best, *_ = await memory.search("traveller number 31 came through gate 31", 1)
    document = await memory.get("long")
    assert document is not None
    assert document.text[best.start : best.end] == best.text
    assert "gate 31" in best.text
    assert 0.5 < best.score <= 1


async def test_a_memory_has_all_after_it_was_closed(opening: Opening, words: WordModel) -> None:
    first = await opening()
    await first.put("cat", CAT, owner="k1", metadata={"a": True})
    await first.close()
    second = await opening()
    (one,) = await second.documents("k1")
    assert (one.id, one.owner, one.metadata, one.characters, one.chunks) == ("cat", "k1", {"a": True}, 51, 1)
    assert await found(second, "cat", "k1") == [("cat", "k1")]


async def test_a_document_is_replaced_as_a_whole(memory: Memory) -> None:
    await memory.put("a", LONG)
    stored = await memory.put("a", SHIP)
    assert (stored.replaced, stored.chunks) == (True, 1)
    assert [one.text for one in await memory.search("traveller gate", 10)] == [SHIP]
    assert [one.id for one in await memory.documents()] == ["a"]


async def test_new_metadata_of_the_same_text_computes_nothing(memory: Memory, words: WordModel) -> None:
    await memory.put("a", LONG, metadata={"year": 1})
    words.embedded.clear()
    stored = await memory.put("a", LONG, metadata={"year": 2})
    assert (stored.embedded, stored.replaced, words.embedded) == (0, True, [])
    assert (await memory.search("gate", 1))[0].metadata == {"year": 2}


async def test_a_text_is_stored_once_for_an_owner(memory: Memory, words: WordModel) -> None:
    await memory.put("one", CAT, owner="k1")
    words.embedded.clear()
    stored = await memory.put("two", CAT + "\n", owner="k1")
    assert (stored.embedded, words.embedded) == (0, [])
    assert await found(memory, "cat", "k1") == [("one", "k1")]
    assert [one.id for one in await memory.documents("k1")] == ["one", "two"]
    await memory.delete("one", "k1")
    assert await found(memory, "cat", "k1") == [("two", "k1")]
    await memory.delete("two", "k1")
    assert await found(memory, "cat", "k1") == []
    words.embedded.clear()
    assert (await memory.put("two", CAT, owner="k1")).embedded == 1, "the text is gone with its last document"


async def test_a_client_finds_its_own_documents_and_the_operators(memory: Memory) -> None:
    await memory.put("cat", CAT, owner="k1")
    await memory.put("cat", CAT, owner="k2")
    await memory.put("ship", SHIP)
    assert set(await found(memory, "cat on the roof", "k1", 9)) == {("cat", "k1"), ("ship", "")}
    assert set(await found(memory, "cat on the roof", "k3", 9)) == {("ship", "")}
    assert set(await found(memory, "cat on the roof", "", 9)) == {("ship", "")}
    assert [(one.id, one.owner) for one in await memory.documents("k2")] == [("cat", "k2"), ("ship", "")]
    assert await memory.get("cat", "k3") is None
    own = await memory.get("cat", "k2")
    assert own is not None
    assert own.owner == "k2"
    assert await memory.get("ship", "k3") is not None


async def test_a_client_changes_only_its_own_documents(memory: Memory) -> None:
    await memory.put("x", CAT)
    await memory.put("x", SHIP, owner="k1")
    assert not await memory.delete("x", "k2")
    assert await memory.delete("x", "k1")
    assert not await memory.delete("x", "k1")
    document = await memory.get("x", "k1")
    assert document is not None
    assert document.text == CAT


async def test_in_a_shared_memory_all_is_found_and_only_its_own_changed(opening: Opening) -> None:
    memory = await opening(shared=True)
    await memory.put("cat", CAT, owner="k1")
    assert await found(memory, "cat", "k2") == [("cat", "k1")]
    assert not await memory.delete("cat", "k2")
    await memory.put("cat", SHIP, owner="k2")
    assert len(await memory.documents("k3")) == 2
    own = await memory.get("cat", "k2")
    assert own is not None
    assert own.text == SHIP


async def test_documents_are_listed_by_pages(memory: Memory) -> None:
    for i in range(7):
        await memory.put(f"d{i}", f"Text number {i}.", owner="k1" if i % 2 else "")
    seen: list[str] = []
    after = ("", "")
    while page := await memory.documents("k1", after, 3):
        seen += [one.id for one in page]
        after = (page[-1].id, page[-1].owner)
    assert seen == [f"d{i}" for i in range(7)]


async def test_prompts_that_were_the_operators_are_found_by_no_key_any_more(opening: Opening) -> None:
    memory, text, prompt = await opening(), "The secret is below the oak.", PROMPT_ID + "0" * 32
    await memory.put(prompt, text, metadata=PROMPT)
    await memory.put(prompt[:-1] + "1", "Another secret.", metadata=PROMPT)
    await memory.put("same", text)
    for _ in range(2):
        await memory.close()
        memory = await opening()
        found = await memory.search("secret oak", 9, owner="key alice")
        assert [(one.document, one.owner) for one in found] == [("same", OPERATOR)]
        found = await memory.search("secret oak", 9, owner=WITHOUT_KEY)
        assert {one.document for one in found} >= {prompt[:-1] + "1"}
        assert {one.text for one in found} == {text, "Another secret."}
        assert (await memory.get(prompt, WITHOUT_KEY)).text == text  # type: ignore[union-attr]
        assert await memory.get(prompt, "key alice") is None
    assert await memory.delete(prompt, WITHOUT_KEY)
    assert [one.document for one in await memory.search("oak", 9)] == ["same"]


BOUNDS = [
    (Bounds(documents=2), "would have 3 documents of yours; it takes at most 2 (max_documents)"),
    (Bounds(size=45), "would have 52 bytes of documents of yours; it takes at most 45 (max_size)"),
    (Bounds(chunks=2), "would have 3 chunks of yours; it takes at most 2 (max_chunks)"),
]


async def test_a_key_has_bounds_and_an_operator_has_none(opening: Opening) -> None:
    for number, (bounds, says) in enumerate(BOUNDS):
        memory, owner = await opening(bounds=bounds), f"key {number}"
        for i in range(4):
            await memory.put(f"{i}", f"The text number {i}.")
        for id, text in (("a", "The cat sleeps."), ("b", "The ship sails."), ("a", "The dog dreams.")):
            await memory.put(id, text, owner=owner)
        with pytest.raises(RequestError) as error:
            await memory.put("c", "The king is in London.", owner=owner)
        assert (error.value.status, error.value.code) == (503, "no_room")
        assert says in error.value.message
        assert await memory.delete("a", owner)
        await memory.put("c", "The king sleeps", owner=owner)
        await memory.close()


async def test_the_bounds_of_a_key_hold_for_all_that_it_stores_at_the_same_time(opening: Opening) -> None:
    """Each put that is answered is there, also one whose text is there; refused ones change nothing."""
    words = 30
    for number, bounds in enumerate((Bounds(documents=3), Bounds(size=3 * 7 * words), Bounds(chunks=6))):
        memory, owner = await opening(bounds=bounds), f"key {number}"
        texts = [" ".join(f"w{i}-{j:03}" for j in range(words)) for i in (*range(4), *range(4))]
        puts = (memory.put(f"{i}", text, owner=owner) for i, text in enumerate(texts))
        answers = await asyncio.gather(*puts, return_exceptions=True)
        stored = {f"{i}" for i, one in enumerate(answers) if isinstance(one, Stored)}
        assert {one.code for one in answers if isinstance(one, RequestError)} == {"no_room"}, bounds
        listed = [one for one in await memory.documents(owner) if one.owner == owner]
        assert {one.id for one in listed} == stored
        texts_of = {one.id: texts[int(one.id)] for one in listed}
        chunks = {texts_of[one.id]: one.chunks for one in listed}
        assert 0 < len(listed) <= bounds.documents
        assert sum(map(len, chunks)) <= bounds.size
        assert sum(chunks.values()) <= bounds.chunks
        await memory.close()
    memory = await opening(bounds=Bounds(prompts=3))
    puts = (memory.put(f"{PROMPT_ID}{i}", "Where?", metadata=PROMPT, owner="alice") for i in range(8))
    await asyncio.gather(*puts)
    assert len([one for one in await memory.documents("alice") if one.owner == "alice"]) == 3


async def test_of_too_many_prompts_the_oldest_are_forgotten(opening: Opening) -> None:
    for number, bounds in enumerate((Bounds(prompts=2), Bounds(prompts_size=40))):
        memory, owner = await opening(bounds=bounds), f"key {number}"
        await memory.put("doc", "The cat sleeps.", owner=owner)
        for i in range(4):
            await memory.put(PROMPT_ID + f"{i}" * 32, f"Where is cat {i}?", metadata=PROMPT, owner=owner)
        found = [one.id for one in await memory.documents(owner)]
        assert found == ["doc", PROMPT_ID + "2" * 32, PROMPT_ID + "3" * 32]
        await memory.close()
    with pytest.raises(RequestError, match="would have 45 bytes of a prompt of yours; it takes at most 40"):
        await (await opening(bounds=bounds)).put(PROMPT_ID, "x " * 23, metadata=PROMPT, owner=owner)


async def test_the_filter_before_takes_the_best_that_pass_and_the_one_after_leaves_fewer(
    memory: Memory,
) -> None:
    for i in range(150):
        await memory.put(f"d{i:03}", f"The cat number {i} sleeps.", metadata={"i": i, "even": i % 2 == 0})
    rare = parse_filter({"metadata": {"i": {"gte": 147}, "even": False}})
    assert {one.document for one in await memory.search("cat number 5", 5, rare)} == {"d147", "d149"}
    after = parse_filter(None, {"metadata": {"i": 5}})
    assert [one.document for one in await memory.search("cat number 5", 5, after)] == ["d005"]
    scores = [one.score for one in await memory.search("cat number 5", 20)]
    assert scores == sorted(scores, reverse=True)
    strict = parse_filter({"score": {"gte": scores[0]}})
    assert [one.document for one in await memory.search("cat number 5", 20, strict)] == ["d005"]
    assert await memory.search("cat", 5, parse_filter({"metadata": {"none": {"exists": True}}})) == []


async def test_the_next_best_chunk_takes_the_place_of_one_that_must_be_lacked(memory: Memory) -> None:
    for i in range(9):
        await memory.put(f"d{i}", f"The cat number {i} " + ("is <|secret|>." if i % 2 else "sleeps."))
    for after, places in ((None, [0, 2, 4]), ({"metadata": {"kind": "book"}}, [])):
        filter = replace(parse_filter(None, after), lacking=("<|none|>", "<|secret|>"))
        found = await memory.search("The cat number sleeps", 3, filter)
        assert len(found) == len(places)
        assert [one.text for one in found if "<|secret|>" in one.text] == []
    assert len(await memory.search("The cat number 1 is", 9, replace(filter, after=()))) == 5


async def test_a_search_for_one_kind_compares_nothing_of_the_other(
    opening: Opening, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However much public text stands before a key's first prompt, or prompts before a document."""
    monkeypatch.setattr(search, "MOST_COMPARED", 20)
    for shared in (False, True):
        memory = await opening(shared=shared)
        for i in range(30):
            await memory.put(f"{PROMPT_ID}{i}", f"owl owl {i}", metadata=PROMPT, owner="alice")
            await memory.put(f"{i}", f"owl {i}", metadata={"kind": "prompt"} if i else {})
        await memory.put("own", "owl owl 7", owner="alice")  # as a prompt says
        wanted = (("alice", True, "owl owl"), ("alice", False, "owl owl 7"), ("bob", False, "owl"))
        for owner, prompts, best in wanted:
            taken = await memory.search("owl owl 7", 3, NO_FILTER.with_prompts(only=prompts), owner)
            assert [is_prompt(one.document, one.metadata) for one in taken] == [prompts] * 3, (shared, owner)
            assert taken[0].text.startswith(best)
        taken = await memory.search("owl", 3, NO_FILTER.with_prompts(only=True), "bob")
        assert len(taken) == (3 if shared else 0)
        await memory.close()


async def test_progress_is_reported_in_order(memory: Memory) -> None:
    seen: list[Progress] = []
    stored = await memory.put("long", LONG, on_progress=seen.append)
    stages = list(dict.fromkeys(one.stage for one in seen))
    assert stages == ["read", "chunked", "embedded", "stored"]
    embedded = [one.done for one in seen if one.stage == "embedded"]
    assert embedded == sorted(embedded)
    assert embedded[-1] == stored.chunks == seen[-1].total


async def test_a_body_is_read_by_its_content_type(memory: Memory) -> None:
    await memory.put_body("page", b"<p>The cat <b>sleeps</b>.<script>x</script>", "text/html", owner="k1")
    document = await memory.get("page", "k1")
    assert document is not None
    assert document.text == "The cat sleeps."


async def test_searches_during_puts_see_whole_documents(memory: Memory) -> None:
    """Versions of one document replace each other; each search sees all chunks of exactly one version."""
    versions = [
        " ".join(f"Word{v} sentence {i} of the version {v} here." for i in range(12)) for v in range(6)
    ]
    counts = {(await memory.put("doc", versions[0])).chunks}
    done = asyncio.Event()

    async def put() -> None:
        for text in versions[1:]:
            counts.add((await memory.put("doc", text)).chunks)
        done.set()

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(put())
        searches = 0
        while not done.is_set() or searches == 0:
            some = await memory.search("sentence of the version", 100)
            searches += 1
            numbers = {one.text.split("version ")[1].split()[0] for one in some}
            assert len(numbers) == 1, numbers
            assert len(some) in counts
    assert len(counts) == 1


async def test_of_two_puts_of_one_document_one_stays_as_a_whole(memory: Memory) -> None:
    texts = [" ".join(f"Number{v} has sentence {i} for all to read." for i in range(20)) for v in range(8)]
    await asyncio.gather(*(memory.put("same", text) for text in texts))
    document = await memory.get("same")
    assert document is not None
    assert document.text in texts
    some = await memory.search("sentence for all", 100)
    assert len(some) == document.chunks
    assert all(one.text in document.text for one in some)


async def test_ids_of_chunks_count_nothing_and_stay_over_restarts_and_rebuilds(opening: Opening) -> None:
    async def ids(memory: Memory) -> dict[tuple[str, str, int], str]:
        some = await memory.search("Traveller story", 1000)
        return {(one.owner, one.document, one.start): one.id for one in some}

    memory = await opening(shared=True)
    for owner in ("k1", "k2", OPERATOR):
        await memory.put("long", LONG, owner=owner)
    before = await ids(memory)
    assert all(re.fullmatch("[0-9a-f]{16}", id) for id in before.values())
    assert len(set(before.values())) == len(before) > 30, "also of one text of several owners"
    assert sorted(before.values()) != [before[place] for place in sorted(before)]
    await memory.close()
    rebuilt = await opening(WordModel(64, "other"), shared=True, rebuilding=True)
    await rebuilt.rebuild()
    assert await ids(rebuilt) == before
    await rebuilt.close()
    again = await opening(WordModel(64, "other"), shared=True)
    assert await ids(again) == before
    (wide, *_) = await again.search("Traveller number 17", 1, around=2)
    (one, *_) = await again.search("Traveller number 17", 1)
    assert (wide.id, wide.start < one.start) == (one.id, True)


# Another model


async def test_vectors_of_another_model_are_refused_until_they_are_rebuilt(opening: Opening) -> None:
    first = await opening()
    await first.put("cat", CAT)
    await first.put("ship", SHIP, owner="k1", metadata={"a": 1})
    await first.put("ship2", SHIP, owner="k1")
    await first.close()
    other = WordModel(64, "other")
    with pytest.raises(MemoryUnusable, match="llama-srb memory rebuild tales"):
        await opening(other)
    rebuilt = await opening(other, Chunking(8, 0), rebuilding=True)
    assert await rebuilt.rebuild() == 2
    await rebuilt.close()
    again = await opening(other, Chunking(8, 0))
    assert (again.facts.width, again.facts.chunking) == (64, Chunking(8, 0))
    (best,) = await again.search("captain looks for an island", 1, owner="k1")
    assert (best.document, best.metadata, best.text) == ("ship", {"a": 1}, "The captain looks for an island.")
    listed = await again.documents("k1")
    assert [(one.id, one.chunks) for one in listed] == [("cat", 2), ("ship", 2), ("ship2", 2)]
    await again.close()
    with pytest.raises(MemoryUnusable, match="was made with words"):
        await opening()


async def test_prefixes_stand_before_what_the_model_reads_and_in_no_text(
    opening: Opening, words: WordModel
) -> None:
    plain = await opening()
    await plain.put("cat", CAT)
    await plain.close()
    with pytest.raises(MemoryUnusable, match="was made with passage_prefix '', which is 'passage: ' now"):
        await opening(passage_prefix="passage: ")
    memory = await opening(passage_prefix="passage: ", query_prefix="query: ", rebuilding=True)
    words.embedded.clear()
    await memory.rebuild()
    assert words.embedded
    assert all(text.startswith("passage: ") for text in words.embedded)
    words.embedded.clear()
    (best,) = await memory.search("a cat", 1)
    assert words.embedded == ["query: a cat"]
    assert best.text in CAT
    await memory.close()
    await (await opening(passage_prefix="passage: ")).close()  # queries may have another one at any time


async def test_a_store_of_another_model_says_so_also_when_it_is_open(
    opening: Opening, words: WordModel
) -> None:
    other = WordModel(32)
    memory = await opening()
    await memory.using(other.model)
    await memory.using(words.model)
    await memory.put("cat", CAT)
    with pytest.raises(MemoryUnusable, match="llama-srb memory rebuild tales"):
        await memory.using(other.model)
    assert [one.document for one in await memory.search(CAT)] == ["cat"]


async def test_a_rebuild_that_was_cut_goes_on(opening: Opening) -> None:
    first = await opening()
    for i in range(6):
        await first.put(f"d{i}", f"Text number {i} is here.")
    await first.close()
    cut = WordModel(64, "other")

    async def embed(texts: list[str]) -> list[list[float]]:
        if len(cut.embedded) >= 3:
            raise ConnectionError("the engine died")
        return await WordModel.embed(cut, texts)

    cut.embed = embed  # type: ignore[method-assign, assignment]
    memory = await opening(cut, rebuilding=True)
    with pytest.raises(ConnectionError):
        await memory.rebuild()
    await memory.close()
    old = await opening()
    assert len(await old.search("text number", 10)) == 6, "the old vectors are in use until all are there"
    await old.close()
    other = WordModel(64, "other")
    memory = await opening(other, rebuilding=True)
    await memory.rebuild()
    assert len(other.embedded) == 3
    assert len(await memory.search("text number", 10)) == 6


async def test_an_empty_memory_takes_another_model(opening: Opening) -> None:
    first = await opening()
    await first.put("cat", CAT)
    await first.delete("cat")
    await first.close()
    second = await opening(WordModel(64, "other"))
    await second.put("cat", CAT)
    assert await found(second, "cat") == [("cat", "")]


async def test_a_model_that_gives_other_vectors_than_it_says_is_an_error(opening: Opening) -> None:
    wrong = WordModel()
    memory = await opening(wrong)
    wrong.width = 64
    with pytest.raises(MemoryUnusable, match="a vector has 64 numbers; this memory's have 2048"):
        await memory.put("cat", CAT)
    assert await memory.documents() == []


# Values of clients


@each_row(
    ("id", "text", "metadata", "says"),
    [
        ("", "x", None, f'id is ""; it must be a text of 1 to {MAX_ID} bytes'),
        ("x" * (MAX_ID + 1), "x", None, f"it must be a text of 1 to {MAX_ID} bytes"),
        ("a\nb", "x", None, "without control characters"),
        (7, "x", None, "id is 7"),
        ("a", "", None, "text has no text"),
        ("a", " \x00\n ", None, "text has no text"),
        ("a", "\ud800", None, "it must be a text"),
        ("a", "x" * (16 * 2**20 + 1), None, "text has 16,777,217 bytes; it must have at most 16,777,216"),
        ("a", "x", [1], "metadata is [1]; it must be an object"),
        ("a", "x", {"k": {}}, "metadata.k is {}"),
        ("a", "x", {"k": None}, "metadata.k is null"),
        ("a", "x", {"k": float("nan")}, "metadata.k is NaN"),
        ("a", "x", {"k": 2**70}, "metadata.k is"),
        ("a", "x", {"k": "v" * 5000}, "a text of at most 4096 bytes"),
        ("a", "x", {"k": ["v"] * 300}, "a list of at most 256 texts and numbers"),
        ("a", "x", {"": 1}, "keys have 1 to 128 bytes"),
        ("a", "x", {str(i): i for i in range(65)}, f"65 entries; it must have at most {MAX_METADATA}"),
    ],
)
async def test_a_wrong_value_is_named_with_its_bound(
    memory: Memory, id: object, text: object, metadata: object, says: str
) -> None:
    with pytest.raises(RequestError) as error:
        await memory.put(id, text, metadata=metadata)
    assert says in error.value.message
    assert len(error.value.message) < 300
    assert await memory.documents() == []


@each_row(
    ("query", "k", "says"),
    [
        ("", 5, "query has no text"),
        ("x" * 70_000, 5, "query has 70,000 bytes; it must have at most 65,536"),
        ("x", 0, f"k is 0; it must be between 1 and {MAX_FOUND}"),
        ("x", 1001, "k is 1001"),
        ("x", "5", 'k is "5"'),
    ],
)
async def test_a_wrong_search_is_named_with_its_bound(
    memory: Memory, query: str, k: object, says: str
) -> None:
    with pytest.raises(RequestError) as error:
        await memory.search(query, k)
    assert says in error.value.message


# Several memories


async def test_memories_are_opened_once_and_unknown_names_have_the_nearest(
    store: FileStore | QdrantSettings, words: WordModel
) -> None:
    loaded: list[str] = []

    async def model_of(name: str) -> EmbeddingModel:
        loaded.append(name)
        await asyncio.sleep(0)
        return words.model

    memories = Memories([MemorySettings("bible", "minilm", store)], model_of)
    first, second = await asyncio.gather(memories.get("bible"), memories.get("bible"))
    assert first is second
    assert loaded == ["minilm"]
    with pytest.raises(RequestError) as error:
        await memories.get("bibel")
    assert error.value.status == 404
    assert error.value.message == 'there is no memory "bibel"; did you mean "bible"?'
    await memories.close()
