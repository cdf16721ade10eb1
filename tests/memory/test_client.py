"""Memories and what tasks recall by the Python client, with the real server, engine and bundled model."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from llama_srb.client import AsyncClient, Client, Loading, Memory, RequestRefused, Stored, memories
from tests.support.documents import epub
from tests.support.places import STORYTELLER
from tests.support.served import key_file
from tests.support.serving import serving

SETTINGS = """
[memories.tales]
store = { file = "tales.db" }
chunk_tokens = 32

[memories.wiki]
store = { file = "wiki.db" }
shared = true

[tasks.told]
n = 2
max_tokens = 2
recall = { memory = "tales", retrieve = 2 }
"""
KEYS: tuple[dict[str, Any], ...] = (
    {"name": "root", "scopes": ["admin"]},
    {"name": "writer", "scopes": ["memory"], "memories": ["wiki"]},
)
SHIP = "A ship sails over the cold sea."


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a server that asks for keys."""
    folder = tmp_path_factory.mktemp("client")
    file, keys = folder / "srb.toml", key_file(folder / "keys", *KEYS)
    file.write_text(SETTINGS)
    with serving("--ctx", "4096", "--config", str(file), "--api-key-file", str(keys)) as server:
        yield server.url


@pytest.fixture
def caller(server: str) -> Iterator[Client]:
    with Client(server, api_key="root", model="another") as made:
        yield made


@pytest.fixture
def tales(caller: Client) -> Iterator[Memory]:
    """An empty memory."""
    memory = caller.memory("tales")
    yield memory
    for document in list(memory.documents()):
        memory.delete(document.id)


# Memories


def test_documents_are_put_read_found_and_deleted(tales: Memory) -> None:
    stored = tales.put("ship.txt", SHIP, metadata={"year": 1900, "tag": ["sea", "ä\n"]})
    assert stored == Stored("ship.txt", 1, 1, False)
    assert tales.put("ship.txt", SHIP).replaced
    tales.put("ship.txt", SHIP, metadata={"year": 1900, "tag": ["sea", "ä\n"]})
    document = tales.get("ship.txt")
    assert (document.text, document.characters, document.chunks, document.own) == (SHIP, len(SHIP), 1, True)
    assert document.metadata == {"year": 1900, "tag": ["sea", "ä\n"]}
    [listed] = tales.documents()
    assert (listed.id, listed.text, listed.created) == ("ship.txt", None, document.created)
    [chunk] = tales.search("sea")
    assert (chunk.document, chunk.text, chunk.metadata) == ("ship.txt", SHIP, document.metadata)
    assert chunk.score <= 1
    assert tales.delete("ship.txt") is None  # type: ignore[func-returns-value]
    assert list(tales.documents()) == []
    with pytest.raises(RequestRefused):
        tales.delete("ship.txt")


def test_a_search_has_a_bound_and_filters(tales: Memory) -> None:
    for year in (1900, 1950, 2000):
        tales.put(f"{year}.txt", f"In {year} a ship sailed.", metadata={"year": year})
    assert len(tales.search("ship")) == 3
    assert len(tales.search("ship", 2)) == 2
    found = tales.search("ship", filter={"metadata": {"year": {"gte": 1950}}})
    assert sorted(chunk.document for chunk in found) == ["1950.txt", "2000.txt"]
    assert tales.search("ship", post_filter={"score": {"gt": 1}}) == []
    for by, scores in (("words", {"words", "meaning"}), ("hybrid", {"words", "meaning", "fused"})):
        [chunk] = tales.search("ship", 1, by=by, around=1, per_document=1, diversity=0.5)
        assert chunk.scores.keys() == scores
    tales.put("log.md", f"# Log\n\n## Arrivals\n\n{'A boat came. ' * 90}The barque Iris came.")
    [chunk] = tales.search("Iris", 1, by="words", headings=True, highlights=True)
    assert chunk.headings == ("Log", "Arrivals")
    assert [chunk.text[start:end] for start, end in chunk.highlights] == ["Iris"]
    assert chunk.text.startswith("Log\nArrivals\nA boat came.")


@pytest.mark.parametrize("id", ["a/b c.txt", "50%?x=1#y.txt", "ä.txt", "a%2Fb.txt", "a//b.txt", "..txt"])
def test_an_id_may_have_any_characters(tales: Memory, id: str) -> None:
    assert tales.put(id, "hi").id == id
    assert tales.get(id).text == "hi"
    assert [document.id for document in tales.documents()] == [id]
    tales.delete(id)


def test_a_document_may_be_a_text_bytes_or_a_file(tales: Memory, tmp_path: Path) -> None:
    (tmp_path / "moby.epub").write_bytes(epub({"1.xhtml": "<p>Call me Ishmael.</p>"}, ["1.xhtml"]))
    tales.put("moby.epub", tmp_path / "moby.epub")
    tales.put("note.md", b"# A title\n\nText.")
    tales.put("note", "ä text")
    tales.put("page", "<p>A page.</p>", content_type="text/html")
    texts = {document.id: tales.get(document.id).text for document in tales.documents()}
    assert texts["note"] == "ä text"
    assert texts["page"] == "A page."
    assert "A title" in (texts["note.md"] or "")
    assert texts["moby.epub"] == "Call me Ishmael."
    with pytest.raises(RequestRefused, match="Content-Type"):
        tales.put("note", b"bytes of an unknown kind")
    with pytest.raises(FileNotFoundError):
        tales.put("gone.txt", tmp_path / "gone.txt")


def test_the_list_has_all_pages(tales: Memory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memories, "PAGE", 2)
    for i in range(5):
        tales.put(f"{i} ä.txt", f"Text {i}.")
    assert [document.id for document in tales.documents()] == [f"{i} ä.txt" for i in range(5)]


FAULTS: list[tuple[str, dict[str, Any], str]] = [
    ("tals", {"content": "x"}, "tals"),
    ("tales", {"content": ""}, "body is empty"),
    ("tales", {"content": "x", "content_type": "image/png"}, "Content-Type"),
    ("tales", {"content": "x", "metadata": {"a": {"b": 1}}}, "metadata"),
    ("tales", {"content": b"no archive", "content_type": "application/epub+zip"}, "cannot be read"),
]


@pytest.mark.parametrize(("name", "fields", "message"), FAULTS)
def test_a_document_is_refused_with_the_servers_message(
    caller: Client, name: str, fields: dict[str, Any], message: str
) -> None:
    with pytest.raises(RequestRefused, match=message):
        caller.memory(name).put("x.txt", **fields)


def test_memories_are_listed_for_the_key(caller: Client, server: str) -> None:
    tales, wiki = caller.memories()
    assert (tales.id, tales.embedding_model, tales.store, tales.shared) == (
        "tales", "storyteller", "file", False
    )  # fmt: skip
    assert (tales.chunk_tokens, wiki.shared) == (32, True)
    with Client(server, api_key="writer") as writer:
        assert writer.memories() == [wiki]
        with pytest.raises(RequestRefused) as refused:
            writer.memory("tales").search("x")
        assert refused.value.code == "memory_not_allowed"


def test_a_stream_names_what_its_task_has_recalled(caller: Client, tales: Memory) -> None:
    with caller.task("told").stream("ship") as stream:
        assert stream.recalled == ()
    tales.put("ship.txt", SHIP)
    [chunk] = tales.search("ship")
    with caller.task("told").stream("ship") as stream:
        [recalled] = stream.recalled
    assert (recalled.id, recalled.memory, recalled.document) == (chunk.id, "tales", "ship.txt")
    assert recalled.score == pytest.approx(chunk.score, abs=1e-3)
    assert caller.prompt("ship", model="told").prompt.startswith(SHIP)


TWO_MODELS = f"""
[models.one]
path = "{STORYTELLER}"
[models.two]
path = "{STORYTELLER}"
preload = true
[memories.tales]
embedding_model = "two"
store = {{ file = "tales.db" }}
[tasks.told]
model = "one"
n = 1
max_tokens = 2
recall = {{ memory = "tales", retrieve = 1 }}
"""


@pytest.mark.parametrize("is_async", [False, True])
async def test_a_stream_names_it_before_an_event_is_read_also_if_the_model_loads(
    tmp_path: Path, is_async: bool
) -> None:
    (tmp_path / "srb.toml").write_text(TWO_MODELS)
    with (
        serving("--ctx", "2048", "--config", str(tmp_path / "srb.toml")) as server,
        Client(server.url) as caller,
    ):
        tales = caller.memory("tales")
        tales.put("ship.txt", SHIP)
        if is_async:
            async with AsyncClient(server.url) as theirs, theirs.task("told").stream("ship") as stream:
                recalled, first = stream.recalled, await anext(stream)
        else:
            with caller.task("told").stream("ship") as ours:
                recalled, first = ours.recalled, next(ours)
        assert isinstance(first, Loading), "it was not lost"
        assert [(one.memory, one.document, one.id) for one in recalled] == [
            ("tales", "ship.txt", tales.search("ship")[0].id)
        ]


async def test_the_asynchronous_client_gives_the_same(server: str, tales: Memory, tmp_path: Path) -> None:
    (tmp_path / "ship.txt").write_text(SHIP)
    async with AsyncClient(server, api_key="root") as theirs:
        memory = theirs.memory("tales")
        assert await memory.put("ship.txt", tmp_path / "ship.txt", metadata={"year": 1900}) == Stored(
            "ship.txt", 1, 1, False
        )
        assert await memory.get("ship.txt") == tales.get("ship.txt")
        assert [one async for one in memory.documents()] == list(tales.documents())
        assert await memory.search("sea", 1) == tales.search("sea", 1)
        async with theirs.task("told").stream("ship") as stream:
            assert [chunk.id for chunk in stream.recalled] == [tales.search("ship")[0].id]
            assert [event async for event in stream]
        assert [len(choice.text) > 0 for choice in stream.choices] == [True, True]
        await memory.delete("ship.txt")
        with pytest.raises(RequestRefused):
            await memory.get("ship.txt")
